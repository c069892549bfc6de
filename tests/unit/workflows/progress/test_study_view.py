"""The live view of a study, and how its end is told: names of nodes as the controller makes them from
the study's manifest.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from config.cluster import load_cluster
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Status, write_status
from tests import synthetic
from tests.unit.workflows.progress.test_tree_view import Terminal, node, shown, status
from workflows import on_this_machine
from workflows.dag.layout import Layout
from workflows.dag.render import rendered_study, with_values
from workflows.dag.tasks import Where, read_tasks
from workflows.progress.ending import end
from workflows.request.preflight import Place

OUTDIR = "/storage/gae"
PPO = "round.experiments(0:ppo-cartpole)"
IMPALA = "round.experiments-with-actors(0:impala-cartpole)"
Capture = pytest.CaptureFixture[str]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def layout() -> Layout:
    values = {"study": "…", "outdir": OUTDIR}
    return Layout.of(with_values(rendered_study(load_cluster()), values, name="wf"))


def running() -> Document:
    """In the middle of a study without self-play."""
    return status(
        node("plan", "Succeeded"),
        node("round", type="DAG"),
        node("round.experiments", type="TaskGroup"),
        node(PPO, type="DAG"),
        node(f"{PPO}.prepare", "Succeeded"),
        node(f"{PPO}.runs(0:0).train"),
        node("round.experiments-with-actors", type="TaskGroup"),
        node(IMPALA, type="DAG"),
        node(f"{IMPALA}.prepare", "Succeeded"),
        node(f"{IMPALA}.runs(0:0).train", "Succeeded"),
        node(f"{IMPALA}.runs(0:0).evaluate"),
        node(
            "round.experiments-with-workers",
            "Skipped",
            type="Skipped",
            message="Skipped, empty params",
        ),
    )


def ended(phase: str, *more: Document) -> Document:
    """The end of a study of two experiments, each with its average."""
    nodes = [node("plan", "Succeeded"), node("round", "Succeeded", type="DAG")]
    for one in (PPO, IMPALA):
        nodes += [node(one, "Succeeded", type="DAG"), node(f"{one}.average", "Succeeded")]
    return {**status(*nodes, *more), "phase": phase}


def test_a_line_names_the_experiment_and_the_run(layout: Layout) -> None:
    said = [line[10:] for line in shown(io.StringIO(), layout, running())]
    assert said == [
        "plan succeeded",
        "experiment ppo-cartpole  prepare succeeded",
        "experiment ppo-cartpole  run 0  train started",
        "experiment impala-cartpole  prepare succeeded",
        "experiment impala-cartpole  run 0  train succeeded",
        "experiment impala-cartpole  run 0  evaluate started",
    ]


def test_the_table_has_a_block_for_each_experiment(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the loop over a topology that the study does not have, and without the steps that only
    some experiments have."""
    monkeypatch.setenv("COLUMNS", "120")
    assert shown(Terminal(), layout, running()) == [
        "  ✔ plan  0:00",
        "  ● experiment ppo-cartpole",
        "    ✔ prepare",
        "    run 0  ● train  ○ evaluate  ○ play  ○ plot-training  ○ plot-evaluation",
        "    ○ average  ○ plot-average  ○ report",
        "  ● experiment impala-cartpole",
        "    ✔ prepare",
        "    run 0  ✔ train  ○ train-learners  ○ train-actors  ● evaluate  ○ play  ○ plot-training  ○ plot-evaluation",
        "    ○ average  ○ plot-average  ○ report",
        "  ○ compare  ○ plot-comparison  ○ report-study",
    ]


def test_what_only_some_experiments_have_is_shown_where_it_is_seen(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    snapshots = f"{PPO}.runs(0:0).evaluate-snapshots"
    more = [node(snapshots, type="TaskGroup"), node(f"{snapshots}(0:0)")]
    seen = status(*running()["nodes"].values(), *more)
    (row, other) = (line for line in shown(Terminal(), layout, seen) if "run 0" in line)
    assert "● evaluate-snapshots" in row and "evaluation-curve" not in row
    assert "evaluate-snapshots" not in other


def test_every_pod_has_the_directory_of_its_experiment(layout: Layout) -> None:
    tasks = read_tasks(running(), "wf", layout, 0)
    places = {pod.path: pod.where for pod in tasks.pods()}
    assert places[f"{PPO}.runs(0:0).train"] == Where(f"{OUTDIR}/experiments/ppo-cartpole", 0)
    assert places["plan"] == places["compare"] == places["onExit.report-study"] == Where()


def experiment(folder: Path, name: str, value: float) -> ExperimentDirectory:
    """A complete one, with its average."""
    directory = synthetic.experiment(folder / "experiments" / name, ("complete",))
    synthetic.finish(directory, draw=False)
    path = directory.average / "summary.json"
    summary = json.loads(path.read_text())
    summary["evaluation"]["mean"] = value
    path.write_text(json.dumps(summary))
    return directory


def told(layout: Layout, folder: Path, seen: Document, capsys: Capture) -> tuple[int, list[str]]:
    """Exit code and lines of the end, on the machine where the study ran."""
    place = Place(storage=folder, outdir=OUTDIR, directory=Path("results/gae"))
    tasks = read_tasks(seen, "wf", layout, 0)
    code = end(tasks, 5.0, lambda one: on_this_machine.seen(one or OUTDIR, place), OUTDIR)
    return code, capsys.readouterr().out.splitlines()


def test_the_end_has_a_line_for_each_experiment_and_leads_to_the_study(
    layout: Layout, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories are named as the person has named the study's."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "gae"
    experiment(folder, "ppo-cartpole", 496.6)
    experiment(folder, "impala-cartpole", 12.5)
    capsys.readouterr()
    assert told(layout, tmp_path, ended("Succeeded"), capsys) == (
        0,
        [
            "Succeeded in 5.0 s",
            "results/gae/experiments/ppo-cartpole; evaluation: return 496.6, n = 1 of 1",
            "results/gae/experiments/impala-cartpole; evaluation: return 12.5, n = 1 of 1",
            "Results: results/gae",
        ],
    )
    (folder / "report.html").touch()
    assert told(layout, tmp_path, ended("Succeeded"), capsys)[1][-1] == (
        "Report: results/gae/report.html"
    )


def test_a_failure_is_told_with_its_experiment_reason_and_log(
    layout: Layout, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ExperimentDirectory(Path("results/gae/experiments/ppo-cartpole")).run(1)
    run.logs.mkdir(parents=True)
    (run.logs / "train.log").touch()
    failed = Status(task="train", state="failed", started="", exit_code=3, reason="diverged")
    write_status(run.status / "train.json", failed)
    more = [node(f"{PPO}.runs(1:1).train", "Failed", message="main: Error (exit code 3)")]
    code, lines = told(layout, tmp_path, ended("Failed", *more), capsys)
    assert code == 1
    assert lines[1] == (
        "experiment ppo-cartpole run 1 train failed: diverged (main: Error (exit code 3)); "
        "log: results/gae/experiments/ppo-cartpole/runs/1/logs/train.log"
    )


def test_a_refused_plan_is_told(
    layout: Layout, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "plan.log"
    log.write_text("plan: experiment ppo-cartpole: game 'cartpole' is gone\n")
    plan = node("plan", "Failed", message="main: Error (exit code 2)", logFile=str(log))
    seen = {**status(plan), "phase": "Failed"}
    assert told(layout, tmp_path, seen, capsys) == (
        1,
        [
            "Failed after 5.0 s",
            "plan failed: experiment ppo-cartpole: game 'cartpole' is gone (main: Error (exit code 2))",
            "Nothing was written to results/gae",
        ],
    )


def test_on_a_cluster_directories_are_those_of_the_pods(layout: Layout, capsys: Capture) -> None:
    """Whose storage is not seen here."""
    assert end(read_tasks(ended("Succeeded"), "wf", layout, 0), 5.0, lambda _: None, OUTDIR) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Succeeded in 5.0 s",
        f"Report: {OUTDIR}/report.html on the cluster's storage",
    ]
