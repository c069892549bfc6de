"""What a run of this project has cost, as far as its files know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from config import pipeline
from steps.comparison.entries import Cost
from steps.directory.files import last_lines
from steps.directory.layout import RunDirectory
from steps.directory.status import Status, read_status
from steps.directory.tables import read_columns
from steps.directory.usable import NO_FILE, NO_TABLE
from steps.statistics.scores import Floats

HOUR_S = 3600.0
LOG_BYTES = 16 * 2**20
BEGAN = re.compile(r"training \d+ epochs from (?:the start|step (?P<step>\d+))")
REACHED = re.compile(
    r"(?:epoch \d+ of \d+, step|killed at about step|: preempted at step) (?P<step>\d+)"
)
"""Of an attempt in the training's log: where it began, and how far it came."""
Columns = Mapping[str, Floats]


def cost_of(run: RunDirectory, resources: Columns) -> Cost:
    """The cost of a run's training. resources: the columns of its resources.csv.

    Processor-hours are what was used, by resources.csv and, of actors, workers and further learners,
    resources-*.csv; without these tables they are the duration of the training, on one processor.
    """
    status = read_status(run.status / f"{pipeline.TRAIN}.json")
    tables = [resources, *_of_members(run)]
    measured = [table for table in tables if len(table.get("wall_s", ()))]
    processor_h = _duration_h(status)
    if measured:
        processor_h = sum(_busy_s(table, "cpu_percent") for table in measured) / 100 / HOUR_S
    preemptions = None if status is None else max(0, status.attempt - 1)
    return Cost(
        processor_h=processor_h,
        gpu_h=sum(_held_s(table) for table in measured) / HOUR_S if measured else None,
        preemptions=preemptions,
        repeated_h=_repeated_h(run, resources, processor_h) if preemptions else preemptions,
    )


def _of_members(run: RunDirectory) -> Iterable[Columns]:
    for task, name in run.members():
        try:
            yield read_columns(run.member_resources_csv(name.removeprefix(f"{task}-")))
        except (*NO_FILE, *NO_TABLE):
            continue


def _duration_h(status: Status | None) -> float | None:
    if status is None or status.duration_s is None:
        return None
    return status.duration_s / HOUR_S


def _busy_s(table: Columns, column: str) -> float:
    """The integral of a column over the time of a table; what was not measured counts as nothing."""
    return float(np.nansum(_lengths_s(table) * table.get(column, np.zeros(1))))


def _held_s(table: Columns) -> float:
    """The time in which a GPU's use was measured, so that there was one."""
    used = table.get("gpu_percent", np.full(1, np.nan))
    return float(np.sum(_lengths_s(table) * ~np.isnan(used)))


def _lengths_s(table: Columns) -> Floats:
    """The seconds that each row stands for."""
    return np.fmax(0.0, np.diff(table["wall_s"], prepend=0.0))


def _repeated_h(run: RunDirectory, resources: Columns, processor_h: float | None) -> float | None:
    """Processor-hours of the steps that were done again, by the log of the training: its last attempts
    began behind where those before them had come to. None if the log or the speed is missing.
    """
    log = run.logs / f"{pipeline.TRAIN}.log"
    steps = resources.get("step", np.empty(0))
    lines = last_lines(log, LOG_BYTES)
    if not lines or not len(steps) or not np.nanmax(steps) > 0 or processor_h is None:
        return None
    return repeated_steps(lines) * processor_h / float(np.nanmax(steps))


def repeated_steps(lines: Iterable[str]) -> int:
    """How many steps the attempts in a log have done that a later one did again."""
    repeated = 0
    reached = 0
    for line in lines:
        if began := BEGAN.match(line):
            step = int(began["step"] or 0)
            repeated += max(0, reached - step)
            reached = step
        elif at := REACHED.search(line):
            reached = max(reached, int(at["step"]))
    return repeated
