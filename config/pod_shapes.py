"""Fields of Kubernetes that a cluster's settings pass on as they are: `affinity`, and the fields of a
pod that `pod_patch` may set. Their names and types are checked.

Source: Kubernetes API reference, v1 `Affinity` and `PodSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from config.errors import BadInput, shown, unknown
from config.parameters import refuse_hostile
from config.sections import below, mapping_of_texts


@dataclass(frozen=True)
class Leaf:
    """A plain value. allowed: in words; fits: whether a value is one."""

    allowed: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Shape:
    """A mapping with these fields. needed: those that must be there."""

    fields: Mapping[str, Any]
    needed: tuple[str, ...] = ()


def one_of(*choices: str) -> Leaf:
    """A text that is one of these."""
    return Leaf(" or ".join(choices), choices.__contains__)


def integer(low: int, high: int) -> Leaf:
    """An integer within bounds."""
    return Leaf(
        f"an integer from {low} to {high}",
        lambda value: type(value) is int and low <= value <= high,
    )


TEXT = Leaf("text", lambda value: isinstance(value, str) and value != "")
ANY_TEXT = Leaf("text", lambda value: isinstance(value, str))
BOOLEAN = Leaf("true or false", lambda value: isinstance(value, bool))
WEIGHT = integer(1, 100)
TEXTS = [ANY_TEXT]
LABELS = "labels"
"""A mapping of text to text."""

NODE_OPERATOR = one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
NODE_EXPRESSION = Shape(
    {"key": TEXT, "operator": NODE_OPERATOR, "values": TEXTS}, ("key", "operator")
)
NODE_TERM = Shape({"matchExpressions": [NODE_EXPRESSION], "matchFields": [NODE_EXPRESSION]})
LABEL_EXPRESSION = Shape(
    {
        "key": TEXT,
        "operator": one_of("In", "NotIn", "Exists", "DoesNotExist"),
        "values": TEXTS,
    },
    ("key", "operator"),
)
LABEL_SELECTOR = Shape({"matchLabels": LABELS, "matchExpressions": [LABEL_EXPRESSION]})
POD_TERM = Shape(
    {
        "topologyKey": TEXT,
        "labelSelector": LABEL_SELECTOR,
        "namespaceSelector": LABEL_SELECTOR,
        "namespaces": TEXTS,
        "matchLabelKeys": TEXTS,
        "mismatchLabelKeys": TEXTS,
    },
    ("topologyKey",),
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TO_PODS = Shape(
    {
        REQUIRED: [POD_TERM],
        PREFERRED: [
            Shape({"weight": WEIGHT, "podAffinityTerm": POD_TERM}, ("weight", "podAffinityTerm"))
        ],
    }
)
AFFINITY = Shape(
    {
        "nodeAffinity": Shape(
            {
                REQUIRED: Shape({"nodeSelectorTerms": [NODE_TERM]}, ("nodeSelectorTerms",)),
                PREFERRED: [
                    Shape({"weight": WEIGHT, "preference": NODE_TERM}, ("weight", "preference"))
                ],
            }
        ),
        "podAffinity": TO_PODS,
        "podAntiAffinity": TO_PODS,
    }
)
HONOURED = one_of("Honor", "Ignore")
POD_PATCH = Shape(
    {
        "dnsConfig": Shape(
            {
                "nameservers": TEXTS,
                "searches": TEXTS,
                "options": [Shape({"name": TEXT, "value": ANY_TEXT}, ("name",))],
            }
        ),
        "dnsPolicy": one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        "enableServiceLinks": BOOLEAN,
        "hostAliases": [Shape({"ip": TEXT, "hostnames": TEXTS}, ("ip",))],
        "hostUsers": BOOLEAN,
        "preemptionPolicy": one_of("Never", "PreemptLowerPriority"),
        "schedulingGates": [Shape({"name": TEXT}, ("name",))],
        "topologySpreadConstraints": [
            Shape(
                {
                    "maxSkew": integer(1, 10_000),
                    "minDomains": integer(1, 10_000),
                    "topologyKey": TEXT,
                    "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway"),
                    "labelSelector": LABEL_SELECTOR,
                    "matchLabelKeys": TEXTS,
                    "nodeAffinityPolicy": HONOURED,
                    "nodeTaintsPolicy": HONOURED,
                },
                ("maxSkew", "topologyKey", "whenUnsatisfiable"),
            )
        ],
    }
)
"""The fields of a pod that a patch may set. None of them changes what a container runs, where it
writes, or how it ends.
"""
SETTINGS = {
    "affinity": "affinity",
    "imagePullSecrets": "image_pull_secrets",
    "nodeSelector": "node_selector",
    "priorityClassName": "priority_class",
    "runtimeClassName": "runtime_class",
    "schedulerName": "scheduler_name",
    "securityContext": "run_as_user, run_as_group and fs_group",
    "serviceAccountName": "service_account",
    "terminationGracePeriodSeconds": "grace_period_s",
    "tolerations": "tolerations",
    "volumes": "volumes",
}
"""Fields of a pod that have a setting of their own."""


def read_affinity(value: Any, path: str) -> Mapping[str, Any]:
    """Read an affinity as Kubernetes writes it. Raises `BadInput`."""
    check(value, AFFINITY, path)
    read: Mapping[str, Any] = value
    return read


def read_pod_patch(value: Any, path: str) -> Mapping[str, Any]:
    """Read fields of a pod as Kubernetes writes them. Raises `BadInput`."""
    for name in value if isinstance(value, dict) else ():
        if name not in POD_PATCH.fields:
            known = ", ".join(sorted(POD_PATCH.fields))
            instead = f", or the setting {SETTINGS[name]}" if name in SETTINGS else ""
            raise BadInput(f"{path!r} cannot have {shown(name)}; allowed: {known}{instead}")
    check(value, POD_PATCH, path)
    read: Mapping[str, Any] = value
    return read


def check(value: Any, shape: Any, path: str) -> None:
    """Raise `BadInput` unless a value has this shape."""
    if shape == LABELS:
        mapping_of_texts(value, path)
    elif isinstance(shape, Leaf):
        _check_leaf(value, shape, path)
    elif isinstance(shape, list):
        if not isinstance(value, list) or not value:
            raise BadInput(f"{path!r} cannot be {shown(value)}; allowed: a list")
        for index, one in enumerate(value):
            check(one, shape[0], f"{path}[{index}]")
    else:
        _check_mapping(value, shape, path)


def _check_leaf(value: Any, leaf: Leaf, path: str) -> None:
    if isinstance(value, str):
        refuse_hostile(path, value)
    if not leaf.fits(value):
        raise BadInput(f"{path!r} cannot be {shown(value)}; allowed: {leaf.allowed}")


def _check_mapping(value: Any, shape: Shape, path: str) -> None:
    if not isinstance(value, dict):
        raise BadInput(
            f"{path!r} cannot be {shown(value)}; allowed: a mapping with {', '.join(shape.fields)}"
        )
    for name, inner in value.items():
        if name not in shape.fields:
            known = [below(path, one) for one in shape.fields]
            raise unknown("field", below(path, str(name)), known)
        check(inner, shape.fields[name], below(path, name))
    missing = [name for name in shape.needed if name not in value]
    if missing:
        raise BadInput(f"{path!r} lacks {', '.join(missing)}")
