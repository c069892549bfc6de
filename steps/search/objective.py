"""What a trial is worth, over its runs: at a rung by its trainings, at its end by what is optimised."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from config.measures import Measure
from config.resolved import Resolved
from config.study.search import AREA, Objective
from steps.average import read_run
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.usable import training_columns
from steps.statistics.curves import area_under_curve, training_curve_of
from steps.statistics.scores import Floats, iqm, mean

EPISODES = 100
"""A training is worth the mean of its last episodes, as `evaluate_above` sees it."""
OVER_RUNS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "iqm": iqm,
    "mean": mean,
    "median": statistics.median,
}


def value_at(
    experiment: ExperimentDirectory,
    resolved: Resolved,
    runs: Sequence[int],
    objective: Objective,
    epoch: int,
) -> float | None:
    """The value of these runs after an epoch: the mean height of their training curves up to there, or the mean
    return of their last episodes. None while no episode has ended in one of them.
    """
    found = [_in_training(experiment.run(run), resolved.measure, objective, epoch) for run in runs]
    values = [value for value in found if value is not None]
    if not values or len(values) < len(found):
        return None
    return over(values, objective)


def final_value(
    experiment: ExperimentDirectory, resolved: Resolved, objective: Objective
) -> float | None:
    """The value of a trial that was trained and evaluated to its end; None while fewer than `min_runs` of its
    runs are.
    """
    runs = [read_run(experiment.run(index), resolved) for index in range(resolved.experiment.runs)]
    ended = [run for run in runs if run.is_evaluated]
    if len(ended) < resolved.min_runs:
        return None
    if objective.measure == AREA:
        indices = [run.index for run in ended]
        return value_at(experiment, resolved, indices, objective, resolved.epochs)
    return over([run.score for run in ended], objective)


def over(values: Sequence[float], objective: Objective) -> float:
    """One value of those of the runs [N], N ≥ 1."""
    return float(OVER_RUNS[objective.over_runs](values))


def _in_training(
    run: RunDirectory, measure: Measure, objective: Objective, epoch: int
) -> float | None:
    wanted = {"epoch", "step", "episodes", measure.training_column}
    columns = training_columns(run, finished=True, wanted=wanted.__contains__)
    if not {"epoch", "step", measure.training_column} <= columns.keys():
        return None
    until = {name: column[columns["epoch"] <= epoch] for name, column in columns.items()}
    if objective.measure == AREA:
        curve = training_curve_of(until, measure)
        if len(curve) == 0:
            return None
        return area_under_curve(curve, int(curve.steps[0]), int(curve.steps[-1]))
    return last_episodes(until[measure.training_column], until.get("episodes"))


def last_episodes(values: Floats, episodes: Floats | None) -> float | None:
    """The mean of the last `EPISODES` episodes. values: [T], each the mean of the episodes [T] of a row, NaN
    in one without any. None without an episode.
    """
    counts = np.ones(len(values)) if episodes is None else np.nan_to_num(episodes)
    kept = np.isfinite(values) & (counts > 0)
    heights, counts = values[kept][::-1], counts[kept][::-1]
    if len(heights) == 0:
        return None
    before = np.concatenate(([0.0], counts.cumsum()[:-1]))
    weights = np.clip(EPISODES - before, 0, counts)
    return float((heights * weights).sum() / weights.sum())
