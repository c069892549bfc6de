"""What a run left behind, and whether it may enter an average: for average, the plots and the report, with one answer for all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from config.resolve import Resolved
from steps.directory.layout import RunDirectory
from steps.directory.status import Status, read_status
from steps.directory.tables import read_columns, read_rows

if TYPE_CHECKING:
    import numpy as np

EVALUATION_COLUMNS = ("episode", "seed", "return", "length")


@dataclass(frozen=True)
class Usable:
    """complete: trained and evaluated; skipped: trained, below `evaluate_above`; unfinished and failed runs enter no average.

    reason: one line; None for a complete run.
    """

    state: Literal["complete", "skipped", "unfinished", "failed"]
    reason: str | None = None

    def __bool__(self) -> bool:
        """Whether the run is usable."""
        return self.state in {"complete", "skipped"}


@dataclass(frozen=True)
class Episode:
    """One row of evaluation.csv; the return is the game's own, the length in environment steps."""

    episode: int
    seed: int
    return_: float
    length: int


def usability(run: RunDirectory, resolved: Resolved) -> Usable:
    """What a run's status files and its evaluation say."""
    train = read_status(run.status / "train.json")
    if train is None or train.state != "succeeded":
        return _not_ended("train", train, run)
    if train.details.get("evaluate") is False:
        threshold, reached = resolved.experiment.evaluate_above, train.details.get("training_return")
        shown = "unknown" if reached is None else f"{reached:g}"
        return Usable("skipped", f"not evaluated: training return {shown}, evaluate_above is {threshold}")
    evaluate = read_status(run.status / "evaluate.json")
    if evaluate is None or evaluate.state != "succeeded":
        return _not_ended("evaluate", evaluate, run)
    found, planned = len(evaluation_episodes(run)), resolved.experiment.evaluation_episodes
    if found != planned:
        return Usable("failed", f"evaluation.csv has {found} of {planned} episodes: evaluate makes it")
    return Usable("complete")


def usable_runs(runs: Iterable[RunDirectory], resolved: Resolved) -> dict[int, Usable]:
    """Index -> usability, in the order of the runs."""
    return {run.index: usability(run, resolved) for run in sorted(runs, key=lambda run: run.index)}


def evaluation_episodes(run: RunDirectory) -> list[Episode]:
    """The whole rows of evaluation.csv; empty without one or if it is none."""
    try:
        rows = read_rows(run.evaluation_csv)
        return [Episode(int(row["episode"]), int(row["seed"]), float(row["return"]), int(row["length"])) for row in rows]
    except (OSError, KeyError, ValueError, TypeError):
        return []


def training_columns(run: RunDirectory, *, finished: bool) -> dict[str, np.ndarray]:
    """The columns of train.csv, [rows] each; none without a file.

    Of an unfinished training only what a checkpoint covers: the rows after it will be done again, perhaps by somebody else.
    """
    newest = [0, *run.checkpoint_steps()][-1]
    try:
        return read_columns(run.train_csv, until_step=None if finished else newest)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def fingerprint(root: Path, paths: Iterable[Path]) -> dict[str, str | None]:
    """Path below root -> SHA-256 of the file, None without one: what a result depends on."""
    sums: dict[str, str | None] = {}
    for path in paths:
        try:
            with path.open("rb") as file:
                sums[path.relative_to(root).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, IsADirectoryError):
            sums[path.relative_to(root).as_posix()] = None
    return sums


def _not_ended(task: str, status: Status | None, run: RunDirectory) -> Usable:
    """Why a task has not succeeded: failed for good, or unfinished."""
    reached = [0, *run.checkpoint_steps()][-1]
    where = f", newest checkpoint at step {reached}" if task == "train" and reached else ""
    if status is None:
        return Usable("unfinished", f"{task} has not started")
    if status.state == "failed":
        return Usable("failed", f"{task}: {status.reason or 'failed'}{where}")
    if status.state == "running":
        return Usable("unfinished", f"{task} was running, or was killed{where}")
    return Usable("unfinished", f"{task}: {status.reason or status.state}{where}")
