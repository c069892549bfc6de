"""Tells in a few lines how an experiment ended: what failed and why, and where to look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from config.errors import ExperimentError, on_one_line
from config.numbers import duration
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from workflows.dag.tasks import Task, Tasks, Where
from workflows.progress.reasons import name_of, place_of, reason
from workflows.progress.words import Find

SUCCEEDED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes of `workflows.submit`."""
MOST_LISTED = 10
FILMING = ("play", "play-learning")
UNWANTED = "video_episodes is 0"
"""The reason of these steps where a person wants no film."""


def end(tasks: Tasks, seconds: float, find: Find, outdir: str) -> int:
    """Print how the workflow ended, what failed and why, and at last where to look. Returns the
    exit code. outdir: the workflow's own.
    """
    outdirs = tasks.outdirs()
    evaluated = {one: _evaluation(tasks, one, find(one)) for one in outdirs}
    if len(outdirs) == 1:
        print(f"{outcome(tasks, seconds)}{evaluated[outdirs[0]]}")
    else:
        print(outcome(tasks, seconds))
        for one in outdirs:
            if evaluated[one]:
                print(f"{find(one) or one or outdir}{evaluated[one]}")
    for line in (*failures(tasks, find), *without_film(tasks, find)):
        print(line)
    # The page of a study leads to those of its experiments.
    for one in [""] if "" in outdirs else outdirs:
        print(where_to_look(find(one), one or outdir))
    return SUCCEEDED if tasks.phase == "Succeeded" else FAILED


def outcome(tasks: Tasks, seconds: float) -> str:
    """`Succeeded in 1 min 12 s`, `Failed after 5 s`, `Stopped after 9 s: Step exceeded its
    deadline`.
    """
    if tasks.phase == "Succeeded":
        return f"Succeeded in {duration(seconds)}"
    stopped = [task.message for task in tasks.having("stopped")]
    word = "Stopped" if stopped else tasks.phase
    # What failed is listed below; the workflow's own message, about retries, says less.
    if stopped:
        message = stopped[0]
    elif any(tasks.having("failed")):
        message = ""
    else:
        message = tasks.message
    return f"{word} after {duration(seconds)}{f': {message}' if message else ''}"


def _evaluation(tasks: Tasks, outdir: str, directory: Path | None) -> str:
    """`; evaluation: mean return 496.6, n = 3 of 3`, the number and the name of the page's heading,
    if this workflow has averaged the runs of a directory and the result can be read here; else empty.
    """
    averaged = any(
        task.step == "average" and task.where == Where(outdir) and task.state == "succeeded"
        for task in tasks.pods()
    )
    if directory is None or not averaged:
        return ""
    try:
        experiment = ExperimentDirectory(directory)
        summary = json.loads((experiment.average / "summary.json").read_bytes())
        evaluation = summary["evaluation"]
        planned = summary["planned"]
        measure = read_experiment(experiment).resolved.measure
        name, value = measure.result(evaluation)
        return f"; evaluation: {name} {measure.shown(value)}, n = {evaluation['n']} of {planned}"
    except (OSError, ValueError, LookupError, TypeError, ExperimentError):
        return ""


def failures(tasks: Tasks, find: Find) -> Iterator[str]:
    """One line for each task that failed, with its reason, and one for all that were stopped."""
    listed = list(tasks.having("failed"))
    for task in listed[:MOST_LISTED]:
        directory = find(task.where.outdir)
        yield f"{_name(task)} failed: {reason(task, directory)}{_log(task, directory)}"
    if len(listed) > MOST_LISTED:
        yield f"and {len(listed) - MOST_LISTED} more"
    names = [_name(task) for task in tasks.having("stopped")]
    if names:
        more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
        yield f"stopped: {', '.join(names[:MOST_LISTED])}{more}; submit the same again to go on"


def without_film(tasks: Tasks, find: Find) -> Iterator[str]:
    """One line for each reason why there is no film, such as a library that is missing here; none if no
    film was wanted.
    """
    unfilmed: dict[str, list[str]] = {}
    for task in tasks.having("succeeded"):
        directory = find(task.where.outdir)
        if directory is None or task.step not in FILMING:
            continue
        status = read_status(place_of(task, directory).status / f"{name_of(task)}.json")
        if (
            status is not None
            and status.state == "skipped"
            and status.reason not in (None, UNWANTED)
        ):
            unfilmed.setdefault(on_one_line(status.reason), []).append(_name(task))
    for reason_, names in unfilmed.items():
        more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
        yield f"no film: {', '.join(names[:MOST_LISTED])}{more}: {reason_}"


def _name(task: Task) -> str:
    return " ".join([*task.trail, task.name])


def _log(task: Task, directory: Path | None) -> str:
    path = None if directory is None else place_of(task, directory).logs / f"{name_of(task)}.log"
    return f"; log: {path}" if path is not None and path.is_file() else ""


def where_to_look(directory: Path | None, outdir: str) -> str:
    """The last line: the report if there is one, else the directory."""
    if directory is None:
        return f"Report: {outdir}/report.html on the cluster's storage"
    report = ExperimentDirectory(directory).report_html
    if report.is_file():
        return f"Report: {report}"
    return f"Results: {directory}" if directory.exists() else f"Nothing was written to {directory}"
