"""What each task of a workflow does, read from the workflow's status: Argo's nodes in, a tree of
tasks out.

A task in a loop has a node `<workflow>.runs(0:0).train`, its attempts `….train(0)`, `….train(1)`; a
DAG that is itself repeated has its tasks below its attempts, `<workflow>.first(1).prepare`; a task
of the exit handler is `<workflow>.onExit.report`. A node that does not exist yet is a task that
waits. Source: docs/argo.md, "Retries".
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from config import pipeline
from config.errors import on_one_line
from workflows.dag.layout import Layout, Shape, Values, substituted

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
IN_PARENTHESES = re.compile(r"\((?:(?P<index>\d+):(?P<item>[^()]*)|(?P<attempt>\d+))\)")
STOPPED = re.compile(
    r"shutdown with strategy|topped with strategy|exceeded (its|workflow) deadline"
)
"""Messages of nodes that were ended from outside, by a stop or the workflow's deadline."""
BEGUN = ("running", "retrying", "succeeded", "failed", "stopped")
NOT_SEEN = ("waiting", "skipped", "omitted")
FINAL_PHASES = ("Succeeded", "Failed", "Error")


@dataclass(frozen=True)
class Where:
    """The directory that a task writes to. outdir: as the pods see it; empty for the workflow's
    own. run: None outside of the runs.
    """

    outdir: str = ""
    run: int | None = None


Group = Literal["", "dag", "loop", "item"]
"""A pod, a DAG that a task calls, a loop, or one item of a loop over a DAG."""


@dataclass(frozen=True)
class Task:
    """One task, one item of a loop, or a whole loop or DAG with its contents.

    name: for people, such as `train` or `run 3`. path: Argo's, below the workflow. trail: the names
    of the tasks around it, without the loops. shape: see `Layout`; an item's is that of one call of
    its DAG. step, member: for a pod, the names of its log and status. attempt: counts from 1.
    message: why it waits, or how it ended. duration_s: None before it ended. pod: Argo's name of
    the last attempt's pod. log: the file with what that attempt printed, where the local engine
    kept it.
    """

    name: str
    state: State = "waiting"
    message: str = ""
    attempt: int = 1
    duration_s: float | None = None
    pod: str = ""
    log: str = ""
    path: str = ""
    trail: tuple[str, ...] = ()
    where: Where = Where()
    step: str = ""
    member: str = ""
    group: Group = ""
    shape: Shape = "line"
    inside: tuple[Task, ...] = ()

    def pods(self) -> Iterator[Task]:
        """The pods inside, in order; for a pod, the pod itself."""
        if not self.group:
            yield self
        for part in self.inside:
            yield from part.pods()

    def having(self, state: State) -> Iterator[Task]:
        """The pods that ended in this way. Members of a stage that goes on or succeeded are left
        out, because their ends did no harm. A group that failed without any pod (a loop over
        something that is not a list) counts itself.
        """
        if not self.group:
            yield from (self,) if self.state == state else ()
            return
        if self.group == "dag" and self.shape == "line" and self.state in ("running", "succeeded"):
            return
        for part in self.inside:
            yield from part.having(state)
        if self.state == state == "failed" and self.message and not self._has_bad_ends():
            yield self

    def _has_bad_ends(self) -> bool:
        """Whether something inside explains why this task failed."""
        return any(
            part.state in ("failed", "stopped") or part._has_bad_ends() for part in self.inside
        )


@dataclass(frozen=True)
class Tasks:
    """Every task of a workflow. inside: the tasks of its DAG, then those of its exit handler."""

    phase: str = "Pending"
    message: str = ""
    inside: tuple[Task, ...] = ()

    def pods(self) -> Iterator[Task]:
        """All pods in the order in which they run."""
        return (pod for task in self.inside for pod in task.pods())

    def having(self, state: State) -> Iterator[Task]:
        """The pods that ended in this way; see `Task.having`."""
        return (found for task in self.inside for found in task.having(state))

    def outdirs(self) -> list[str]:
        """The directories that its tasks write to, each once; empty for the workflow's own."""
        return list(dict.fromkeys(pod.where.outdir for pod in self.pods())) or [""]


def read_tasks(status: Mapping[str, Any], workflow: str, layout: Layout, runs: int) -> Tasks:
    """Read the tree of tasks from a status. In the workflow's own directory, `runs` items of the
    loop over the runs are shown even before the controller has created their nodes.
    """
    reader = _Reader(status, workflow, layout, runs)
    return Tasks(
        phase=status.get("phase") or "Pending",
        message=on_one_line(status.get("message") or ""),
        inside=(
            *reader.inside(layout.inside, workflow, reader.outside),
            *reader.inside(layout.at_exit, f"{workflow}.onExit", reader.outside),
        ),
    )


@dataclass(frozen=True)
class _Around:
    """The context of a DAG's tasks: the values of their tags, the directory of their files, and the
    tasks around them.
    """

    values: Values
    where: Where = Where()
    trail: tuple[str, ...] = ()


class _Reader:
    """Finds a workflow's nodes by name."""

    def __init__(self, status: Mapping[str, Any], workflow: str, layout: Layout, runs: int) -> None:
        self._workflow = workflow
        self._runs = runs
        self._layout = layout
        self._own_outdir = layout.parameters.get("outdir", "")
        # Whether one experiment has them is decided by a parameter of its workflow.
        self._perhaps = {
            step.name
            for step in pipeline.STEPS
            if step.asked_by and step.asked_by not in layout.parameters
        } | {pipeline.DECIDE, pipeline.AGAIN, pipeline.TELL}
        self._nodes = {node["name"]: node for node in (status.get("nodes") or {}).values()}
        self._attempts: dict[str, set[int]] = defaultdict(set)
        self._items: dict[str, set[tuple[int, str]]] = defaultdict(set)
        for name in self._nodes:
            for found in IN_PARENTHESES.finditer(name):
                before = name[: found.start()]
                if found["attempt"] is not None:
                    self._attempts[before].add(int(found["attempt"]))
                else:
                    self._items[before].add((int(found["index"]), found["item"]))
        self.outside = _Around(
            {f"workflow.parameters.{name}": value for name, value in layout.parameters.items()}
        )

    def inside(self, layouts: tuple[Layout, ...], prefix: str, around: _Around) -> tuple[Task, ...]:
        """The tasks of a DAG whose node, or whose last attempt's node, is called `prefix`. Stages
        and loops that this workflow did not need are left out, and so are steps that only some
        experiments of a study have, until this one is seen to have them. In the place of a DAG that
        calls itself, such as a round of a study, stand its tasks.
        """
        tasks = [self._task(layout, f"{prefix}.{layout.name}", around) for layout in layouts]
        shown = [
            (layout, task)
            for layout, task in zip(layouts, tasks, strict=True)
            if not _had_nothing_to_do(task)
            and not (layout.looped and layout.inside and task.state == "skipped")
            and not (layout.name in self._perhaps and task.state in NOT_SEEN)
        ]
        return tuple(
            part
            for layout, task in shown
            for part in (task.inside if _is_continued(layout) and task.inside else (task,))
        )

    def _task(self, layout: Layout, name: str, around: _Around) -> Task:
        if not layout.looped:
            return self._called(layout, name, layout.name, around)
        parts = tuple(
            self._called(
                layout,
                f"{name}({index}:{item})",
                f"{_singular(layout.name)} {item}",
                around,
                {"item": item},
            )
            for index, item in self._items_of(layout, name, around)
        )
        loop = self._read(layout.name, name, around)
        return replace(loop, group="loop", shape=layout.shape, inside=parts)

    def _items_of(self, layout: Layout, name: str, around: _Around) -> list[tuple[int, str]]:
        known = set(self._items.get(name, ()))
        if "run" in layout.arguments and layout.inside and not around.where.outdir:
            made = {index for index, _ in known}
            known |= {(index, str(index)) for index in range(self._runs) if index not in made}
        return sorted(known)

    def _called(
        self,
        layout: Layout,
        name: str,
        shown: str,
        around: _Around,
        item: Values | None = None,
    ) -> Task:
        """One call of a template: a pod, or a DAG with its tasks."""
        inputs = self._inputs(layout, name, {**around.values, **(item or {})})
        outdir, run = (inputs.get(f"inputs.parameters.{name}") for name in ("outdir", "run"))
        where = self._changed(around.where, outdir, run)
        task = self._read(shown, name, around)
        if layout.repeats and task.state in BEGUN:
            layout = replace(layout, inside=self._layout.of_template(layout.template))
        if not layout.inside:
            told = {option: substituted(text, inputs) for option, text in layout.told.items()}
            member = _member(told.get("--role"), told.get("--member"))
            where = self._changed(where, told.get("--outdir"), told.get("--run"))
            return replace(task, where=where, step=layout.step, member=member)
        trail = around.trail if _is_continued(layout) else (*around.trail, shown)
        deeper = _Around(inputs, where, trail)
        last = max(self._attempts.get(name, ()), default=None)
        below = name if last is None else f"{name}({last})"
        return replace(
            task,
            where=where,
            group="item" if layout.looped else "dag",
            shape=replace(layout, looped=False).shape,
            inside=self.inside(layout.inside, below, deeper),
        )

    def _inputs(self, layout: Layout, name: str, values: Values) -> dict[str, str]:
        """The values of the tags inside a called template: the controller's once there is a node,
        before that the manifest's.
        """
        said = {input: substituted(text, values) for input, text in layout.arguments.items()}
        known = {input: value for input, value in said.items() if value is not None}
        seen = (self._nodes.get(name, {}).get("inputs") or {}).get("parameters") or []
        known |= {one["name"]: one["value"] for one in seen if isinstance(one.get("value"), str)}
        of_workflow = {tag: text for tag, text in values.items() if tag.startswith("workflow.")}
        return of_workflow | {f"inputs.parameters.{input}": known[input] for input in known}

    def _changed(self, where: Where, outdir: str | None, run: str | None) -> Where:
        if outdir is not None:
            where = replace(where, outdir="" if outdir == self._own_outdir else outdir)
        return replace(where, run=int(run)) if run is not None and run.isdecimal() else where

    def _read(self, shown: str, name: str, around: _Around) -> Task:
        """Read a task from its own node, or, while that is running, from its last attempt, which
        may wait for room or have failed and be retried.
        """
        path = name.removeprefix(f"{self._workflow}.")
        task = Task(shown, path=path, trail=around.trail, where=around.where)
        attempts = self._attempts.get(name, ())
        numbered = [(number, self._nodes.get(f"{name}({number})")) for number in attempts]
        known = [(number, node) for number, node in sorted(numbered) if node is not None]
        if name in self._nodes:
            known.insert(0, (-1, self._nodes[name]))
        if not known:
            return task
        (_, whole), (number, last) = known[0], known[-1]
        return replace(
            task,
            state=_state(whole, last),
            # The attempt says what happened, the whole that it was not repeated.
            message=on_one_line(last.get("message") or whole.get("message") or ""),
            attempt=max(1, number + 1),
            duration_s=_duration_s(whole),
            pod=_pod(last),
            log=last.get("logFile") or "",
        )


def _is_continued(layout: Layout) -> bool:
    """Whether its tasks stand beside those around it: a DAG calls itself to go on."""
    return layout.calls_itself and not layout.looped


def _had_nothing_to_do(task: Task) -> bool:
    """Whether a stage had no pods, such as the further learners of a run with one learner."""
    return task.group == "dag" and task.state == "succeeded" and not any(task.pods())


def _state(whole: Mapping[str, Any], last: Mapping[str, Any]) -> State:
    state = STATES.get(whole.get("phase") or "", "waiting")
    if state == "running" and last is not whole:
        of_last = STATES.get(last.get("phase") or "")
        state = {"pending": "pending", "failed": "retrying"}.get(of_last or "", "running")  # type: ignore[assignment]
    if state == "failed" and STOPPED.search(f"{whole.get('message')} {last.get('message')}"):
        return "stopped"
    return state


def _member(role: str | None, number: str | None) -> str:
    """The name of a member, such as `actor-3`; empty for a task's only pod and for the pod that
    represents the task.
    """
    return f"{role}-{number}" if role and number else ""


def _singular(name: str) -> str:
    """`runs` -> `run`, `experiments-with-actors` -> `experiment`."""
    return name.partition("-with-")[0].removesuffix("s")


def _pod(node: Mapping[str, Any]) -> str:
    """The pod's name, `<workflow>-<template>-<hash>`, from its node's, `<workflow>-<hash>` (Argo's
    pod names, version 2).
    """
    workflow, _, digest = node.get("id", "").rpartition("-")
    called = node.get("templateName") or (node.get("templateRef") or {}).get("template", "")
    return f"{workflow}-{called}-{digest}"


def _duration_s(node: Mapping[str, Any]) -> float | None:
    started = node.get("startedAt")
    finished = node.get("finishedAt")
    return seconds_between(started, finished) if started and finished else None


def seconds_between(earlier: str, later: str) -> float:
    """Seconds between two of Argo's times, `2026-11-21T12:00:00Z`, which come from one clock; 0 if
    that clock was set back in between.
    """
    first, second = (datetime.datetime.fromisoformat(text) for text in (earlier, later))
    return max(0.0, (second - first).total_seconds())
