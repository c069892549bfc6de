"""The fields of a pod that its pool decides: where it is placed, what it sees, and as whom it runs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from hera.workflows import ConfigMapEnv, FieldEnv, RetryStrategy, SecretEnv, SecretEnvFrom
from hera.workflows import models as m

from config.cluster import Cluster, Pool, Toleration
from config.pod_labels import QUEUE_LABEL
from config.pod_references import Reference
from config.pod_volumes import Volume

OWN = "own"
"""How the names of a pool's further volumes begin."""


def placement(cluster: Cluster, pool: Pool) -> dict[str, Any]:
    """The fields of a template by which the scheduler chooses a node."""
    labels = {**pool.labels, **({QUEUE_LABEL: pool.queue} if pool.queue else {})}
    affinity = m.Affinity.model_validate(pool.affinity) if pool.affinity else None
    return {
        "labels": labels or None,
        "node_selector": dict(pool.node_selector) or None,
        "tolerations": _tolerations(cluster, pool) or None,
        "affinity": affinity,
        "priority_class_name": pool.priority_class,
        "scheduler_name": pool.scheduler_name,
    }


def _tolerations(cluster: Cluster, pool: Pool) -> list[m.Toleration]:
    of_spot = [Toleration(key=key, operator="Exists") for key in cluster.spot_taints]
    tolerated = [*pool.tolerations, *(of_spot if pool.spot else ())]
    return [m.Toleration(**dataclasses.asdict(toleration)) for toleration in tolerated]


def elsewhere(pool: Pool, retries: RetryStrategy) -> RetryStrategy:
    """The retry strategy; for a pool of spot nodes, a retry goes to another node than the attempts
    before it.
    """
    if not pool.spot:
        return retries
    copied = copy.copy(retries)
    copied.affinity = m.RetryAffinity(node_anti_affinity=m.RetryNodeAntiAffinity())
    return copied


def patched(pool: Pool, resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """The template's `podSpecPatch`: what it adds to its container's resources, and the fields that
    Argo has no place for.
    """
    container = {"containers": [{"name": "main", "resources": resources}]} if resources else {}
    runtime = {"runtimeClassName": pool.runtime_class} if pool.runtime_class else {}
    return {**container, **runtime, **pool.pod_patch}


def variables(pool: Pool) -> list[SecretEnv | ConfigMapEnv | FieldEnv]:
    """The variables of a pool's pods, by reference."""
    return [_variable(name, source) for name, source in pool.environment.items()]


def _variable(name: str, source: Reference) -> SecretEnv | ConfigMapEnv | FieldEnv:
    optional = source.optional or None
    key = source.key or ""
    if source.secret:
        return SecretEnv(name=name, secret_name=source.secret, secret_key=key, optional=optional)
    if source.config_map:
        return ConfigMapEnv(
            name=name, config_map_name=source.config_map, config_map_key=key, optional=optional
        )
    return FieldEnv(name=name, field_path=source.field or "")


def secrets(pool: Pool) -> list[SecretEnvFrom]:
    """The secrets all of whose keys are variables of a pool's pods."""
    return [SecretEnvFrom(name=one.name, optional=one.optional or None) for one in pool.secrets]


def mounts(pool: Pool) -> list[m.VolumeMount]:
    """The mounts of a pool's further volumes."""
    return [
        m.VolumeMount(
            name=f"{OWN}-{index}",
            mount_path=one.mount_path,
            read_only=one.read_only or None,
            sub_path=one.sub_path,
        )
        for index, one in enumerate(pool.volumes)
    ]


def volumes(pool: Pool) -> list[m.Volume]:
    """A pool's further volumes."""
    return [_volume(f"{OWN}-{index}", one) for index, one in enumerate(pool.volumes)]


def _volume(name: str, one: Volume) -> m.Volume:
    optional = one.optional or None
    if one.claim:
        claim = m.PersistentVolumeClaimVolumeSource(
            claim_name=one.claim, read_only=one.read_only or None
        )
        return m.Volume(name=name, persistent_volume_claim=claim)
    if one.config_map:
        return m.Volume(
            name=name, config_map=m.ConfigMapVolumeSource(name=one.config_map, optional=optional)
        )
    if one.secret:
        return m.Volume(
            name=name, secret=m.SecretVolumeSource(secret_name=one.secret, optional=optional)
        )
    if one.empty_dir is None:
        raise ValueError("a volume has a source")
    size = m.Quantity(root=one.empty_dir.size)
    return m.Volume(
        name=name,
        empty_dir=m.EmptyDirVolumeSource(medium=one.empty_dir.medium, size_limit=size),
    )


def identity(cluster: Cluster) -> m.PodSecurityContext:
    """As whom all pods run."""
    large_trees = "OnRootMismatch" if cluster.fs_group is not None else None
    return m.PodSecurityContext(
        run_as_non_root=True,
        run_as_user=cluster.run_as_user,
        run_as_group=cluster.run_as_group,
        fs_group=cluster.fs_group,
        fs_group_change_policy=large_trees,  # a large NFS tree would otherwise slow every pod's start
        seccomp_profile=m.SeccompProfile(type="RuntimeDefault"),
    )


def pull_secrets(cluster: Cluster) -> list[m.LocalObjectReference] | None:
    """The secrets with which nodes pull the images."""
    return [m.LocalObjectReference(name=name) for name in cluster.image_pull_secrets] or None
