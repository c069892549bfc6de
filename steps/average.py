"""The averages over all usable runs: `python -m steps.average --outdir results/cartpole`.

Writes average/train.csv (one row per step of a common grid), average/evaluation.csv (one row per
planned run, excluded ones with their reason) and average/summary.json; after self-play also
average/arena.csv, one row per player of the arena, and with `evaluations` average/evaluation-curve.csv,
one row per snapshot. Runs that are unfinished or failed enter no average,
and are named everywhere. The rules and formulas are those of
`steps/statistics`; the same files give the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from config import pipeline
from config.ending import end
from config.ladder import AGENT, ANCHOR, VALUE_KEPT
from config.measures import ELO, Measure
from config.resolved import Resolved
from config.seeds import integer_seed
from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory.cost import Cost, cost_of, total
from steps.directory.experiment import evaluation_inputs
from steps.directory.files import write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.status import read_status
from steps.directory.tables import Cell, format_table
from steps.directory.usable import (
    Episode,
    Usable,
    evaluation_episodes,
    fingerprint,
    resource_columns,
    training_columns,
    training_score,
    usability,
)
from steps.evaluations.curve import read_curve
from steps.statistics.curves import Curve, area_under_curve, common_grid, hold, training_curve_of
from steps.statistics.intervals import CURVE_RESAMPLES, LEVEL, TABLE_RESAMPLES
from steps.statistics.rule import BOOTSTRAP_FROM, WIDE_ENOUGH_FROM, Aggregate, aggregate
from steps.statistics.scores import mean, standard_deviation

if TYPE_CHECKING:
    from steps.arena.averaged_arenas import Standing

SAME_SCORE = (
    "every run has the same score, as at a game's limit: this says nothing about further runs"
)
FILES = ("train.csv", "evaluation.csv", "summary.json")
ARENA = "arena.csv"
CURVE = "evaluation-curve.csv"
TRAIN = (
    "step",
    "frame",
    "n",
    "mean",
    "sd",
    "low",
    "high",
    "iqm",
    "iqm_low",
    "iqm_high",
    "min",
    "max",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step("average", average, inputs=inputs, complete=_are_written, argv=argv)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """Everything that decides which runs are used, and their numbers."""
    context.wait_for_runs()
    runs = [context.directory.run(index) for index in range(context.resolved.experiment.runs)]
    evaluation = context.resolved.measure.table
    tables = [path for run in runs for path in (run.train_csv, run.root / evaluation)]
    if context.resolved.descriptor.has_workers:
        tables += [run.arena_csv for run in runs]
    if context.resolved.experiment.evaluations:
        tables += [run.evaluation_curve_csv for run in runs]
    states = [
        run.status / f"{task}.json" for run in runs for task in (pipeline.TRAIN, pipeline.EVALUATE)
    ]
    return {
        **evaluation_inputs(context.record),
        "runs": [context.resolved.experiment.runs, context.resolved.min_runs],
        "versions": context.record.versions,
        "files": fingerprint(context.directory.root, [*tables, *states]),
    }


def average(context: StepContext) -> dict[str, Any]:
    """Average the usable runs: training curves on a common grid, evaluations run by run."""
    resolved = context.resolved
    runs = [
        read_run(context.directory.run(index), resolved)
        for index in range(resolved.experiment.runs)
    ]
    training = average_training(runs, resolved)
    arena = _standings(runs, context)
    evaluation = [
        evaluation_row(run, training, resolved) | _rating(run, arena, context) for run in runs
    ]
    content = {
        "train.csv": format_table(TRAIN, training_rows(training, resolved)),
        "evaluation.csv": format_table(list(evaluation[0]), evaluation),
        "summary.json": json.dumps(
            summary(runs, training, context) | _of_arena(arena, runs, context),
            sort_keys=True,
            indent=1,
            allow_nan=False,
        )
        + "\n",
    }
    if resolved.descriptor.has_workers:
        from steps.arena.averaged_arenas import COLUMNS, standing_rows

        rows = standing_rows(arena, bootstrap_seed(resolved))
        write_atomically(context.directory.average / ARENA, format_table(COLUMNS, rows))
    if resolved.experiment.evaluations:
        curves = [context.directory.run(run.index) for run in runs if run.is_evaluated]
        curve_rows = averaged_curve(curves, resolved)
        write_atomically(
            context.directory.average / CURVE, format_table(("epoch", *TRAIN), curve_rows)
        )
    for name in FILES:  # summary.json last: the page compares its runs with those that are usable
        write_atomically(context.directory.average / name, content[name])
    used = [run.index for run in runs if run.usable]
    print(f"n = {len(used)} of {len(runs)} runs")
    for run in runs:
        if run.usable.reason:
            print(f"run {run.index}: {run.usable.state}: {run.usable.reason}")
    return {"used": used, "planned": len(runs)}


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What one planned run left behind. Its curve may be empty, and its evaluation may have no
    episode.
    """

    index: int
    usable: Usable
    curve: Curve
    episodes: tuple[Episode, ...]
    measure: Measure
    training_score: float | None
    step: int

    @property
    def is_evaluated(self) -> bool:
        """Whether its score enters the evaluation. A skipped run has none."""
        return self.usable.state == "complete"

    @property
    def score(self) -> float:
        """The score of the final policy, computed by the measure from its episodes."""
        return self.measure.of_run([one.value for one in self.episodes])


def read_run(run: RunDirectory, resolved: Resolved) -> RunResult:
    """Read one run's tables and status files. A run that never started has none."""
    usable = usability(run, resolved)
    measure = resolved.measure
    drawn = {"step", measure.training_column}
    columns = training_columns(run, finished=bool(usable), wanted=drawn.__contains__)
    status = read_status(run.status / f"{pipeline.TRAIN}.json")
    steps = columns.get("step", np.empty(0))
    episodes: tuple[Episode, ...] = ()
    if usable.state == "complete":
        episodes = tuple(evaluation_episodes(run, measure))
    return RunResult(
        index=run.index,
        usable=usable,
        curve=training_curve_of(columns, measure),
        episodes=episodes,
        measure=measure,
        training_score=training_score(status, measure),
        step=int(steps[-1]) if len(steps) else 0,
    )


@dataclass(frozen=True, kw_only=True)
class Training:
    """The averaged training. grid: [G], empty if the curves have no step in common. areas: run ->
    mean height of its curve over the grid's range.
    """

    curves: Mapping[int, Curve]
    grid: NDArray[np.int64]
    averaged: Aggregate | None
    areas: Mapping[int, float]


def average_training(runs: Sequence[RunResult], resolved: Resolved) -> Training:
    """Average the curves of all usable runs in which an episode ended, at every step of their
    common grid.
    """
    curves = {run.index: run.curve for run in runs if run.usable and len(run.curve)}
    grid = common_grid(list(curves.values()))
    if len(grid) == 0:
        return Training(curves=curves, grid=grid, averaged=None, areas={})
    values = np.array([hold(one, grid) for one in curves.values()])
    averaged = aggregate(values, seed=bootstrap_seed(resolved), resamples=CURVE_RESAMPLES)
    areas = {
        index: area_under_curve(one, int(grid[0]), int(grid[-1])) for index, one in curves.items()
    }
    return Training(curves=curves, grid=grid, averaged=averaged, areas=areas)


def bootstrap_seed(resolved: Resolved) -> int:
    """The seed of the resampling. It is fixed by the experiment and recorded in summary.json."""
    return integer_seed(resolved.experiment.seed, 0, "bootstrap")


def training_rows(training: Training, resolved: Resolved) -> Iterable[dict[str, Cell]]:
    """The rows of average/train.csv."""
    if training.averaged is not None:
        steps = training.grid.tolist()
        yield from averaged_rows(steps, training.averaged, resolved.game.frames_per_step)


def averaged_rows(
    steps: Sequence[int], averaged: Aggregate, frames_per_step: int
) -> Iterator[dict[str, Cell]]:
    """The row of each step. Cells stay empty where the number of runs allows no statistic."""
    one = averaged
    named = (
        one.mean,
        one.sd,
        one.low,
        one.high,
        one.iqm,
        one.iqm_low,
        one.iqm_high,
        one.minimum,
        one.maximum,
    )
    for at, step in enumerate(steps):
        values = [None if column is None else float(column[at]) for column in named]
        yield dict(zip(TRAIN, [step, step * frames_per_step, one.n, *values], strict=True))


def averaged_curve(runs: Sequence[RunDirectory], resolved: Resolved) -> list[dict[str, Cell]]:
    """The rows of average/evaluation-curve.csv: the runs' means after each epoch of which all of
    them have a snapshot. step: that of the snapshots, of several the mean.
    """
    curves = [curve for run in runs if (curve := read_curve(run, resolved.measure))]
    if not curves:
        return []
    points = [{one.epoch: one for one in curve} for curve in curves]
    epochs = sorted(set.intersection(*(set(one) for one in points)))
    if not epochs:
        return []
    values = np.array([[one[epoch].mean for epoch in epochs] for one in points], np.float64)
    averaged = aggregate(values, seed=bootstrap_seed(resolved), resamples=CURVE_RESAMPLES)
    steps = [round(mean([one[epoch].step for one in points])) for epoch in epochs]
    rows = averaged_rows(steps, averaged, resolved.game.frames_per_step)
    return [{"epoch": epoch, **row} for epoch, row in zip(epochs, rows, strict=True)]


def evaluation_row(run: RunResult, training: Training, resolved: Resolved) -> dict[str, Cell]:
    """The row of one planned run in average/evaluation.csv. An excluded run keeps its row, with the
    reason.
    """
    values = [one.value for one in run.episodes]
    column = run.measure.column
    return {
        "run": run.index,
        "seed": resolved.experiment.seed,
        "status": run.usable.state,
        "reason": run.usable.reason,
        "episodes": len(values),
        f"{column}_mean": run.score if values else None,
        f"{column}_sd": standard_deviation(values) if len(values) > 1 else None,
        f"{column}_min": min(values, default=None),
        f"{column}_max": max(values, default=None),
        "length_mean": mean([one.length for one in run.episodes]) if values else None,
        f"train_{column}_last100": run.training_score,
        "auc": training.areas.get(run.index),
        "step": run.step,
        "frame": run.step * resolved.game.frames_per_step,
    }


def summary(runs: Sequence[RunResult], training: Training, context: StepContext) -> dict[str, Any]:
    """The content of average/summary.json."""
    resolved = context.resolved
    experiment = context.resolved.experiment
    scores = [run.score for run in runs if run.is_evaluated]
    skipped = [run for run in runs if run.usable.state == "skipped"]
    if skipped:
        sample = f"runs above the threshold ({len(scores)} of {len(runs)})"
    else:
        sample = f"usable runs ({len(scores)} of {len(runs)})"
    seed = bootstrap_seed(resolved)
    return {
        "algorithm": resolved.algorithm,
        "game": resolved.game.id,
        "planned": len(runs),
        "min_runs": resolved.min_runs,
        "used": [run.index for run in runs if run.usable],
        "skipped": [{"run": run.index, "reason": run.usable.reason} for run in skipped],
        "excluded": [
            {"run": run.index, "state": run.usable.state, "reason": run.usable.reason}
            for run in runs
            if not run.usable
        ],
        "evaluation": {
            "score": f"mean {resolved.measure.name} over the episodes of a run's final policy",
            "sample": sample,
            "episodes_per_run": experiment.evaluation_episodes,
            "policy": resolved.evaluation_policy,
            **described(scores, seed),
        },
        "auc": {
            "score": "mean height of a run's training curve over the steps of the grid",
            **described(list(training.areas.values()), seed),
        },
        "training": {
            "runs": list(training.curves),
            "first_step": int(training.grid[0]) if len(training.grid) else None,
            "last_step": int(training.grid[-1]) if len(training.grid) else None,
            "grid_points": len(training.grid),
        },
        "unit": "the run",
        "intervals": {
            "level": LEVEL,
            "t_interval": "Student's t interval of the mean over runs",
            "iqm_interval": "percentile bootstrap of the interquartile mean over whole runs",
            "curves": "pointwise",
        },
        "bootstrap": {
            "seed": seed,
            "resamples_curves": CURVE_RESAMPLES,
            "resamples_tables": TABLE_RESAMPLES,
        },
        "seed": experiment.seed,
        "versions": context.record.versions,
        "cost": asdict(total(_cost(context.directory.run(run.index)) for run in runs)),
    }


def _cost(run: RunDirectory) -> Cost:
    return cost_of(run, resource_columns(run))


def _standings(runs: Sequence[RunResult], context: StepContext) -> list[Standing]:
    """The standings in the evaluated runs' arenas; empty without self-play or without such a run."""
    if not context.resolved.descriptor.has_workers:
        return []
    from steps.arena.averaged_arenas import standings

    return standings(context.directory.run(run.index) for run in runs if run.is_evaluated)


def _rating(run: RunResult, arena: Sequence[Standing], context: StepContext) -> dict[str, Cell]:
    """The additional column of a run's row after self-play."""
    if not context.resolved.descriptor.has_workers:
        return {}
    return {ELO.column: _ratings(arena).get(run.index)}


def _ratings(arena: Sequence[Standing]) -> Mapping[int, float]:
    """Run -> the rating of its agent."""
    return next((one.ratings for one in arena if one.player == AGENT), {})


def _of_arena(
    arena: Sequence[Standing], runs: Sequence[RunResult], context: StepContext
) -> dict[str, Any]:
    """The part of summary.json about self-play; empty for other trainings."""
    if not context.resolved.descriptor.has_workers:
        return {}
    seed = bootstrap_seed(context.resolved)
    ratings = list(_ratings(arena).values())
    noted = [
        read_status(context.directory.run(run.index).status / f"{pipeline.EVALUATE}.json")
        for run in runs
        if run.is_evaluated
    ]
    kept = [share for one in noted if one and (share := one.number(VALUE_KEPT)) is not None]
    return {
        ELO.column: {
            "score": f"Bradley–Terry rating of a run's final policy in its own arena; {ANCHOR} has 0",
            **described(ratings, seed),
        },
        VALUE_KEPT: {
            "score": "share of a run's moves that keep the value, where minimax knows it and not every move does, in %",
            **described(kept, seed),
        },
    }


def described(values: Sequence[float], seed: int) -> dict[str, Any]:
    """The statistics that this number of scores allows, one score per run; null for the others."""
    names = (
        "mean",
        "median",
        "min",
        "max",
        "sd",
        "standard_error",
        "t_interval",
        "iqm",
        "iqm_interval",
        "remark",
    )
    if not values:
        return {"n": 0, **dict.fromkeys(names)}
    one = aggregate(np.array(values, np.float64)[:, None], seed=seed, resamples=TABLE_RESAMPLES)

    def number(column: NDArray[np.float64] | None) -> float | None:
        return None if column is None else float(column[0])

    def pair(
        low: NDArray[np.float64] | None, high: NDArray[np.float64] | None
    ) -> list[float] | None:
        return None if low is None or high is None else [float(low[0]), float(high[0])]

    remark = None
    if one.n == 1:
        remark = "n = 1, no interval"
    elif one.sd is not None and one.sd[0] == 0:
        remark = SAME_SCORE
    elif BOOTSTRAP_FROM <= one.n < WIDE_ENOUGH_FROM:
        remark = "bootstrap interval slightly too narrow at this n"
    return {
        "n": one.n,
        "mean": number(one.mean),
        "median": number(one.median),
        "min": number(one.minimum),
        "max": number(one.maximum),
        "sd": number(one.sd),
        "standard_error": None if one.sd is None else float(one.sd[0]) / math.sqrt(one.n),
        "t_interval": pair(one.low, one.high),
        "iqm": number(one.iqm),
        "iqm_interval": pair(one.iqm_low, one.iqm_high),
        "remark": remark,
    }


def _are_written(context: StepContext) -> bool:
    resolved = context.resolved
    files = [*FILES]
    files += [ARENA] if resolved.descriptor.has_workers else []
    files += [CURVE] if resolved.experiment.evaluations else []
    return all((context.directory.average / name).is_file() for name in files)


if __name__ == "__main__":
    end(main())
