"""The settings of a cluster: what Kubernetes needs to know and no result depends on. Their defaults
are in `cluster.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from config.algorithms.descriptor import Algorithm
from config.errors import BadInput, shown
from config.experiment import IMAGE
from config.memory import MEMORY, larger
from config.parameters import parameter
from config.pod_labels import LABEL_VALUE, read_annotations, read_key, read_labels
from config.pod_references import (
    NAME,
    Reference,
    Secret,
    read_environment,
    read_name,
    read_secrets,
)
from config.pod_shapes import POD_PATCH, read_affinity, read_pod_patch
from config.pod_volumes import Volume, read_volumes
from config.sections import list_of, list_of_sections, mapping_of_texts, section, setting
from config.slurm import SECTION
from config.strict_yaml import load_mapping

DEFAULT = Path(__file__).parent / "cluster.yaml"
WHOLE = ("node_selector",)
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
ID: dict[str, Any] = {"low": 1, "high": 2**31 - 1, "optional": True}


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
    """Resources, placement and surroundings of one kind of pod."""

    requests: Requests
    limits: Limits
    node_selector: Mapping[str, str] = setting(
        mapping_of_texts, form="a mapping of labels to values", help="labels of the pods' nodes"
    )
    tolerations: tuple[Toleration, ...] = setting(
        list_of_sections(Toleration),
        form="a list with key, operator, value, effect, toleration_seconds",
        help="taints of nodes that the pods tolerate",
    )
    spot: bool = parameter(
        False,
        help="whether the pods run on spot nodes: they tolerate spot_taints, and a retry goes to "
        "another node",
    )
    affinity: Mapping[str, Any] = setting(
        read_affinity,
        default={},
        form="Kubernetes' affinity, with its own names",
        help="further rules for the choice of a node",
    )
    priority_class: str | None = parameter(
        None, optional=True, help="priority class of the pods", **NAME
    )
    scheduler_name: str | None = parameter(
        None, optional=True, help="scheduler that places the pods; empty: the cluster's", **NAME
    )
    runtime_class: str | None = parameter(
        None, optional=True, help="container runtime's class, such as nvidia", **NAME
    )
    queue: str | None = parameter(
        None, optional=True, help="Kueue's local queue, in which the pods wait", **LABEL_VALUE
    )
    labels: Mapping[str, str] = setting(
        read_labels, default={}, form="a mapping of labels to values", help="labels of the pods"
    )
    annotations: Mapping[str, str] = setting(
        read_annotations,
        default={},
        form="a mapping of names to texts",
        help="annotations of the pods",
    )
    secrets: tuple[Secret, ...] = setting(
        read_secrets,
        default=[],
        form="a list of names, or of mappings with name and optional",
        help="secrets, each key of which becomes a variable of the pods",
    )
    environment: Mapping[str, Reference] = setting(
        read_environment,
        default={},
        form="variables with secret and key, config_map and key, or field; never a plain value",
        help="variables of the pods",
    )
    volumes: tuple[Volume, ...] = setting(
        read_volumes,
        default=[],
        form="a list with mount_path and one of claim, config_map, secret, empty_dir",
        help="further volumes, also with read_only, sub_path and optional",
    )
    pod_patch: Mapping[str, Any] = setting(
        read_pod_patch,
        default={},
        form=f"a mapping with {', '.join(sorted(POD_PATCH.fields))}",
        help="further fields of the pods, with Kubernetes' own names",
    )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """All settings of `cluster.yaml`. namespace: None means the namespace of whoever submits."""

    namespace: str | None = parameter(
        MISSING, optional=True, help="namespace of the workflows; empty: the caller's", **NAME
    )
    image_pull_secrets: tuple[str, ...] = setting(
        list_of(read_name),
        form="a list of names of secrets",
        help="secrets with which nodes pull the images",
    )
    run_as_user: int | None = parameter(
        MISSING, help="uid of the pods; empty: the platform's", **ID
    )
    run_as_group: int | None = parameter(
        MISSING, help="gid of the pods; empty: the platform's", **ID
    )
    fs_group: int | None = parameter(
        MISSING, help="group that owns mounted volumes; empty: volumes stay as they are", **ID
    )
    spot_taints: tuple[str, ...] = setting(
        list_of(read_key),
        form="a list of keys of taints",
        help="taints of spot nodes, with any value, which pools with spot tolerate",
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
    `cluster.yaml`; its section for Slurm is read by `load_slurm`. Raises `BadInput`.
    """
    document = load_mapping(DEFAULT)
    if path is not None:
        given = {name: value for name, value in load_mapping(path).items() if name != SECTION}
        document = _overlaid(document, given)
    try:
        cluster: Cluster = section(Cluster, document, "")
        _check_memory(cluster)
        return cluster
    except BadInput as error:
        raise BadInput(f"{path or DEFAULT}: {error}") from None


DECIDED_BY_CLUSTER = ("training_memory", "gpu_image", "cpu_image", "claim")
"""Those experiment parameters whose defaults the cluster's settings decide."""


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
    """Merge two documents, name by name. A list or a mapping of `WHOLE` replaces the one below it as
    a whole.
    """
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    merged = {
        name: value if name in WHOLE else _overlaid(below.get(name), value)
        for name, value in above.items()
    }
    return {**below, **merged}
