"""What of an experiment's parameters decides its trainings, as it was recorded and as it is now.

An identity is a mapping: section -> parameter -> value. Earlier versions recorded more in it than
decides a training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

LENGTH = "epochs"
"""In the section `experiment`: part of the identity only where a schedule depends on it."""
ONCE_RECORDED: Mapping[str, tuple[str, ...]] = {
    "experiment": (
        LENGTH,
        "checkpoint_interval",
        "evaluation_episodes",
        "evaluation_policy",
        "evaluate_above",
        "video_episodes",
    ),
    "environment": ("evaluation_steps",),
    "hyperparameters": ("evaluation_simulations",),
}
"""Section -> parameters that an identity may hold although they do not decide the training."""


def comparable(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded identity as one of today. present: the identity that it is compared with; what is
    in both is compared.
    """
    return {
        section: _comparable(section, values, present.get(section))
        for section, values in recorded.items()
    }


def _comparable(section: str, recorded: Any, present: Any) -> Any:
    if not isinstance(recorded, Mapping) or not isinstance(present, Mapping):
        return recorded
    left_out = [name for name in ONCE_RECORDED.get(section, ()) if name not in present]
    return {name: value for name, value in recorded.items() if name not in left_out}


def without_length(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity apart from the length of the training."""
    experiment = {name: one for name, one in identity["experiment"].items() if name != LENGTH}
    return {**identity, "experiment": experiment}


def hash_of(identity: Mapping[str, Any]) -> str:
    """SHA-256 of an identity as canonical JSON, in hexadecimal. Raises `ValueError` for numbers that
    are not finite.
    """
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
