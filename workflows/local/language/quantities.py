"""Kubernetes quantities and Argo's durations as numbers."""

from __future__ import annotations

import re
from typing import Any

from workflows.local.errors import PodError, WorkflowError

QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?")
SUFFIXES = {
    None: 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}
SUFFIXES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}
DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d)")
SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def quantity(value: Any) -> float:
    """`500m` -> 0.5, `2Gi` -> 2147483648.0; raises `PodError`."""
    matched = QUANTITY.fullmatch(str(value))
    if matched is None:
        raise PodError(
            f"quantity {str(value)!r}: a number with an optional suffix such as m, k, Mi, Gi is expected"
        )
    return float(matched[1]) * SUFFIXES[matched[2]] * 10.0 ** int(matched[3] or 0)


def duration_s(value: Any) -> float:
    """`90`, `"10s"`, `"1h30m"`, `"1d"` in seconds; raises `WorkflowError`."""
    text = str(value)
    # A number without a unit is in seconds; Go's own durations would refuse it.
    if re.fullmatch(r"\d+", text):
        return float(text)
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise WorkflowError(
            f"unable to parse {text} as a duration: time: invalid duration {text!r}"
        )
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def integer(value: Any, what: str) -> int:
    """An integer that may be written as text (`limit`, `factor`, `activeDeadlineSeconds`); raises
    `WorkflowError`.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not re.fullmatch(r"[+-]?\d+", str(value)):
        raise WorkflowError(f"{what}: {value!r} is not an integer")
    return int(value)
