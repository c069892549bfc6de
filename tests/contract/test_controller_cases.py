"""The local engine against a real controller: small workflows, each with what Argo 4.1.2 made of
it.

`controller-cases.json` (68) and `further-cases.json` (ours, recorded by `python -m
tests.cluster.comparison --record`) hold, for every case, phase and message of the workflow, and for
every node its name, type, phase, message, exit code and outputs. They must be the same here.
`hangs` marks the one that the controller never ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from workflows.local import Capacity, WorkflowStatus, run

FILES = ("controller-cases.json", "further-cases.json")
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case
    for file in FILES
    for case in json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
}
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC")
PLENTY = Capacity(64.0, ("0", "1"))
LONGEST_CASE_S = 120
AT_ONCE = 40
LONG = ("ads", "bare", "deadlineexit", "retryexpr", "specparallel")
"""They sleep for longer than the others: `make test-long`."""
SLEEPING = ("agg", "deadline", "parallel", "retrytimeout", "timeout", "timeoutparameter")
"""They sleep for seconds: started first, and looked at last."""


class Cases:
    """Runs the cases: with the one that is asked for, the next ones start too, because most of their
    time is sleep. Not all at once: other workers of pytest-xdist take a part of them.
    """

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self._folder, self._pool = folder, pool
        self._started: dict[str, Future[WorkflowStatus]] = {}

    def ended(self, name: str) -> WorkflowStatus:
        """Wait for the end of this case."""
        if name not in self._started:
            waiting = [one for one in CASES if one not in self._started and one not in LONG]
            first = waiting.index(name) if name in waiting else 0
            sleeping = [one for one in SLEEPING if one not in self._started]
            for one in {name, *sleeping, *waiting[first : first + AT_ONCE]}:
                self._started[one] = self._pool.submit(self._run, one)
        return self._started[name].result(LONGEST_CASE_S)

    def _run(self, name: str) -> WorkflowStatus:
        return run(
            CASES[name]["workflow"],
            storage=self._folder / "storage",
            capacity=PLENTY,
            logs=self._folder / name,
        )


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cases]:
    with ThreadPoolExecutor(len(CASES)) as pool:
        yield Cases(tmp_path_factory.mktemp("cases"), pool)


def seen_here(status: WorkflowStatus) -> dict[str, Any]:
    nodes = [node.as_dict() for node in status.nodes.values()]
    return {
        "phase": status.phase,
        "message": masked(status.message),
        "nodes": sorted(map(one_node, nodes), key=lambda node: node["name"]),
    }


def one_node(node: dict[str, Any]) -> dict[str, Any]:
    shown = {"name": node["name"], "type": node["type"], "phase": node["phase"]}
    if node.get("message"):
        shown["message"] = masked(node["message"])
    outputs = node.get("outputs") or {}
    if "exitCode" in outputs:
        shown["exitCode"] = outputs["exitCode"]
    if "parameters" in outputs:
        shown["outputs"] = {
            parameter["name"]: parameter["value"] for parameter in outputs["parameters"]
        }
    return shown


def masked(text: str) -> str:
    return TIME.sub("<time>", text)


def test_there_are_68_cases_and_ours() -> None:
    assert len(CASES) >= 68 + 40
    assert [name for name, case in CASES.items() if case["seen"].get("hangs")] == [
        "failedprodnodef"
    ]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in sorted(CASES, key=SLEEPING.__contains__)
        if not CASES[name]["seen"].get("hangs")
    ],
)
def test_a_case_ends_as_on_the_controller(name: str, cases: Cases) -> None:
    seen = CASES[name]["seen"]
    expected = {**seen, "nodes": sorted(seen.get("nodes") or [], key=lambda node: node["name"])}
    assert seen_here(cases.ended(name)) == expected


def test_the_case_that_hangs_there_ends_here_with_a_clear_message(cases: Cases) -> None:
    status = cases.ended("failedprodnodef")
    consumer = status.by_name("m-failedprodnodef.use")
    assert (status.phase, consumer.phase) == ("Error", "Error")
    assert (
        "{{tasks.f.outputs.parameters.out}} will never have a value: task 'f' is Failed"
        in consumer.message
    )


def test_the_comparison_can_fail(cases: Cases) -> None:
    """The twin: another case's result is not taken for this one's."""
    assert seen_here(cases.ended("retry")) != CASES["retryok"]["seen"]
