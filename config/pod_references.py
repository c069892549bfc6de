"""Variables of pods that name a secret, a config map or a field of the pod, never a value.

A manifest can be read by all who may list workflows, and it lies in repositories. So the value of a
token never enters one: only the name of the secret that holds it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.errors import BadInput, shown
from config.experiment import KUBERNETES_NAME
from config.parameters import Parameter, parameter
from config.sections import list_of, section

POD_FIELDS = (
    "metadata.name", "metadata.namespace", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.podIP",
)  # fmt: skip
"""The fields of a pod that a variable may have as its value."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
OWN_VARIABLES = (
    "STORAGE", "OUTPUTS", "POD_IP", "OMP_NUM_THREADS", "ACTOR_COMMAND", "NOTIFY_ADDRESS",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES", "PATH", "HOME", "PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH",
    "EXPERIMENT_*", "ARGO_*",
)  # fmt: skip
"""Variables that this project, its images, the device plugin or Argo sets. `*` stands for any rest of
a name.
"""
WHY_NO_VALUE = (
    "all who may list workflows can read it; allowed: a mapping with secret and key, "
    "config_map and key, or field"
)
NAME: dict[str, Any] = {"pattern": KUBERNETES_NAME, "form": "a Kubernetes name"}


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A secret, each key of which becomes a variable."""

    name: str = parameter("", help="name of the secret", **NAME)
    optional: bool = parameter(False, help="whether pods also start without the secret")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Where the value of a variable stands."""

    secret: str | None = parameter(None, optional=True, help="secret with the value", **NAME)
    config_map: str | None = parameter(
        None, optional=True, help="config map with the value", **NAME
    )
    key: str | None = parameter(
        None,
        optional=True,
        pattern=r"[-._a-zA-Z0-9]{1,253}",
        form="a key of a secret or config map",
        help="its key in the secret or config map",
    )
    optional: bool = parameter(
        False, help="whether pods also start without the secret, config map or key"
    )
    field: str | None = parameter(
        None, optional=True, choices=POD_FIELDS, help="field of the pod with the value"
    )


def read_name(value: Any, path: str) -> str:
    """Read a name of Kubernetes. Raises `BadInput`."""
    read: str = Parameter(path, str, None, "", **NAME).parse(value)
    return read


def read_secret(value: Any, path: str) -> Secret:
    """Read the name of a secret, or a mapping with `name` and `optional`. Raises `BadInput`."""
    given = {"name": value} if isinstance(value, str) else value
    read: Secret = section(Secret, given, path)
    return read


read_secrets = list_of(read_secret, "a list of names of secrets")


def read_environment(value: Any, path: str) -> Mapping[str, Reference]:
    """Read variables by name. Raises `BadInput`, which never repeats a value."""
    if not isinstance(value, dict):
        raise BadInput(f"{path!r} must be a mapping of variables to references")
    return {name: _reference(name, one, path) for name, one in value.items()}


def _reference(name: Any, value: Any, path: str) -> Reference:
    if not isinstance(name, str) or not VARIABLE.fullmatch(name):
        raise BadInput(
            f"{path!r} cannot have the variable {shown(name)}; allowed: letters, digits and '_'"
        )
    where = f"{path}.{name}"
    if is_own_variable(name):
        raise BadInput(
            f"{where!r} cannot be set: pods of this project have their own; allowed: names other "
            f"than {', '.join(OWN_VARIABLES)}"
        )
    if not isinstance(value, dict) or "value" in value:
        raise BadInput(f"{where!r} cannot be a plain value: {WHY_NO_VALUE}")
    read: Reference = section(Reference, value, where)
    sources = [one for one in ("secret", "config_map", "field") if getattr(read, one) is not None]
    needs_key = sources in (["secret"], ["config_map"])
    if len(sources) != 1 or needs_key != (read.key is not None) or (read.field and read.optional):
        raise BadInput(
            f"{where!r} cannot have {', '.join(value) or 'nothing'}; allowed: secret and key, "
            "config_map and key, each also with optional, or field"
        )
    return read


def is_own_variable(name: str) -> bool:
    """Whether pods have this variable already."""
    beginnings = tuple(own[:-1] for own in OWN_VARIABLES if own.endswith("*"))
    return name in OWN_VARIABLES or name.startswith(beginnings)
