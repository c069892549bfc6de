"""Reads average/summary.json and checks the fields that the page needs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from config.errors import shown

INTERVALS = ("t_interval", "iqm_interval")


def parsed(content: bytes) -> Mapping[str, Any]:
    """The document. Raises `ValueError`, which names a field of the wrong type."""
    document = json.loads(content)
    if not isinstance(document, dict):
        raise ValueError(f"it is no mapping but a {type(document).__name__}")
    used = document.get("used")
    scores = document.get("evaluation")
    if not isinstance(used, list) or not all(isinstance(run, int) for run in used):
        raise ValueError(f"used cannot be {shown(used)}")
    if not isinstance(scores, dict):
        raise ValueError(f"evaluation cannot be {shown(scores)}")
    count = scores.get("n")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"evaluation.n cannot be {shown(count)}")
    needed = {
        "mean": count >= 1,
        "min": False,
        "max": False,
        "sd": False,
        "t_interval": count >= 2,
        "iqm": False,
        "iqm_interval": scores.get("iqm") is not None,
    }
    for name, is_needed in needed.items():
        good = _is_interval if name in INTERVALS else _is_number
        if not good(scores.get(name)) and (is_needed or scores.get(name) is not None):
            raise ValueError(f"evaluation.{name} cannot be {shown(scores.get(name))}")
    return document


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300
        and math.isfinite(value)
    )


def _is_interval(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
