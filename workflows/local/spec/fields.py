"""The fields of a manifest that this engine supports. Every other field is refused by name; nothing
is ignored silently.

A table maps a field to the kind of its value, to another table, or to a list of one table.
`Accepted` marks fields that only mean something on a cluster: they change nothing here, and a
notice says so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.cluster import PODS_PER_GPU
from workflows.local.errors import Refused


@dataclass(frozen=True)
class Accepted:
    """A field without effect on one machine. group: its name in the notice. kind: of its value, where
    something of it is read nevertheless.
    """

    group: str
    kind: str = ""


TEXT = "text"
SCALAR = "text, number or boolean"
BOOLEAN = "true or false"
INTEGER = "integer of at least 0"
POSITIVE = "integer of at least 1"
TEXTS = "list of text"
ITEMS = "list"
TEXT_MAP = "map"
IMAGE = Accepted("images")
PLACEMENT = Accepted("tolerations, node selectors, affinity")
IDENTITY = Accepted("service account")
CLEANUP = Accepted("clean-up (podGC, ttlStrategy)")
SECURITY = Accepted("security contexts")
LABELS = Accepted(f"labels, annotations other than {PODS_PER_GPU}")
METADATA = {"labels": LABELS, "annotations": Accepted(LABELS.group, TEXT_MAP)}
LIMITS = Accepted("volume sizes and media")
SCHEDULING = Accepted("priorities and schedulers")
NETWORK = Accepted("network and name resolution")
RECORDS = Accepted("archived logs and metrics")

STANDARD_OUTPUT = re.compile(r"\{\{[^}]*\boutputs\.result\b")

PARAMETER = {"name": TEXT, "value": SCALAR, "default": SCALAR, "description": TEXT, "enum": ITEMS}
ARGUMENTS = {"parameters": [PARAMETER]}
OUTPUT = {
    "name": TEXT,
    "description": TEXT,
    "globalName": TEXT,
    "valueFrom": {"path": TEXT, "parameter": TEXT, "default": SCALAR},
}
VOLUMES = [{
    "name": TEXT,
    "emptyDir": {"sizeLimit": LIMITS, "medium": LIMITS},
    "persistentVolumeClaim": {"claimName": TEXT, "readOnly": Accepted("read-only mounts")},
}]  # fmt: skip
RESOURCES = {"requests": TEXT_MAP, "limits": TEXT_MAP}
CONTAINER = {
    "name": TEXT, "image": IMAGE, "imagePullPolicy": IMAGE, "command": TEXTS, "args": TEXTS, "workingDir": TEXT,
    "env": [{"name": TEXT, "value": SCALAR, "valueFrom": {
        "fieldRef": {"fieldPath": TEXT, "apiVersion": TEXT},
        "secretKeyRef": {"name": TEXT, "key": TEXT, "optional": BOOLEAN},
    }}],
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "subPath": TEXT, "readOnly": Accepted("read-only mounts")}],
    "resources": RESOURCES, "securityContext": SECURITY, "ports": NETWORK,
}  # fmt: skip
RETRY = {
    "limit": SCALAR, "retryPolicy": TEXT, "expression": TEXT,
    "backoff": {"duration": SCALAR, "factor": SCALAR, "cap": SCALAR, "maxDuration": SCALAR},
}  # fmt: skip
TASK = {
    "name": TEXT, "template": TEXT, "arguments": ARGUMENTS, "depends": TEXT, "dependencies": TEXTS, "when": TEXT,
    "withItems": ITEMS, "withParam": TEXT, "withSequence": {"count": SCALAR, "start": SCALAR, "end": SCALAR, "format": TEXT},
    "continueOn": {"failed": BOOLEAN, "error": BOOLEAN},
}  # fmt: skip
ON_CLUSTER = {
    "serviceAccountName": IDENTITY, "automountServiceAccountToken": IDENTITY, "executor": IDENTITY, "tolerations": PLACEMENT,
    "nodeSelector": PLACEMENT, "affinity": PLACEMENT, "securityContext": SECURITY, "schedulerName": SCHEDULING,
    "hostAliases": NETWORK,
}  # fmt: skip
"""Fields of workflows, templates and patches that say only where and as whom a pod runs."""
TEMPLATE = {
    "name": TEXT, "inputs": {"parameters": [PARAMETER]}, "outputs": {"parameters": [OUTPUT]}, "container": CONTAINER,
    "dag": {"tasks": [TASK]}, "retryStrategy": RETRY, "activeDeadlineSeconds": SCALAR, "timeout": TEXT, "parallelism": POSITIVE,
    "podSpecPatch": TEXT, "volumes": VOLUMES, "metadata": METADATA, "archiveLocation": RECORDS, "metrics": RECORDS,
    "priorityClassName": SCHEDULING, **ON_CLUSTER,
}  # fmt: skip
SPEC = {
    "entrypoint": TEXT, "onExit": TEXT, "arguments": ARGUMENTS, "templates": [TEMPLATE], "volumes": VOLUMES, "parallelism": POSITIVE,
    "activeDeadlineSeconds": INTEGER, "podSpecPatch": TEXT, "podGC": CLEANUP, "ttlStrategy": CLEANUP, "podMetadata": LABELS,
    "workflowMetadata": LABELS, "imagePullSecrets": IMAGE, "archiveLogs": RECORDS, "artifactRepositoryRef": RECORDS,
    "metrics": RECORDS, "podPriorityClassName": SCHEDULING, "priority": SCHEDULING, "hostNetwork": NETWORK, "dnsPolicy": NETWORK,
    "dnsConfig": NETWORK, "podDisruptionBudget": SCHEDULING, "volumeClaimGC": CLEANUP, "artifactGC": CLEANUP, **ON_CLUSTER,
}  # fmt: skip
WORKFLOW = {
    "apiVersion": TEXT, "kind": TEXT,
    "metadata": {"name": TEXT, "generateName": TEXT, "namespace": TEXT, "labels": TEXT_MAP, "annotations": TEXT_MAP},
    "spec": SPEC,
}  # fmt: skip
POD_PATCH = {
    "containers": [{"name": TEXT, "resources": RESOURCES, "securityContext": SECURITY}],
    "terminationGracePeriodSeconds": INTEGER, "priorityClassName": SCHEDULING, "runtimeClassName": SCHEDULING,
    "hostNetwork": NETWORK, "dnsPolicy": NETWORK, "dnsConfig": NETWORK, **ON_CLUSTER,
}  # fmt: skip


def check_fields(document: Any, table: Any = None, path: str = "") -> list[str]:
    """The groups of fields that have no effect here, sorted. Raises `Refused` for the first field
    that is not supported.
    """
    accepted: set[str] = set()
    _check(document, table or WORKFLOW, path, accepted)
    return sorted(accepted)


def _check(value: Any, table: Any, path: str, accepted: set[str]) -> None:
    if value is None:
        return  # YAML's empty value: Go reads it as a field that is not set
    if isinstance(table, Accepted):
        if table.kind:
            _check_leaf(value, table.kind, path)
        accepted.add(table.group)
    elif isinstance(table, str):
        _check_leaf(value, table, path)
    elif isinstance(table, list):
        _check_list(value, table[0], path, accepted)
    else:
        _check_mapping(value, table, path, accepted)


def _check_list(value: Any, table: Any, path: str, accepted: set[str]) -> None:
    if not isinstance(value, list):
        raise Refused(f"{path}: a list is expected, this is {value!r}")
    for index, item in enumerate(value):
        if item is None:
            raise Refused(f"{path}[{index}]: the entry is empty")
        name = index
        if isinstance(item, Mapping):
            name = item.get("name", index)
        _check(item, table, f"{path}[{name}]", accepted)


def _check_mapping(value: Any, table: Mapping[str, Any], path: str, accepted: set[str]) -> None:
    if not isinstance(value, Mapping):
        raise Refused(f"{path or 'the manifest'}: a mapping is expected, this is {value!r}")
    for field, inner in value.items():
        where = f"{path}.{field}".removeprefix(".")
        if field not in table:
            nearest = difflib.get_close_matches(str(field), table, n=1, cutoff=0.8)
            if nearest:
                hint = f"; did you mean {nearest[0]!r}?"
            else:
                hint = f"; supported there: {', '.join(sorted(table))}"
            raise Refused(f"{where}: the local engine does not support this field{hint}")
        _check(inner, table[field], where, accepted)


def _check_leaf(value: Any, kind: str, path: str) -> None:
    # Python's booleans are integers, so they are excluded by name.
    fits = {
        TEXT: isinstance(value, str),
        SCALAR: isinstance(value, str | int | float | bool),
        INTEGER: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        POSITIVE: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        BOOLEAN: isinstance(value, bool),
        TEXTS: isinstance(value, list) and all(isinstance(item, str) for item in value),
        ITEMS: isinstance(value, list),
        TEXT_MAP: isinstance(value, Mapping)
        and all(isinstance(item, str | int | float) for item in value.values()),
    }
    if not fits[kind]:
        raise Refused(f"{path}: {kind} is expected, this is {value!r}")
    if STANDARD_OUTPUT.search(str(value)):
        raise Refused(
            f"{path}: outputs.result, what a pod prints, is not supported by the local engine; use an output parameter"
        )
