"""What a run left behind, and whether it may enter an average. Average, plots and report all use
this answer.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from config.errors import BadInput
from config.games import LARGEST_RETURN
from config.measures import Measure
from config.pipeline import EVALUATE, TRAIN
from config.resolved import Resolved
from steps.directory.files import open_regular
from steps.directory.layout import RunDirectory
from steps.directory.status import Status, damage, paused_at, read_status
from steps.directory.tables import Wanted, every_column, read_columns, read_rows, sum_of_start

if TYPE_CHECKING:
    import numpy as np

NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
TRAINING_EPISODES = "training_episodes"
"""The key in `train`'s status for the number of episodes in the training score."""
TRAINING_TABLE = "train_csv"
"""The key in `train`'s status for the size and the SHA-256 of the table that it wrote."""
NO_TABLE = (BadInput, KeyError, ValueError, TypeError)
"""The errors of reading a damaged table. Other `OSError`s are raised, and the step is retried."""


UsableState = Literal["complete", "skipped", "paused", "unfinished", "failed"]


@dataclass(frozen=True)
class Usable:
    """complete: trained and evaluated. skipped: trained, but below `evaluate_above`. paused: trained as
    far as it was asked to, before its last epoch. Paused, unfinished and failed runs enter no average.

    reason: one line; None for a complete run.
    """

    state: UsableState
    reason: str | None = None

    def __bool__(self) -> bool:
        """Whether the run is usable."""
        return self.state in {"complete", "skipped"}


@dataclass(frozen=True)
class Episode:
    """One row of the evaluation: the measure's value, and the length in environment steps."""

    episode: int
    seed: int
    value: float
    length: int


def usability(run: RunDirectory, resolved: Resolved) -> Usable:
    """Whether a run is usable, from its status files and its evaluation."""
    measure = resolved.measure
    train = read_status(run.status / f"{TRAIN}.json")
    if train is not None and train.state == "paused":
        return Usable("paused", paused_at(train.details, resolved))
    if train is None or train.state != "succeeded":
        return _not_ended(TRAIN, train, run)
    if changed := changed_table(run, train):
        return Usable("failed", changed)
    ended = train.number("epoch")
    if ended is not None and ended < resolved.epochs:
        return Usable("unfinished", f"trained for {ended:g} of {resolved.epochs} epochs")
    if not is_worth_evaluating(train, resolved):
        threshold = resolved.experiment.evaluate_above
        reached = training_score(train, measure)
        shown = "unknown" if reached is None else f"{reached:g}"
        return Usable(
            "skipped",
            f"not evaluated: training {measure.in_training.name} {shown}, evaluate_above is {threshold}",
        )
    evaluate = read_status(run.status / f"{EVALUATE}.json")
    if evaluate is None or evaluate.state != "succeeded":
        return _not_ended(EVALUATE, evaluate, run)
    if reason := _other_evaluation(train, evaluate, resolved):
        return Usable("unfinished", reason)
    episodes = evaluation_episodes(run, measure)
    planned = resolved.evaluated_episodes
    if len(episodes) != planned:
        return Usable(
            "failed",
            f"{measure.table} has {len(episodes)} of {planned} episodes: {EVALUATE} makes it",
        )
    if fault := faulty_value(episodes, measure):
        return Usable("failed", f"{measure.table}: {fault}: {EVALUATE} makes it")
    return Usable("complete")


def is_worth_evaluating(train: Status, resolved: Resolved) -> bool:
    """Whether a finished training reaches `evaluate_above`, as it is now: it may change when the
    experiment is submitted again.
    """
    threshold = resolved.experiment.evaluate_above
    if threshold is None:
        return True
    reached = training_score(train, resolved.measure)
    return reached is not None and resolved.measure.reaches(reached, threshold)


def _other_evaluation(train: Status, evaluate: Status, resolved: Resolved) -> str:
    """How an evaluation differs from the one that is wanted now; empty if it does not, or if a status
    does not say. The training may have grown since, or the policy may be another one.
    """
    trained = train.number("step")
    evaluated = evaluate.number("step")
    if trained is not None and evaluated is not None and trained != evaluated:
        return f"evaluated at step {evaluated:.0f}, trained until step {trained:.0f}"
    policy = evaluate.details.get("policy", resolved.evaluation_policy)
    if policy != resolved.evaluation_policy:
        return f"evaluated with {policy} actions, evaluation_policy is {resolved.evaluation_policy}"
    return ""


def changed_table(run: RunDirectory, train: Status) -> str:
    """How the training's table differs from what the training wrote; empty if it does not, or if the
    status of an earlier version says nothing of it.
    """
    written = train.details.get(TRAINING_TABLE)
    if not isinstance(written, Mapping):
        return ""
    try:
        found = sum_of_start(run.train_csv, run.train_csv.stat().st_size)
    except NO_FILE as error:
        return f"{run.train_csv.name} cannot be read: {error.strerror}"
    if found == written:
        return ""
    differs = "it holds other numbers"
    if found["bytes"] != written.get("bytes"):
        differs = f"it has {found['bytes']} of {written.get('bytes')} bytes"
    return (
        f"{run.train_csv.name} is not what the training wrote, {differs}: restore the file, or remove "
        f"{run.root} to train this run again"
    )


def training_score(train: Status | None, measure: Measure) -> float | None:
    """The mean of the last training episodes, which was compared with `evaluate_above`."""
    return None if train is None else train.number(measure.training_detail)


def training_episodes(train: Status | None) -> int | None:
    """The number of episodes in the training score; None if the training did not say."""
    found = None if train is None else train.number(TRAINING_EPISODES)
    return None if found is None else int(found)


def usable_runs(runs: Iterable[RunDirectory], resolved: Resolved) -> dict[int, Usable]:
    """Index -> usability, in the order of the runs."""
    return {run.index: usability(run, resolved) for run in sorted(runs, key=lambda run: run.index)}


def evaluation_episodes(run: RunDirectory, measure: Measure) -> list[Episode]:
    """The rows of the evaluation; none without a table or for a damaged one. A value may be absurd,
    see `faulty_value`.
    """
    try:
        return read_episodes(run.evaluated(measure), measure)
    except (*NO_FILE, *NO_TABLE):
        return []


def read_episodes(path: Path, measure: Measure) -> list[Episode]:
    """The rows of the evaluation. Raises the errors in `NO_FILE` and `NO_TABLE`."""
    value = measure.column
    return [
        Episode(int(row["episode"]), int(row["seed"]), float(row[value]), int(row["length"]))
        for row in read_rows(path)
    ]


def faulty_value(episodes: Iterable[Episode], measure: Measure) -> str | None:
    """The first value that statistics cannot use, in words: `the return of episode 3 is inf`. None
    if all are good.
    """
    for one in episodes:
        where = f"the {measure.name} of episode {one.episode} is"
        if not math.isfinite(one.value):
            return f"{where} {one.value}, which is not finite"
        if abs(one.value) > LARGEST_RETURN:
            return f"{where} {one.value:g}, beyond {LARGEST_RETURN:g}"
    return None


def training_columns(
    run: RunDirectory, *, finished: bool, wanted: Wanted = every_column
) -> dict[str, np.ndarray]:
    """The wanted columns of train.csv (and `step`), [rows] each; none without a file or for a
    damaged one.

    For an unfinished training only the rows that a checkpoint covers: later rows will be produced
    again, perhaps by another process.
    """
    newest = [0, *run.checkpoint_steps()][-1]
    columns = _columns(run.train_csv, wanted)
    if "step" not in columns:
        return {}
    last = sys.float_info.max if finished else newest
    kept = columns["step"] <= last  # false for NaN, too
    return {name: column[kept] for name, column in columns.items()}


def resource_columns(run: RunDirectory) -> dict[str, np.ndarray]:
    """The columns of resources.csv, [rows] each; none without a file or for a damaged one."""
    columns = _columns(run.resources_csv, every_column)
    return columns if "wall_s" in columns else {}


def _columns(path: Path, wanted: Wanted) -> dict[str, np.ndarray]:
    try:
        return read_columns(path, wanted=wanted)
    except (*NO_FILE, *NO_TABLE):
        return {}


def fingerprint(root: Path, paths: Iterable[Path]) -> dict[str, str | None]:
    """Path below root -> SHA-256 of the file, None if it is missing. It says what a result depends
    on.
    """
    sums: dict[str, str | None] = {}
    for path in paths:
        try:
            with open_regular(path) as file:
                sums[path.relative_to(root).as_posix()] = hashlib.file_digest(
                    file, "sha256"
                ).hexdigest()
        except NO_FILE:
            sums[path.relative_to(root).as_posix()] = None
    return sums


def _not_ended(task: str, status: Status | None, run: RunDirectory) -> Usable:
    """Why a task has not succeeded: it failed for good, or is unfinished."""
    reached = [0, *run.checkpoint_steps()][-1]
    where = f", newest checkpoint at step {reached}" if task == TRAIN and reached else ""
    if status is None:
        fault = damage(run.status / f"{task}.json")
        if fault:
            return Usable("unfinished", f"status/{task}.json cannot be read: {fault}")
        return Usable("unfinished", f"{task} has not started")
    if status.state == "failed":
        return Usable("failed", f"{task}: {status.reason or 'failed'}{where}")
    if status.state == "running":
        return Usable("unfinished", f"{task} was running, or was killed{where}")
    return Usable("unfinished", f"{task}: {status.reason or status.state}{where}")
