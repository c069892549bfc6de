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


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every case, started at once: most of their time is sleep. name -> future of its status."""
    folder = tmp_path_factory.mktemp("cases")
    with ThreadPoolExecutor(len(CASES)) as pool:
        futures: dict[str, Future[WorkflowStatus]] = {
            name: pool.submit(
                run,
                case["workflow"],
                storage=folder / "storage",
                capacity=PLENTY,
                logs=folder / name,
            )
            for name, case in CASES.items()
        }
        yield futures


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
    "name", [name for name, case in CASES.items() if not case["seen"].get("hangs")]
)
def test_a_case_ends_as_on_the_controller(
    name: str, ended: dict[str, Future[WorkflowStatus]]
) -> None:
    seen = CASES[name]["seen"]
    expected = {**seen, "nodes": sorted(seen.get("nodes") or [], key=lambda node: node["name"])}
    assert seen_here(ended[name].result(LONGEST_CASE_S)) == expected


def test_the_case_that_hangs_there_ends_here_with_a_clear_message(
    ended: dict[str, Future[WorkflowStatus]],
) -> None:
    status = ended["failedprodnodef"].result(LONGEST_CASE_S)
    consumer = status.by_name("m-failedprodnodef.use")
    assert (status.phase, consumer.phase) == ("Error", "Error")
    assert (
        "{{tasks.f.outputs.parameters.out}} will never have a value: task 'f' is Failed"
        in consumer.message
    )


def test_the_comparison_can_fail(ended: dict[str, Future[WorkflowStatus]]) -> None:
    """The twin: another case's result is not taken for this one's."""
    assert seen_here(ended["retry"].result(LONGEST_CASE_S)) != CASES["retryok"]["seen"]
