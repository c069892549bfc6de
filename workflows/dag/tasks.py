"""What each task of an experiment does, read from a workflow's status: Argo's nodes in, a small
table out.

A task in a loop has a node `<workflow>.runs(0:0).train`, its attempts `….train(0)`, `….train(1)`; a
task of the exit handler is `<workflow>.onExit.report`. A node that does not exist yet is a task
that waits. Source: `reference/argo.md`, sections 3.7 and 9.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from config.errors import on_one_line

State = Literal[
    "waiting",
    "pending",
    "running",
    "retrying",
    "succeeded",
    "failed",
    "stopped",
    "skipped",
    "omitted",
]
STATES: Mapping[str, State] = {
    "Pending": "pending",
    "Running": "running",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Error": "failed",
    "Skipped": "skipped",
    "Omitted": "omitted",
}
NODE = re.compile(
    r"(?P<outer>[A-Za-z][-\w]*)(?:\(\d+:(?P<item>\d+)\))?(?:\.(?P<inner>[A-Za-z][-\w]*))?(?:\((?P<attempt>\d+)\))?"
)
STOPPED = re.compile(
    r"shutdown with strategy|topped with strategy|exceeded (its|workflow) deadline"
)
"""Messages of nodes that were ended from outside, by a stop or the workflow's deadline."""
FINAL_PHASES = ("Succeeded", "Failed", "Error")


@dataclass(frozen=True)
class Layout:
    """Names of the tasks: those outside of the runs, in order, those inside of a run, and those of
    the exit handler.
    """

    outside: tuple[str, ...]
    inside: tuple[str, ...]
    at_exit: tuple[str, ...]

    @staticmethod
    def of(manifest: Mapping[str, Any]) -> Layout:
        """The layout of a manifest of ours: one loop over a DAG."""
        spec = manifest["spec"]
        tasks = {
            template["name"]: template["dag"]["tasks"]
            for template in spec["templates"]
            if "dag" in template
        }
        whole = tasks.get(spec["entrypoint"], [])
        loops = [task for task in whole if "withParam" in task]
        loop = loops[0] if loops else {"name": "", "template": ""}
        return Layout(
            outside=tuple(task["name"] for task in whole if task is not loop),
            inside=tuple(task["name"] for task in tasks.get(loop["template"], [])),
            at_exit=tuple(task["name"] for task in tasks.get(spec.get("onExit", ""), [])),
        )


@dataclass(frozen=True)
class Task:
    """One task: attempt counts from 1; message: why it waits, or how it ended; duration_s: None
    before it ended.

    pod: Argo's name of its last attempt's pod; log: the file with what that attempt printed, where
    the local engine kept it.
    """

    name: str
    state: State = "waiting"
    message: str = ""
    attempt: int = 1
    duration_s: float | None = None
    pod: str = ""
    log: str = ""


@dataclass(frozen=True)
class Experiment:
    """Every task of an experiment: `runs` by index, then by the task's name; `outside` by name,
    those of the exit handler last.
    """

    phase: str = "Pending"
    message: str = ""
    outside: Mapping[str, Task] = field(default_factory=dict)
    runs: Mapping[int, Mapping[str, Task]] = field(default_factory=dict)

    def around_the_runs(self) -> tuple[list[Task], list[Task]]:
        """The tasks before and after the runs."""
        listed = list(self.outside.values())
        return listed[:1], listed[1:]

    def in_order(self) -> Iterator[tuple[int | None, Task]]:
        """(run or None, task) of everything, as it runs."""
        before, after = self.around_the_runs()
        yield from ((None, task) for task in before)
        yield from ((run, task) for run, tasks in self.runs.items() for task in tasks.values())
        yield from ((None, task) for task in after)

    def having(self, state: State) -> Iterator[tuple[int | None, Task]]:
        """(run or None, task) of everything in a state."""
        return ((run, task) for run, task in self.in_order() if task.state == state)


def read_tasks(status: Mapping[str, Any], workflow: str, layout: Layout, runs: int) -> Experiment:
    """The table of a status; `runs` rows are shown even before the controller has made their
    nodes.
    """
    nodes = {node["name"]: node for node in (status.get("nodes") or {}).values()}
    found: dict[tuple[int | None, str], list[tuple[int, Mapping[str, Any]]]] = {}
    for name, node in nodes.items():
        place = _place(name.removeprefix(f"{workflow}."), layout)
        if place is not None and name != workflow:
            run, task, attempt = place
            found.setdefault((run, task), []).append((attempt, node))
    known = {run for run, _ in found if run is not None}
    return Experiment(
        phase=status.get("phase") or "Pending",
        message=on_one_line(status.get("message") or ""),
        outside={
            task: _task(task, found.get((None, task), []))
            for task in (*layout.outside, *layout.at_exit)
        },
        runs={
            run: {task: _task(task, found.get((run, task), [])) for task in layout.inside}
            for run in sorted(known | set(range(runs)))
        },
    )


def _place(name: str, layout: Layout) -> tuple[int | None, str, int] | None:
    """(run, task, attempt) of a node's name below the workflow's; attempt -1 is the task itself.
    None: nothing to show.
    """
    match = NODE.fullmatch(name)
    if match is None:
        return None
    attempt = -1 if match["attempt"] is None else int(match["attempt"])
    if match["item"] is not None and match["inner"] in layout.inside:
        return int(match["item"]), str(match["inner"]), attempt
    if match["item"] is None and match["inner"] is None and match["outer"] in layout.outside:
        return None, match["outer"], attempt
    if match["outer"] == "onExit" and match["inner"] in layout.at_exit:
        return None, str(match["inner"]), attempt
    return None


def _task(name: str, nodes: list[tuple[int, Mapping[str, Any]]]) -> Task:
    """The task's own node decides, and while that runs its last attempt: it may wait for room, or
    have failed and be tried again.
    """
    if not nodes:
        return Task(name)
    _, whole = min(nodes, key=lambda pair: pair[0])
    number, last = max(nodes, key=lambda pair: pair[0])
    state = STATES.get(whole.get("phase") or "", "waiting")
    if state == "running" and last is not whole:
        last_state = STATES.get(last.get("phase") or "")
        state = (
            "pending"
            if last_state == "pending"
            else "retrying"
            if last_state == "failed"
            else "running"
        )
    if state == "failed" and STOPPED.search(f"{whole.get('message')} {last.get('message')}"):
        state = "stopped"
    message = (
        last.get("message") or whole.get("message") or ""
    )  # the attempt says what happened, the whole that it was not repeated
    return Task(
        name,
        state,
        on_one_line(message),
        max(1, number + 1),
        _duration_s(whole),
        _pod(last),
        last.get("logFile") or "",
    )


def _pod(node: Mapping[str, Any]) -> str:
    """`<workflow>-<template>-<hash>` for the node `<workflow>-<hash>` (Argo's pod names, version
    2).
    """
    workflow, _, digest = node.get("id", "").rpartition("-")
    return f"{workflow}-{node.get('templateName', '')}-{digest}"


def _duration_s(node: Mapping[str, Any]) -> float | None:
    started, finished = node.get("startedAt"), node.get("finishedAt")
    return seconds_between(started, finished) if started and finished else None


def seconds_between(earlier: str, later: str) -> float:
    """Between two of Argo's times, `2026-11-21T12:00:00Z`, which come from one clock; 0 if that was
    set back in between.
    """
    first, second = (datetime.datetime.fromisoformat(text) for text in (earlier, later))
    return max(0.0, (second - first).total_seconds())
