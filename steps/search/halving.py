"""Asynchronous successive halving (Li et al. 2020, arXiv:1810.05934), by Optuna's pruner.

Optuna's pruner knows rungs at the steps 1, r, r², … of a reduction r; a search has them at any shares of a
training. So the pruner is told the numbers of the rungs as such steps, in the order in which the trials
reached them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.trial import Trial


@dataclass(frozen=True)
class Reached:
    """A trial at a rung, numbered from 0, and its value there."""

    trial: int
    rung: int
    value: float


def goes_on(reached: Sequence[Reached], *, reduction: int, maximise: bool) -> list[bool]:
    """Whether each trial went on from the rung that it reached, in the order of the list. Each is judged by those
    before it and never again.
    """
    import optuna

    study = optuna.create_study(
        direction="maximize" if maximise else "minimize",
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=reduction),
    )
    trials: dict[int, Trial] = {}
    found = []
    for one in reached:
        trial = trials.get(one.trial) or study.ask()
        trials[one.trial] = trial
        trial.report(one.value, step=reduction**one.rung)
        found.append(not trial.should_prune())
    return found


def place(reached: Sequence[Reached], *, maximise: bool) -> tuple[int, int]:
    """The rank of the last trial of the list among those that had reached its rung, and their number."""
    last = reached[-1]
    values = [one.value for one in reached if one.rung == last.rung]
    better = [value for value in values if (value > last.value) is maximise and value != last.value]
    return len(better) + 1, len(values)
