"""How an experiment ended, in a few lines: what failed and why, and where to look."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from workflows.progress_view import duration
from workflows.tasks import Experiment, Task

SUCCEEDED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes of `workflows.submit`."""
MOST_FAILURES = 10
LONGEST_LINE_BYTES = 4096


def end(tasks: Experiment, seconds: float, directory: Path | None, outdir: str) -> int:
    """Print how it ended, what failed and why, and as the last line where to look; the exit code."""
    print(f"{outcome(tasks, seconds)}{_evaluation(tasks, directory)}")
    for line in failures(tasks, directory):
        print(line)
    print(where_to_look(directory, outdir))
    return SUCCEEDED if tasks.phase == "Succeeded" else FAILED


def outcome(tasks: Experiment, seconds: float) -> str:
    """`Succeeded in 1 min 12 s`, `Failed after 5 s: …`."""
    if tasks.phase == "Succeeded":
        return f"Succeeded in {duration(seconds)}"
    return f"{tasks.phase} after {duration(seconds)}{f': {tasks.message}' if tasks.message else ''}"


def _evaluation(tasks: Experiment, directory: Path | None) -> str:
    """`; evaluation: mean return 496.6, n = 3 of 3`, when this workflow has averaged its runs and the result can be read."""
    average = tasks.outside.get("average")
    if directory is None or average is None or average.state != "succeeded":
        return ""
    try:
        summary = json.loads((ExperimentDirectory(directory).average / "summary.json").read_bytes())
        mean, n, planned = summary["evaluation"]["mean"], summary["evaluation"]["n"], summary["planned"]
        return f"; evaluation: mean return {mean:,.1f}, n = {n} of {planned}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def failures(tasks: Experiment, directory: Path | None) -> Iterator[str]:
    """One line for each task that failed: the reason that it wrote itself where that can be read, else the node's message."""
    listed = list(tasks.failed())
    for run, task in listed[:MOST_FAILURES]:
        where = task.name if run is None else f"run {run} {task.name}"
        yield f"{where} failed: {_reason(run, task, directory)}"
    if len(listed) > MOST_FAILURES:
        yield f"and {len(listed) - MOST_FAILURES} more"


def _reason(run: int | None, task: Task, directory: Path | None) -> str:
    """What the step said last, where its output or its status file can be read, and the node's message."""
    message = task.message or "no message"
    of = None if directory is None else ExperimentDirectory(directory) if run is None else ExperimentDirectory(directory).run(run)
    said = _last_line(Path(task.log)) if task.log else "" if of is None else _status_reason(of.status / f"{task.name}.json")
    reason = f"{said} ({message})" if said else message
    log = None if of is None else of.logs / f"{task.name}.log"
    return f"{reason}; log: {log}" if log is not None and log.is_file() else reason


def _status_reason(path: Path) -> str:
    status = read_status(path)
    return status.reason or "" if status is not None and status.state != "succeeded" else ""


def _last_line(path: Path) -> str:
    """The end of a log, at most one line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE_BYTES))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def where_to_look(directory: Path | None, outdir: str) -> str:
    """The last line: the report if there is one, else the directory."""
    if directory is None:
        return f"Report: {outdir}/report.html on the cluster's storage"
    report = ExperimentDirectory(directory).report_html
    return f"Report: {report}" if report.is_file() else f"Results: {directory}"
