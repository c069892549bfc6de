"""How an experiment ended, in a few lines: what failed and why, and where to look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from workflows.progress_view import duration
from workflows.tasks import Experiment, Task

SUCCEEDED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes of `workflows.submit`."""
MOST_FAILURES = 10


def end(tasks: Experiment, seconds: float, directory: Path | None, outdir: str) -> int:
    """Print how it ended, what failed and why, and as the last line where to look; the exit code."""
    print(outcome(tasks, seconds))
    for line in failures(tasks, directory):
        print(line)
    print(where_to_look(directory, outdir))
    return SUCCEEDED if tasks.phase == "Succeeded" else FAILED


def outcome(tasks: Experiment, seconds: float) -> str:
    """`Succeeded in 1 min 12 s`, `Failed after 5 s: …`."""
    if tasks.phase == "Succeeded":
        return f"Succeeded in {duration(seconds)}"
    return f"{tasks.phase} after {duration(seconds)}{f': {tasks.message}' if tasks.message else ''}"


def failures(tasks: Experiment, directory: Path | None) -> Iterator[str]:
    """One line for each task that failed: the reason that it wrote itself where that can be read, else the node's message."""
    listed = list(tasks.failed())
    for run, task in listed[:MOST_FAILURES]:
        where = task.name if run is None else f"run {run} {task.name}"
        yield f"{where} failed: {_reason(run, task, directory)}"
    if len(listed) > MOST_FAILURES:
        yield f"and {len(listed) - MOST_FAILURES} more"


def _reason(run: int | None, task: Task, directory: Path | None) -> str:
    message = task.message or "no message"
    if directory is None:
        return message
    of = ExperimentDirectory(directory) if run is None else ExperimentDirectory(directory).run(run)
    status, log = read_status(of.status / f"{task.name}.json"), of.logs / f"{task.name}.log"
    known = status is not None and status.reason and status.state != "succeeded"
    reason = f"{status.reason} ({message})" if status is not None and known else message
    return f"{reason}; log: {log}" if log.is_file() else reason


def where_to_look(directory: Path | None, outdir: str) -> str:
    """The last line: the report if there is one, else the directory."""
    if directory is None:
        return f"Report: {outdir}/report.html on the cluster's storage"
    report = ExperimentDirectory(directory).report_html
    return f"Report: {report}" if report.is_file() else f"Results: {directory}"
