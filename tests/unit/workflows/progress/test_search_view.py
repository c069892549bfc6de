"""The live view of a search: names of nodes as the controller makes them from the search's manifest."""

from __future__ import annotations

import io
from typing import Any

import pytest

from config.cluster import load_cluster
from tests.unit.workflows.progress.test_tree_view import Terminal, node, shown, status
from workflows.dag.layout import Layout
from workflows.dag.render import SEARCH, rendered_study, with_values
from workflows.dag.tasks import Where, read_tasks

OUTDIR = "/storage/search"
LANE = "lanes(0:0)"
FIRST = f"{LANE}.trials(0:trial-0000)"
SECOND = f"{LANE}.again.trials(0:trial-0002)"
Document = dict[str, Any]


@pytest.fixture(scope="module")
def layout() -> Layout:
    values = {"study": "…", "outdir": OUTDIR}
    return Layout.of(with_values(rendered_study(load_cluster(), kind=SEARCH), values, name="wf"))


def running() -> Document:
    """One lane at its second trial, which has come to its second rung."""
    skipped = {"type": "Skipped", "message": "Skipped, empty params"}
    nodes = [
        node("plan-search", "Succeeded"),
        node("lanes", type="TaskGroup"),
        node(LANE, type="DAG"),
        node(f"{LANE}.propose", "Succeeded"),
        node(f"{LANE}.trials", "Succeeded", type="TaskGroup"),
        node(f"{LANE}.trials-with-actors", "Skipped", **skipped),
        node(f"{LANE}.trials-with-workers", "Skipped", **skipped),
        node(FIRST, "Succeeded", type="DAG"),
        node(f"{FIRST}.prepare", "Succeeded"),
        node(f"{FIRST}.rung", "Succeeded", type="DAG"),
        node(f"{FIRST}.rung.runs(0:0).train", "Succeeded"),
        node(f"{FIRST}.rung.judge", "Succeeded"),
        node(f"{LANE}.tell", "Succeeded"),
        node(f"{LANE}.again", type="DAG"),
        node(f"{LANE}.again.propose", "Succeeded"),
        node(f"{LANE}.again.trials", type="TaskGroup"),
        node(SECOND, type="DAG"),
        node(f"{SECOND}.prepare", "Succeeded"),
        node(f"{SECOND}.rung", type="DAG"),
        node(f"{SECOND}.rung.runs(0:0).train", "Succeeded"),
        node(f"{SECOND}.rung.judge", "Succeeded"),
        node(f"{SECOND}.rung.again", type="DAG"),
        node(f"{SECOND}.rung.again.runs(0:0).train"),
    ]
    return status(*nodes)


def test_a_line_names_the_lane_the_trial_and_the_run(layout: Layout) -> None:
    """Not how deeply the templates call each other."""
    said = [line[10:] for line in shown(io.StringIO(), layout, running())]
    assert said == [
        "plan-search succeeded",
        "lane 0  propose succeeded",
        "lane 0  trial trial-0000  prepare succeeded",
        "lane 0  trial trial-0000  run 0  train succeeded",
        "lane 0  trial trial-0000  judge succeeded",
        "lane 0  tell succeeded",
        "lane 0  propose succeeded",
        "lane 0  trial trial-0002  prepare succeeded",
        "lane 0  trial trial-0002  run 0  train succeeded",
        "lane 0  trial trial-0002  judge succeeded",
        "lane 0  trial trial-0002  run 0  train started",
    ]


def test_every_pod_has_the_directory_of_its_trial(layout: Layout) -> None:
    tasks = read_tasks(running(), "wf", layout, 0)
    places = {pod.path: pod.where for pod in tasks.pods()}
    assert places[f"{FIRST}.rung.runs(0:0).train"] == Where(f"{OUTDIR}/experiments/trial-0000", 0)
    later = f"{SECOND}.rung.again.runs(0:0).train"
    assert places[later] == Where(f"{OUTDIR}/experiments/trial-0002", 0)
    assert places[f"{SECOND}.rung.judge"] == Where(f"{OUTDIR}/experiments/trial-0002")


def test_the_table_has_a_block_for_each_trial(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert shown(Terminal(), layout, running()) == [
        "  ✔ plan-search  0:00",
        "  ● lane 0",
        "    ✔ propose",
        "    ✔ trial trial-0000",
        "      ✔ prepare",
        "      run 0  ✔ train",
        "      ✔ judge  ○ evaluate  ○ whole",
        "    ✔ tell  ✔ propose",
        "    ● trial trial-0002",
        "      ✔ prepare",
        "      run 0  ✔ train",
        "      ✔ judge  ○ evaluate  ○ whole",
        "      run 0  ● train",
        "      ○ judge  ○ evaluate  ○ whole",
        "    ○ trials-with-actors  ○ trials-with-workers",
        "  ○ choose",
        "  ○ winner",
        "    ○ experiments  ○ experiments-with-actors  ○ experiments-with-workers",
        "  ○ compare  ○ plot-comparison  ○ report-search",
    ]
