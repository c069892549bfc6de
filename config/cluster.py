"""The settings of a cluster: what Kubernetes needs to know and no result depends on. Their defaults
are in `cluster.yaml`.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from config.algorithms.descriptor import Algorithm
from config.errors import BadInput, shown, unknown
from config.experiment import IMAGE, KUBERNETES_NAME
from config.memory import MEMORY, larger
from config.parameters import of_field, parameter, refuse_hostile
from config.strict_yaml import load_mapping

DEFAULT = Path(__file__).parent / "cluster.yaml"
PODS_PER_GPU = "rl-training-dag/pods-per-gpu"
"""Pod annotation with the number of pods that may share one GPU. The local engine enforces it. On a
cluster the device plugin does, by the number of replicas that it makes of a shared GPU.
"""

NAME: dict[str, Any] = {"pattern": KUBERNETES_NAME, "form": "a Kubernetes name"}
IMAGE_REFERENCE: dict[str, Any] = {"pattern": IMAGE, "form": "an image reference"}
CPU: dict[str, Any] = {
    "pattern": r"[0-9]{1,6}(\.[0-9]{1,3}|m)?",
    "form": "a quantity such as 2 or 500m",
    "help": "processors",
}
RESOURCE: dict[str, Any] = {
    "pattern": r"[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}",
    "form": "a resource such as nvidia.com/gpu",
}


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The resources that Kubernetes reserves for a pod, as Kubernetes quantities. Training pods
    give no memory here: their parameter `training_memory` is both request and limit.
    """

    cpu: str = parameter(MISSING, **CPU)
    memory: str | None = parameter(None, optional=True, help="memory", **MEMORY)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The resources that a pod may not exceed. A processor limit would only slow the pod down, so
    none is set by default.
    """

    cpu: str | None = parameter(None, optional=True, **CPU)
    memory: str | None = parameter(None, optional=True, help="memory", **MEMORY)


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A Kubernetes toleration."""

    key: str | None = parameter(
        None, optional=True, help="key of the tolerated taint; empty: every taint"
    )
    operator: str = parameter(
        "Equal", choices=("Equal", "Exists"), help="how the taint's value is compared"
    )
    value: str | None = parameter(
        None, optional=True, help="value of the tolerated taint, with operator Equal"
    )
    effect: str | None = parameter(
        None,
        optional=True,
        choices=("NoSchedule", "PreferNoSchedule", "NoExecute"),
        help="effect of the tolerated taint; empty: every effect",
    )
    toleration_seconds: int | None = parameter(
        None, optional=True, low=0, high=10**9, help="time for which NoExecute is tolerated"
    )


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Resources and placement of one kind of pod."""

    requests: Requests
    limits: Limits
    node_selector: dict[str, str]
    tolerations: tuple[Toleration, ...]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """All settings of `cluster.yaml`. namespace: None means the namespace of whoever submits."""

    namespace: str | None = parameter(
        MISSING, optional=True, help="namespace of the workflows; empty: the caller's", **NAME
    )
    service_account: str = parameter(MISSING, help="service account of the pods", **NAME)
    claim: str = parameter(
        MISSING, help="persistent volume claim that is mounted as the storage", **NAME
    )
    gpu_image: str = parameter(MISSING, help="container image of training pods", **IMAGE_REFERENCE)
    cpu_image: str = parameter(MISSING, help="container image of all other pods", **IMAGE_REFERENCE)
    gpu_resource: str = parameter(MISSING, help="Kubernetes resource name of a GPU", **RESOURCE)
    shared_gpu_resource: str = parameter(
        MISSING, help="Kubernetes resource name of a GPU that several pods share", **RESOURCE
    )
    training_memory: str = parameter(
        MISSING, help="memory of a training pod, unless its algorithm needs more", **MEMORY
    )
    tracking_secret: str = parameter(
        MISSING, help="secret with addresses and keys of trackers; it need not exist", **NAME
    )
    grace_period_s: int = parameter(
        MISSING, low=1, high=86_400, help="time from SIGTERM to SIGKILL", unit="s"
    )
    parallelism: int = parameter(MISSING, low=1, high=256, help="runs that train at the same time")
    parallelism_with_actors: int = parameter(
        MISSING,
        low=1,
        high=256,
        help="runs that train at the same time if they have actors or workers",
    )
    parallel_experiments: int = parameter(
        MISSING,
        low=1,
        high=256,
        help="experiments of a study that are active at the same time",
    )
    gpu: Pool
    actor: Pool
    cpu: Pool


def load_cluster(path: Path | None = None) -> Cluster:
    """Read cluster settings from a file. Settings that the file leaves out come from
    `cluster.yaml`. Raises `BadInput`.
    """
    document = load_mapping(DEFAULT)
    if path is not None:
        document = _overlaid(document, load_mapping(path))
    try:
        cluster = typing.cast(Cluster, _section(Cluster, document, ""))
        _check_memory(cluster)
        return cluster
    except BadInput as error:
        raise BadInput(f"{path or DEFAULT}: {error}") from None


def defaults(cluster: Cluster, algorithm: Algorithm) -> dict[str, str]:
    """The defaults of those experiment parameters that the cluster's settings decide, by parameter
    name.
    """
    return {
        "training_memory": larger(cluster.training_memory, algorithm.training_memory),
        "gpu_image": cluster.gpu_image,
        "cpu_image": cluster.cpu_image,
        "claim": cluster.claim,
    }


def _check_memory(cluster: Cluster) -> None:
    for name in ("requests", "limits"):
        of_training = getattr(cluster.gpu, name).memory
        if of_training is not None:
            raise BadInput(
                f"'gpu.{name}.memory' cannot be {shown(of_training)}; allowed: empty, and 'training_memory' for both"
            )
        for pool in ("actor", "cpu"):
            if getattr(getattr(cluster, pool), name).memory is None:
                raise BadInput(f"empty value for '{pool}.{name}.memory'; allowed: {MEMORY['form']}")


def _overlaid(below: Any, above: Any) -> Any:
    """Merge two documents, name by name. A node selector or a list replaces the one below it as a
    whole.
    """
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    merged = {
        name: value if name == "node_selector" else _overlaid(below.get(name), value)
        for name, value in above.items()
    }
    return {**below, **merged}


def _section(section: type[Any], value: Any, where: str) -> Any:
    """Build the dataclass `section` from a mapping. `where` is the dotted path of its fields, for
    messages.
    """
    fields = {field.name: field for field in dataclasses.fields(section)}
    if not isinstance(value, dict):
        raise BadInput(
            f"{where[:-1]!r} cannot be {shown(value)}; allowed: a mapping with {', '.join(fields)}"
        )
    for name in value:
        if name not in fields:
            raise unknown("cluster setting", where + name, [where + known for known in fields])
    hints = typing.get_type_hints(section)
    given = {
        name: value.get(name, None if field.default is MISSING else field.default)
        for name, field in fields.items()
    }
    return section(
        **{
            name: _field(fields[name], hints[name], one, where + name)
            for name, one in given.items()
        }
    )


def _field(field: dataclasses.Field[Any], hint: Any, value: Any, where: str) -> Any:
    if field.metadata:
        return dataclasses.replace(of_field(field, hint), name=where).parse(value)
    if dataclasses.is_dataclass(hint):
        return _section(typing.cast(type, hint), value, f"{where}.")
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise BadInput(f"{where!r} cannot be {shown(value)}; allowed: a list")
        return tuple(
            _section(typing.get_args(hint)[0], one, f"{where}[{index}].")
            for index, one in enumerate(value)
        )
    return _labels(value, where)


def _labels(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadInput(f"{where!r} cannot be {shown(value)}; allowed: a mapping")
    for label, text in value.items():
        refuse_hostile(where, label)
        if not isinstance(text, str):
            raise BadInput(f"{where}.{label} cannot be {shown(text)}; allowed: text, quote it")
        refuse_hostile(f"{where}.{label}", text)
    return value
