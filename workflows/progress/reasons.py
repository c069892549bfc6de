"""Finds why a task failed: the last line that its step printed, if that can be read here, and its
node's message.
"""

from __future__ import annotations

import re
from pathlib import Path

from config.errors import on_one_line
from steps.directory.files import last_lines
from steps.directory.layout import ExperimentDirectory, RunDirectory, task_name
from steps.directory.status import read_status
from workflows.dag.tasks import Task

LONGEST_LINE_BYTES = 4096
OWN_NAME = re.compile(r"^[a-z-]+(-\d+)?( of run \d+)?: (failed: )?")
"""The prefix of the line in which a step says how it ended."""


def reason(task: Task, directory: Path | None) -> str:
    """`loss is not finite at step 512 (main: Error (exit code 3))`, or only the node's message if
    the step's log cannot be read. directory: where the results of the task's outdir are on this
    machine, if they are.
    """
    message = task.message or "no message"
    if task.log:
        said = _last_line(Path(task.log))
    elif directory is not None and not task.group:
        said = _status_reason(place_of(task, directory).status / f"{name_of(task)}.json")
    else:
        said = ""
    said = OWN_NAME.sub("", said)
    return on_one_line(f"{said} ({message})" if said else message)


def place_of(task: Task, directory: Path) -> ExperimentDirectory | RunDirectory:
    """The directory with a task's log and status."""
    whole = ExperimentDirectory(directory)
    run = task.where.run
    return whole if run is None else whole.run(run)


def name_of(task: Task) -> str:
    """The name of a task's log and status."""
    return task_name(task.step, task.member)


def _status_reason(path: Path) -> str:
    status = read_status(path)
    if status is not None and status.state in ("failed", "preempted"):
        return status.reason or ""
    return ""


def _last_line(path: Path) -> str:
    lines = (line.strip() for line in reversed(last_lines(path, LONGEST_LINE_BYTES)))
    return next(filter(None, lines), "")
