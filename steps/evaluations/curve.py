"""The evaluation curve of one run, and the best of its snapshots.

The best snapshot is the one with the highest mean, the earliest of several. It was chosen among many
by these very numbers, so its own mean is too good (a maximum over noise): it is measured again with
other seeds, and never stands for the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from config.errors import BadInput
from config.measures import Measure
from config.resolved import Resolved
from steps.directory import snapshots
from steps.directory.layout import RunDirectory
from steps.directory.tables import Cell, read_rows
from steps.directory.usable import NO_FILE, NO_TABLE, Episode, faulty_value
from steps.statistics.scores import mean, standard_deviation

MADE_BY = "evaluation-curve"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A snapshot on the curve: its mean score and how many episodes it is the mean of."""

    epoch: int
    step: int
    episodes: int
    mean: float


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best snapshot. chosen: the mean by which it was chosen; again: measured with other seeds,
    in so many episodes.
    """

    epoch: int
    step: int
    chosen: float
    again: float
    episodes: int


def columns(measure: Measure) -> tuple[str, ...]:
    """The columns of evaluation-curve.csv."""
    names = [f"{measure.column}_{name}" for name in ("mean", "sd", "min", "max")]
    return ("epoch", "step", "frame", "episodes", *names, "length_mean")


def curve_row(run: RunDirectory, step: int, resolved: Resolved) -> dict[str, Cell]:
    """The row of one snapshot. Raises `BadInput` if it is not evaluated, or not in numbers."""
    path = snapshots.table(run, step)
    rows = snapshots.evaluated(run, step, resolved)
    if rows is None:
        raise BadInput(
            f"{path} has not the episodes of this snapshot: evaluate-snapshots plays them"
        )
    measure = resolved.measure
    try:
        episodes = [_episode(row, measure) for row in rows]
        epoch = int(rows[0]["epoch"])
    except (KeyError, ValueError) as error:
        raise BadInput(
            f"{path} is no table of episodes ({error}): delete it, and evaluate-snapshots plays them again"
        ) from error
    if fault := faulty_value(episodes, measure):
        raise BadInput(f"{path}: {fault}: evaluate-snapshots plays it")
    values = [one.value for one in episodes]
    spread = standard_deviation(values) if len(values) > 1 else None
    cells: list[Cell] = [
        epoch, step, step * resolved.game.frames_per_step, len(values),
        measure.of_run(values), spread, min(values), max(values),
        mean([one.length for one in episodes]),
    ]  # fmt: skip
    return dict(zip(columns(measure), cells, strict=True))


def _episode(row: Mapping[str, str], measure: Measure) -> Episode:
    value = float(row[measure.column])
    return Episode(int(row["episode"]), int(row["seed"]), value, int(row["length"]))


def best_of(points: Sequence[Point], measure: Measure) -> Point:
    """The best point, the earliest of equally good ones."""
    sign = 1 if measure.higher_is_better else -1
    return max(points, key=lambda point: sign * point.mean)


def read_curve(run: RunDirectory, measure: Measure) -> list[Point]:
    """The points of evaluation-curve.csv; none without the file or for a damaged one."""
    try:
        return parsed_curve(run.evaluation_curve_csv, measure)
    except (*NO_FILE, *NO_TABLE):
        return []


def parsed_curve(path: Path, measure: Measure) -> list[Point]:
    """The same. Raises the errors in `NO_FILE` and `NO_TABLE`."""
    return [point(row, measure) for row in read_rows(path)]


def point(row: Mapping[str, Cell], measure: Measure) -> Point:
    """The point of a row."""
    numbers = {name: int(row[name] or 0) for name in ("epoch", "step", "episodes")}
    return Point(**numbers, mean=float(row[f"{measure.column}_mean"] or "nan"))


def read_best(run: RunDirectory, measure: Measure) -> Best | None:
    """The best snapshot by best-snapshot.csv; None without the file, or for one that does not fit
    the curve.
    """
    try:
        rows = read_rows(run.best_snapshot_csv)
        step = int(rows[0]["step"])
        again = measure.of_run([float(row[measure.column]) for row in rows])
    except (*NO_FILE, *NO_TABLE, IndexError):
        return None
    for one in read_curve(run, measure):
        if one.step == step:
            return Best(
                epoch=one.epoch, step=step, chosen=one.mean, again=again, episodes=len(rows)
            )
    return None
