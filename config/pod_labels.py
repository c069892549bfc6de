"""Labels and annotations of pods. Source: Kubernetes documentation, "Labels and Selectors"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from config.errors import BadInput, shown
from config.parameters import Parameter
from config.sections import mapping_of_texts

PODS_PER_GPU = "rl-training-dag/pods-per-gpu"
"""Pod annotation with the number of pods that may share one GPU. The local engine enforces it. On a
cluster the device plugin does, by the number of replicas that it makes of a shared GPU.
"""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""The label by which Kueue knows a pod's local queue."""
OWN_LABEL = "app"
"""The label that the network policy of containers/kubernetes selects."""
ARGO = "workflows.argoproj.io/"
KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
LABEL_VALUE: dict[str, Any] = {
    "pattern": r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?",
    "form": "up to 63 letters, digits, '-', '_' and '.'",
}
"""The arguments of a parameter that is the value of a label."""
KEY_FORM = "a label's key such as example.com/team"


def read_labels(value: Any, path: str) -> Mapping[str, str]:
    """Read labels. Raises `BadInput`, also for those that the project, Argo or `queue` sets."""
    return mapping_of_texts(value, path, _check_label)


def read_annotations(value: Any, path: str) -> Mapping[str, str]:
    """Read annotations. Raises `BadInput`, also for those that the project or Argo sets."""
    return mapping_of_texts(value, path, _check_key)


def read_key(value: Any, path: str) -> str:
    """Read the key of a label or a taint. Raises `BadInput`."""
    read: str = Parameter(path, str, None, "", pattern=KEY.pattern, form=KEY_FORM).parse(value)
    return read


def _check_label(path: str, key: str, value: str) -> None:
    _check_key(path, key, value)
    if key == QUEUE_LABEL:
        raise BadInput(f"{path!r} cannot be set; allowed: the setting queue")
    if not re.fullmatch(LABEL_VALUE["pattern"], value):
        raise BadInput(f"{path!r} cannot be {shown(value)}; allowed: {LABEL_VALUE['form']}")


def _check_key(path: str, key: str, _value: str) -> None:
    if not KEY.fullmatch(key):
        raise BadInput(f"{path!r} cannot have this name; allowed: {KEY_FORM}")
    if key in (OWN_LABEL, PODS_PER_GPU) or key.startswith(ARGO):
        raise BadInput(f"{path!r} cannot be set: pods of this project have their own")
