"""What is refused of what actors send, before it touches anything: each check says what is wrong in
one line, or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agents.distributed.interfaces import Columns, Spec, Specs
from agents.distributed.observations import Observations
from agents.environments.masks import check_some_action
from config.errors import Diverged


def wrong_columns(columns: Columns, specs: Specs) -> str:
    """Columns [n, *spec.shape] that are not exactly those of `specs`, have not one n of at least 1
    in common, or hold numbers that are not finite.
    """
    if set(columns) != set(specs):
        return f"its columns are {sorted(columns)}, not {sorted(specs)}"
    count = len(next(iter(columns.values())))
    if not count:
        return "it has no rows"
    found = (wrong_array(name, columns[name], spec, count) for name, spec in specs.items())
    return next(filter(None, found), "")


def wrong_array(name: str, array: np.ndarray, spec: Spec, count: int) -> str:
    """One that is not [count, *spec.shape], or holds numbers that are not finite."""
    shape = (count, *spec.shape)
    if array.dtype != spec.dtype or array.shape != shape:
        return f"{name} is {array.dtype} {array.shape}, not {spec.dtype} {shape}"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return f"{name} has numbers that are not finite"
    return ""


def wrong_episodes(returns: Sequence[float], lengths: Sequence[int]) -> str:
    """Returns and lengths of episodes that cannot have been."""
    if len(returns) != len(lengths):
        return f"{len(returns)} returns have {len(lengths)} lengths"
    if not all(map(math.isfinite, returns)) or min(lengths, default=1) < 1:
        return "its episodes have returns that are not finite, or no steps"
    return ""


def wrong_observations(
    shown: Observations, specs: Specs, count: int, choices: Sequence[int]
) -> str:
    """Of a group of so many environments, with these columns (`shown_specs`); choices: of each
    component of their actions, where there are masks.
    """
    try:
        return (
            wrong_columns(shown.columns, specs)
            or _wrong_rows(shown, specs, count, choices)
            or wrong_episodes(shown.returns, shown.lengths)
        )
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        return f"it shows no environments: {error}"


def _wrong_rows(shown: Observations, specs: Specs, count: int, choices: Sequence[int]) -> str:
    columns = shown.columns
    found, truncated = len(columns["begins"]), columns["truncated"]
    if found != count:
        return f"group {shown.group} has {count} environments, not {found}"
    if (truncated & ~columns["begins"]).any():
        return "an episode was truncated, and none begins"
    if len(shown.returns) > count:
        return f"{len(shown.returns)} episodes ended in {count} environments"
    if "mask" in columns:
        try:
            check_some_action(columns["mask"], choices, "its step")
        except Diverged as error:
            return str(error)
    return wrong_array("final", shown.final, specs["observation"], int(truncated.sum()))
