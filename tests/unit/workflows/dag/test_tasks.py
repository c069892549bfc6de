"""The table of tasks from Argo's nodes: names, retries, loops, skipped and missing nodes, as a real
controller writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.cluster import load_cluster
from workflows.dag.layout import Layout
from workflows.dag.render import rendered
from workflows.dag.tasks import STATES, Task, Tasks, read_tasks

CASES = Path(__file__).parents[3] / "contract"
ATTEMPT = re.compile(r"\(\d+\)$")
START, END = "2026-11-21T12:00:00Z", "2026-11-21T12:00:07Z"


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout.of(rendered("ppo", load_cluster()))


def node(name: str, kind: str, phase: str, **more: Any) -> dict[str, Any]:
    times = {"startedAt": START} | (
        {"finishedAt": END} if phase not in ("Pending", "Running") else {}
    )
    return {
        "id": name,
        "name": name,
        "displayName": name.rsplit(".", 1)[-1],
        "type": kind,
        "phase": phase,
        **times,
        **more,
    }


def table(layout: Layout, *nodes: dict[str, Any], runs: int = 0, **status: Any) -> Tasks:
    return read_tasks(
        {"phase": "Running", "nodes": {one["id"]: one for one in nodes}, **status},
        "wf",
        layout,
        runs,
    )


def outside(tasks: Tasks) -> dict[str, Task]:
    """The tasks of an experiment that belong to no run."""
    return {task.name: task for task in tasks.pods() if task.where.run is None}


def of_run(tasks: Tasks, index: int) -> dict[str, Task]:
    """The tasks of a run."""
    (loop,) = (task for task in tasks.inside if task.group == "loop")
    (run,) = (item for item in loop.inside if item.where.run == index)
    return {task.name: task for task in run.inside}


def test_layout_is_that_of_the_manifest(layout: Layout) -> None:
    assert layout.listed(3) == (
        "prepare, 3 x (train, evaluate, play, plot-training, plot-evaluation), "
        "average, plot-average, report"
    )


def test_before_the_controller_has_seen_it(layout: Layout) -> None:
    tasks = read_tasks({}, "wf", layout, 2)
    assert tasks.phase == "Pending"
    assert list(outside(tasks)) == ["prepare", "average", "plot-average", "report"]
    assert {task.where.run for task in tasks.pods()} == {None, 0, 1}
    assert {task.state for task in tasks.pods()} == {"waiting"}


def test_a_run_in_the_middle(layout: Layout) -> None:
    tasks = table(
        layout,
        node("wf", "DAG", "Running"),
        node("wf.prepare", "Retry", "Succeeded"),
        node("wf.prepare(0)", "Pod", "Succeeded"),
        node("wf.runs", "TaskGroup", "Running"),
        node("wf.runs(0:0)", "DAG", "Running"),
        node("wf.runs(0:0).train", "Retry", "Succeeded"),
        node("wf.runs(0:0).train(0)", "Pod", "Error", message="pod deleted"),
        node("wf.runs(0:0).train(1)", "Pod", "Succeeded"),
        node(
            "wf.runs(0:0).evaluate",
            "Skipped",
            "Skipped",
            message='when \'"false" == "true"\' evaluated false',
        ),
        node(
            "wf.runs(0:0).plot-evaluation",
            "Skipped",
            "Omitted",
            message="omitted: depends condition not met",
        ),
        node("wf.runs(1:1)", "DAG", "Running"),
        node("wf.runs(1:1).train", "Retry", "Running"),
        node(
            "wf.runs(1:1).train(0)",
            "Pod",
            "Pending",
            message="Unschedulable: 0/1 nodes\n are available: insufficient nvidia.com/gpu",
        ),
        runs=3,
    )
    assert (
        outside(tasks)["prepare"].state == "succeeded" and outside(tasks)["prepare"].duration_s == 7
    )
    train = of_run(tasks, 0)["train"]
    assert (train.state, train.attempt, of_run(tasks, 0)["evaluate"].state, of_run(tasks, 0)["plot-evaluation"].state) == (
        "succeeded", 2, "skipped", "omitted",
    )  # fmt: skip
    pending = of_run(tasks, 1)["train"]
    assert (pending.state, pending.message) == (
        "pending",
        "Unschedulable: 0/1 nodes are available: insufficient nvidia.com/gpu",
    )
    assert {task.where.run for task in tasks.pods()} == {None, 0, 1, 2}
    assert of_run(tasks, 2)["train"].state == "waiting"
    assert list(tasks.having("failed")) == []


def test_between_two_attempts(layout: Layout) -> None:
    tasks = table(
        layout,
        node("wf.runs(0:0).train", "Retry", "Running", message="Backoff for 5 seconds"),
        node("wf.runs(0:0).train(0)", "Pod", "Failed", message="main: Error (exit code 75)"),
    )
    assert (
        of_run(tasks, 0)["train"].state == "retrying"
        and "exit code 75" in of_run(tasks, 0)["train"].message
    )


def test_failures_are_named_with_their_run(layout: Layout) -> None:
    tasks = table(
        layout,
        node(
            "wf.runs(2:2).train",
            "Retry",
            "Failed",
            message="retryStrategy.expression evaluated to false",
        ),
        node("wf.runs(2:2).train(0)", "Pod", "Failed", message="main: Error (exit code 3)"),
        node(
            "wf.onExit.report",
            "Retry",
            "Failed",
            message="retryStrategy.expression evaluated to false",
        ),
        node("wf.onExit.report(0)", "Pod", "Failed", message="main: Error (exit code 5)"),
        phase="Failed",
    )
    assert [(task.where.run, task.name, task.message) for task in tasks.having("failed")] == [
        (2, "train", "main: Error (exit code 3)"),
        (None, "report", "main: Error (exit code 5)"),
    ]


@pytest.mark.parametrize(
    ("whole", "attempt"),
    [
        ("workflow shutdown with strategy:  Stop", "workflow shutdown with strategy:  Stop"),
        ("Stopped with strategy 'Stop'", "main: Error (exit code 75)"),
        (
            "retry exceeded workflow deadline 2026-11-21 12:00:00 +0000 UTC",
            "Step exceeded its deadline",
        ),
    ],
)
def test_what_was_stopped_did_not_fail(layout: Layout, whole: str, attempt: str) -> None:
    tasks = table(
        layout,
        node("wf.runs(0:0).train", "Retry", "Failed", message=whole),
        node("wf.runs(0:0).train(0)", "Pod", "Failed", message=attempt),
    )
    assert of_run(tasks, 0)["train"].state == "stopped"


def test_what_a_stage_of_several_pods_adds_is_below_train(layout: Layout) -> None:
    tasks = table(
        layout,
        node("wf.runs(0:0).train", "DAG", "Running"),
        node("wf.runs(0:0).train.learner", "Retry", "Running"),
        node("wf.runs(0:0).train.actors(0:0)", "Retry", "Failed"),
    )
    assert of_run(tasks, 0)["train"].state == "running" and list(tasks.having("failed")) == []


def test_the_workflow_of_another_name_is_not_mixed_in(layout: Layout) -> None:
    tasks = table(layout, node("wf2.prepare", "Retry", "Failed"), node("wf", "DAG", "Failed"))
    assert list(tasks.having("failed")) == []


def everything(tasks: tuple[Task, ...]) -> Iterator[Task]:
    for task in tasks:
        yield task
        yield from everything(task.inside)


@pytest.mark.parametrize("file", ["controller-cases.json", "further-cases.json"])
def test_every_node_that_a_real_controller_made_has_its_place(file: str) -> None:
    """With its phase, in all recorded workflows; a handler that is a bare pod is not shown."""
    for case in json.loads((CASES / file).read_text()):
        nodes = case["seen"].get("nodes") or []
        workflow = next((one["name"] for one in nodes if "." not in one["name"]), "")
        status = {"nodes": {one["name"]: {**one, "id": one["name"]} for one in nodes}}
        tasks = read_tasks(status, workflow, Layout.of(case["workflow"]), 0)
        shown = {f"{workflow}.{task.path}": task.state for task in everything(tasks.inside)}
        for one in nodes:
            name = ATTEMPT.sub("", one["name"])
            if name in (workflow, f"{workflow}.onExit"):
                continue
            assert name in shown, case["name"]
            if name == one["name"]:
                assert shown[name] in (STATES[one["phase"]], "stopped"), case["name"]
