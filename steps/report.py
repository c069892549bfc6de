"""The last step of every experiment: `python -m steps.report --outdir results/cartpole`.

Writes report.html, one page that opens from the file system: results, runs, films, parameters, and
what failed. As the exit handler of the workflow it runs after success, failures, a stop and a
deadline alike: it waits a bounded time for steps that are still saving, shows what there is, and
ends with 5 if the experiment is incomplete. Then it lets go of the directory.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from config import pipeline
from config.ending import end
from config.errors import NEVER_RETRIED, ExperimentError, Incomplete, on_one_line
from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory import owner, processes
from steps.directory.files import open_regular, write_if_changed
from steps.directory.status import read_status

WAIT_S = 150.0
"""Longer than the grace period of a pod (`config/cluster.yaml`), after which nothing is saved any
more.
"""
POLL_S = 0.25
SMALL_FILE_BYTES = 2**20
UNKNOWN_STATUS = "unknown: made by hand"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code. The directory is released, unless Argo starts the step
    again, which then must find it owned.
    """
    started: list[StepContext] = []

    def inputs(context: StepContext) -> Mapping[str, Any]:
        started.append(context)
        return page_inputs(context)

    # `inputs` is always called, `report` only if something has changed: both must release.
    code = run_step(
        "report",
        report,
        inputs=inputs,
        complete=_is_written,
        argv=argv,
    )
    if code in (0, *NEVER_RETRIED):
        for context in started:
            if context.owner_uid is not None:
                _release(context.directory.owner_json, context.owner_uid)
    return code


def _release(path: Path, uid: str) -> None:
    """Release the directory. The page is made already, so if the owner's file cannot be read, the
    lease will expire instead.
    """
    try:
        owner.release(path, uid)
    except (ExperimentError, OSError) as error:
        print(f"report: not released: {on_one_line(error)}", file=sys.stderr)


def report(context: StepContext) -> dict[str, Any]:
    """Write report.html about whatever the experiment has left. Exits with 5 if the experiment is
    incomplete.
    """
    wait_for_running(context)
    if context.arguments.workflow_status == "Succeeded":
        context.wait_for_runs()
    # Again, because the steps that were waited for have written since `run_step` asked.
    context.inputs = json.loads(json.dumps(page_inputs(context)))
    from steps.page.facts import read_facts
    from steps.page.render import render
    from steps.page.verdict import shortcomings

    facts = read_facts(
        context.directory, context.record, context.arguments.workflow_status or UNKNOWN_STATUS
    )
    missing = shortcomings(facts)
    write_if_changed(context.directory.report_html, render(facts, missing))
    print(f"wrote {context.directory.report_html}")
    if missing:
        raise Incomplete(f"the experiment is incomplete: {'; '.join(missing)}")
    return {"usable": [run.index for run in facts.runs if run.usable], "planned": len(facts.runs)}


def page_inputs(context: StepContext) -> Mapping[str, Any]:
    """What the page depends on: the content of small files, the size and time of large ones,
    without the report's own.
    """
    whole = hashlib.sha256()
    for path in _shown(context):
        name = path.relative_to(context.directory.root).as_posix()
        try:
            whole.update(_content(name, path))
        except OSError as error:
            whole.update(repr((name, error.errno)).encode())
    return {"workflow_status": context.arguments.workflow_status, "files": whole.hexdigest()}


def _content(name: str, path: Path) -> bytes:
    stat = path.stat()
    if path.suffix in {".json", ".yaml", ".csv"} and stat.st_size <= SMALL_FILE_BYTES:
        with open_regular(path) as file:
            return repr((name, stat.st_size)).encode() + file.read()
    return repr((name, stat.st_size, stat.st_mtime_ns)).encode()


def _shown(context: StepContext) -> Iterator[Path]:
    directory = context.directory
    folders = [directory.average, directory.average / "plots"]
    statuses = [directory.status / f"{name}.json" for name in pipeline.names("experiment")]
    for index in range(context.resolved.experiment.runs):
        run = directory.run(index)
        folders += [run.root, run.plots, run.videos]
        statuses += [run.status / f"{name}.json" for name in pipeline.names("run")]
    files = (
        path for folder in folders for path in _inside(folder) if not path.name.startswith(".")
    )
    yield from (path for path in (directory.experiment_yaml, *statuses, *files) if path.is_file())
    yield from (path for _, path in _members(context))


def _members(context: StepContext) -> Iterator[tuple[str, Path]]:
    """(`train-actor-3 of run 0`, its status) for the steps with several processes."""
    for index in range(context.resolved.experiment.runs):
        run = context.directory.run(index)
        for _, name in run.members():
            yield f"{name} of run {index}", run.status / f"{name}.json"


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def wait_for_running(context: StepContext, wait_s: float = WAIT_S) -> None:
    """Wait until no step is running. For a step on this machine it is known whether its process
    lives. One on another machine was killed if it gives no sign of life.

    If a workflow ended by itself, no pod is left: a step that is still marked as running was killed
    on another machine.
    """
    end = time.monotonic() + (0 if context.arguments.workflow_status == "Succeeded" else wait_s)
    signs = _SignsOfLife(owner.killed_after_s(context.directory.owner_json))
    said = ""
    while (running := _running(context)) and time.monotonic() < end:
        context.check_stop()
        names = [name for name, status in running if not signs.are_over(status)]
        if not names:
            line = ", ".join(name for name, _ in running)
            print(f"no sign of life for {signs.killed_after_s:g} s: {line}")
            return
        line = f"waiting for {', '.join(names)}"
        if line != said:
            print(said := line, flush=True)
        time.sleep(POLL_S)
    if running:
        print(f"gave up after {wait_s:g} s: {', '.join(name for name, _ in running)}")


class _SignsOfLife:
    """Watches the signs that running steps give. Clocks of two machines are never compared: what
    counts is how long this process has seen no change.
    """

    def __init__(self, killed_after_s: float) -> None:
        self.killed_after_s = killed_after_s
        self._last: dict[Path, tuple[object, float]] = {}

    def are_over(self, status: Path) -> bool:
        """Whether the step with this status has been silent for too long."""
        now = time.monotonic()
        try:
            sign = owner.sign_of_life(owner.fence_path(status))
        except OSError:
            sign = None
        before, since = self._last.get(status, (None, now))
        if sign is None or sign != before:
            since = now
        self._last[status] = (sign, since)
        return now - since >= self.killed_after_s


def _running(context: StepContext) -> list[tuple[str, Path]]:
    """The steps that are marked as running and may live: each with its status file."""
    directory = context.directory
    runs = range(context.resolved.experiment.runs)
    places = [(name, directory.status / f"{name}.json") for name in pipeline.names("experiment")]
    places += [
        (f"{name} of run {index}", directory.run(index).status / f"{name}.json")
        for index in runs
        for name in pipeline.names("run")
    ]
    places += _members(context)
    found = ((name, path, read_status(path)) for name, path in places)
    return [
        (name, path)
        for name, path, one in found
        if one is not None and one.state == "running" and _may_live(one.process)
    ]


def _may_live(process: str) -> bool:
    """Whether a process is not known to have ended. A text that names no process says nothing."""
    try:
        return processes.is_alive(process) is not False
    except (OSError, ValueError, OverflowError):
        return True


def _is_written(context: StepContext) -> bool:
    return context.directory.report_html.is_file()


if __name__ == "__main__":
    end(main())
