"""What a training, or a whole experiment, has cost, as far as its files know."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from config import pipeline
from steps.directory.files import last_lines
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import Status, read_status
from steps.directory.tables import read_columns
from steps.directory.usable import NO_FILE, NO_TABLE, resource_columns

HOUR_S = 3600.0
LOG_BYTES = 16 * 2**20
BEGAN = re.compile(r"training \d+ epochs from (?:the start|step (?P<step>\d+))")
REACHED = re.compile(
    r"(?:epoch \d+ of \d+, step|killed at about step|: preempted at step) (?P<step>\d+)"
)
"""Of an attempt in the training's log: where it began, and how far it came."""
Floats = NDArray[np.float64]
Columns = Mapping[str, Floats]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run, or a whole experiment, has cost; None where its files do not say.

    processor_h: processor-hours of the training, all its processes together; of an experiment also
    those of the other steps. gpu_h: hours in which it held a GPU. preemptions: how often a training was
    started again. repeated_h: processor-hours of the training that were lost by that and done again.
    """

    processor_h: float | None = None
    gpu_h: float | None = None
    preemptions: int | None = None
    repeated_h: float | None = None


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of what is known of each part; None if nothing is. A damaged table may hold a number that
    is not finite, which counts as unknown.
    """
    listed = list(costs)

    def added(known: Iterable[float | None]) -> float | None:
        numbers = [one for one in known if one is not None and math.isfinite(one)]
        return math.fsum(numbers) if numbers else None

    preemptions = added(one.preemptions for one in listed)
    return Cost(
        processor_h=added(one.processor_h for one in listed),
        gpu_h=added(one.gpu_h for one in listed),
        preemptions=None if preemptions is None else int(preemptions),
        repeated_h=added(one.repeated_h for one in listed),
    )


def experiment_cost(directory: ExperimentDirectory, runs: int) -> Cost:
    """The cost of an experiment: of all its trainings, and of the other steps, each of which counts as
    one processor for the time of its last attempt. The report, which says it, is left out.
    """
    listed = [directory.run(index) for index in range(runs)]
    trainings = [cost_of(run, resource_columns(run)) for run in listed]
    others = [Cost(processor_h=_duration_h(status)) for status in _other_steps(directory, listed)]
    return total([*trainings, *others])


def _other_steps(
    directory: ExperimentDirectory, runs: Iterable[RunDirectory]
) -> Iterable[Status | None]:
    """How all steps but the trainings ended, also those with several members."""
    shared = pipeline.names("experiment")
    yield from (read_status(directory.status / f"{name}.json") for name in shared)
    for run in runs:
        names = [name for name in pipeline.names("run") if name != pipeline.TRAIN]
        names += [name for task, name in run.members() if task != pipeline.TRAIN]
        yield from (read_status(run.status / f"{name}.json") for name in names)


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
