"""The live view of what is more than one experiment: experiments side by side, loops in loops, stages
of several pods, DAGs that are repeated."""

from __future__ import annotations

import copy
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.algorithms import ppo
from config.cluster import load_cluster
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Status, write_status
from tests import synthetic
from tests.unit.workflows.local.nested_workflow import OWN, study
from tests.unit.workflows.loopback_argo import LoopbackArgo
from workflows import on_cluster, submit
from workflows.dag import render
from workflows.dag.layout import Layout
from workflows.dag.tasks import Task, Tasks, Where, read_tasks
from workflows.local import Capacity, run
from workflows.progress.ending import end
from workflows.progress.view import ProgressView

WITH_ACTORS = replace(ppo.ALGORITHM, topology="actor-learner", actor="nowhere:make_actor")
Document = dict[str, Any]
ESCAPE, TIME = re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), re.compile(r" \d+(\.\d)? s\b")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def statuses(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    """What the local engine says while it runs the study, and at its end."""
    folder, seen = tmp_path_factory.mktemp("study"), list[Document]()
    ended = run(
        copy.deepcopy(study("first", "second")),
        storage=folder / "storage",
        logs=folder,
        capacity=Capacity(4.0),
        on_change=lambda status: seen.append(status.as_dict()),
    )
    for status in (*seen, final := ended.as_dict()):
        for node in status["nodes"].values():
            node.pop("logFile", None)
    return [*seen, final]


def shown(out: io.StringIO, layout: Layout, *seen: Document, **options: Any) -> list[str]:
    given = {"resolved": None, "directory": None, **options}
    view = ProgressView(workflow="wf", layout=layout, out=out, **given)
    for status in seen:
        view.update(status)
        view._draw_now()
    last = ESCAPE.sub("", out.getvalue().rsplit("\x1b[J", 1)[-1])
    lines = [TIME.sub("", line) for line in last.splitlines()]
    return ["(clock)" if re.fullmatch(r"  \d+:\d\d", line) else line for line in lines]


def node(name: str, phase: str = "Running", **more: Any) -> Document:
    shown = {"id": name, "name": f"wf.{name}", "displayName": name, "type": "Retry"}
    return {**shown, "phase": phase, **more}


def status(*nodes: Document) -> Document:
    return {"phase": "Running", "nodes": {one["id"]: one for one in nodes}}


def found(tasks: Tasks, path: str) -> Task:
    (task,) = (task for task in tasks.pods() if task.path == path)
    return task


def test_two_experiments_to_their_end(
    statuses: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are those that the engine gives, which are a real controller's."""
    monkeypatch.setenv("COLUMNS", "120")
    layout = Layout.of(study("first", "second"))
    of_one = "(prepare, 2 x (train (learner, actors), evaluate), average)"
    assert layout.listed(2) == f"first {of_one}, second {of_one}, reports"
    assert shown(Terminal(), layout, *statuses) == [
        "(clock)",
        "  ✔ first",
        "    ✔ prepare",
        "    run 0  ✔ train  ✔ evaluate",
        "    run 1  ✔ train  ✔ evaluate",
        "    ✔ average",
        "  ✔ second",
        "    ✔ prepare",
        "    run 0  ✔ train  ✔ evaluate",
        "    run 1  ✘ train (✘ learner, ✘ actors 1 of 3)  – evaluate  learner: main: Error (exit code 3)",
        "    ✔ average",
        "  ✔ reports",
    ]
    said = [line[10:] for line in shown(io.StringIO(), layout, *statuses)]
    assert len(said) == len(set(said)), "nothing is said twice"
    assert "first  run 0  train  learner succeeded in" in said
    assert "first  run 0  train  actor 2 failed in: main: Error (exit code 3)" in said
    assert "second  run 1  train  learner failed in: main: Error (exit code 3)" in said
    assert f"report {OWN}/second succeeded in" in said


def test_how_two_experiments_ended(
    statuses: list[Document], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a stage tolerates is no failure; reasons and logs come from each one's own directory."""
    second = ExperimentDirectory(tmp_path / "second")
    (second.run(1).logs).mkdir(parents=True)
    for name, reason in (("train", "diverged"), ("train-actor-2", "the learner has gone")):
        (second.run(1).logs / f"{name}.log").write_text("…")
        failed = Status(task=name, state="failed", started="", exit_code=3, reason=reason)
        write_status(second.run(1).status / f"{name}.json", failed)
    tasks = read_tasks(statuses[-1], "wf", Layout.of(study("first", "second")), 0)
    assert end(tasks, 5.0, lambda outdir: tmp_path / Path(outdir).name, OWN) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Succeeded in 5.0 s"
    assert lines[1] == (
        "second run 1 train learner failed: diverged (main: Error (exit code 3)); "
        f"log: {second.run(1).logs / 'train.log'}"
    )
    assert lines[2] == (
        "second run 1 train actor 2 failed: the learner has gone (main: Error (exit code 3)); "
        f"log: {second.run(1).logs / 'train-actor-2.log'}"
    )
    assert lines[3:] == [
        f"Nothing was written to {tmp_path / 'first'}",
        f"Results: {tmp_path / 'second'}",
    ]


def test_every_task_knows_its_directory_before_and_after_its_node_exists(
    statuses: list[Document],
) -> None:
    layout = Layout.of(study("first", "second"))
    for seen in (status(node("first.runs(1:1).train.learner")), statuses[-1]):
        tasks = read_tasks(seen, "wf", layout, 0)
        assert found(tasks, "second.prepare").where == Where(f"{OWN}/second")
        learner = found(tasks, "first.runs(1:1).train.learner")
        assert (learner.where, learner.step) == (Where(f"{OWN}/first", 1), "train")


def test_what_the_controller_says_of_inputs_counts() -> None:
    """An outdir may come out of another task."""
    manifest = study("first")
    entry = manifest["spec"]["templates"][0]["dag"]["tasks"]
    entry[0]["arguments"]["parameters"][0]["value"] = "{{tasks.plan.outputs.parameters.outdir}}"
    layout = Layout.of(manifest)
    inputs = {"parameters": [{"name": "outdir", "value": "/storage/x"}]}
    for seen, outdir in ((status(), ""), (status(node("first", inputs=inputs)), "/storage/x")):
        tasks = read_tasks(seen, "wf", layout, 0)
        assert found(tasks, "first.prepare").where == Where(outdir)


def test_an_input_that_nobody_gives_has_its_default() -> None:
    manifest = study("first")
    manifest["spec"]["templates"][0]["dag"]["tasks"][0].pop("arguments")
    (experiment,) = (one for one in manifest["spec"]["templates"] if one["name"] == "experiment")
    experiment["inputs"]["parameters"][0]["default"] = "{{workflow.parameters.outdir}}/usual"
    tasks = read_tasks({}, "wf", Layout.of(manifest), 0)
    assert found(tasks, "first.prepare").where == Where(f"{OWN}/usual")


def test_of_a_dag_that_is_repeated_the_last_attempt_counts() -> None:
    layout = Layout.of(study("first"))
    seen = status(
        node("first"),
        node("first(0)", "Failed", message="child failed"),
        node("first(0).prepare", "Failed", message="main: Error (exit code 1)"),
        node("first(1)"),
        node("first(1).prepare", "Succeeded"),
        node("first(1).runs(0:0).train.learner"),
        node("first(1).runs(0:0).train.learner(0)", "Failed", message="OOMKilled"),
        node("first(1).runs(0:0).train.learner(1)"),
    )
    tasks = read_tasks(seen, "wf", layout, 0)
    assert (tasks.inside[0].attempt, tasks.inside[0].state) == (2, "running")
    assert found(tasks, "first(1).prepare").state == "succeeded"
    learner = found(tasks, "first(1).runs(0:0).train.learner")
    assert (learner.state, learner.attempt, learner.trail) == (
        "running",
        2,
        ("first", "run 0", "train"),
    )
    assert list(tasks.having("failed")) == []
    assert shown(Terminal(), layout, seen)[1:3] == ["  ● first (attempt 2)", "    ✔ prepare"]


def test_a_group_that_fails_by_itself_is_named() -> None:
    """A loop over what is no list has no item whose end could say so."""
    seen = status(
        node("first", "Failed"),
        node("first.runs", "Error", message="withParam value could not be parsed"),
    )
    layout = Layout.of(study("first"))
    (failed,) = read_tasks(seen, "wf", layout, 0).having("failed")
    assert failed.path == "first.runs"
    said = shown(io.StringIO(), layout, seen, seen)
    assert [line[10:] for line in said] == [
        "first  runs failed: withParam value could not be parsed"
    ]
    assert "✘ runs" in "".join(shown(Terminal(), layout, seen))


def looped() -> Layout:
    """A study that is a loop over experiments."""
    manifest = study("experiments")
    (entry,) = manifest["spec"]["templates"][0]["dag"]["tasks"]
    entry["withParam"] = "{{workflow.parameters.experiments}}"
    entry["arguments"] = {"parameters": [{"name": "outdir", "value": "/storage/{{item}}"}]}
    return Layout.of(manifest)


def test_loops_in_loops() -> None:
    seen = status(
        node("experiments(0:pong/v5.a)", "Succeeded"),
        node("experiments(0:pong/v5.a).runs(0:0).train", "Succeeded"),
        node("experiments(1:map-4x4)"),
        node("experiments(1:map-4x4).prepare", "Succeeded"),
        node("experiments(1:map-4x4).runs(10:10).train"),
        node("experiments(1:map-4x4).runs(10:10).train.actors"),
        node("experiments(1:map-4x4).runs(10:10).train.actors(0:0)"),
        node("experiments(1:map-4x4).runs(9:9).train", "Succeeded"),
    )
    tasks = read_tasks(seen, "wf", looped(), 7)
    actor = found(tasks, "experiments(1:map-4x4).runs(10:10).train.actors(0:0)")
    assert actor.where == Where("/storage/map-4x4", 10)
    assert actor.trail == ("experiment map-4x4", "run 10", "train")
    assert shown(Terminal(), looped(), seen) == [
        "(clock)",
        "  ✔ experiment pong/v5.a",
        "    ○ prepare",
        "    run 0  ✔ train  ○ evaluate",
        "    ○ average",
        "  ● experiment map-4x4",
        "    ✔ prepare",
        "    run  9  ✔ train  ○ evaluate",
        "    run 10  ● train (○ learner, ● actors 1 of 1)  ○ evaluate",
        "    ○ average",
        "  ○ reports",
    ]


def test_actors_stand_beside_the_training_that_they_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is tolerated that fails; one that finds no room is named, with the reason."""
    monkeypatch.setenv("COLUMNS", "160")
    directory = synthetic.experiment(tmp_path / "x", ("absent",), epochs=196)
    directory.run(0).root.mkdir(parents=True)
    directory.run(0).train_csv.write_text("epoch,step,return_mean\n98,25088,123.4\n")
    manifest = render.build_manifest(f"{__name__}:WITH_ACTORS", load_cluster())
    layout = Layout.of(render.with_values(manifest, {}, name="wf"))
    assert "2 x (train, train-actors (wait-for-training, actor), evaluate," in layout.listed(2)
    stage = "runs(0:0).train-actors"
    why = "Unschedulable: 0/1 nodes are available"
    before = [
        node("prepare", "Succeeded"),
        node("runs"),
        node("runs(0:0)"),
        node("runs(0:0).train"),
    ]
    before += [node(stage, type="DAG")]
    gate = f"{stage}.wait-for-training"
    files = {"resolved": synthetic.resolved_of(directory), "directory": directory.root}
    seen = status(*before, node(gate, type="TaskGroup"), node(f"{gate}(0:0)"))
    (row,) = (line for line in shown(Terminal(), layout, seen, **files) if "run 0" in line)
    assert row.endswith("● train-actors (● wait-for-training 1 of 1, ○ actor)")
    before += [node(f"{stage}.actor", type="TaskGroup")]
    before += [node(gate, "Succeeded", type="TaskGroup"), node(f"{gate}(0:0)", "Succeeded")]
    actors = [node(f"{stage}.actor({number}:{number})") for number in range(3)]
    waits = [node(f"{stage}.actor(2:2)(0)", "Pending", type="Pod", message=why)]
    seen = status(*before, *actors, *waits)
    (row,) = (line for line in shown(Terminal(), layout, seen, **files) if "run 0" in line)
    bar = "━━━━━━━━━━━━━━  50 %  return 123.4"
    assert row == f"  run 0  ● train  {bar}  ● train-actors 2 of 3  actor 2: {why}"
    said = [line[10:] for line in shown(io.StringIO(), layout, seen)]
    assert f"run 0  train-actors  actor 2 is waiting: {why}" in said

    over = [node(one["id"], "Succeeded") for one in before if one["id"] != "runs"]
    over += [node(f"{stage}.actor(0:0)", "Succeeded"), node(f"{stage}.actor(1:1)", "Failed")]
    lines = shown(Terminal(), layout, status(*over), **files)
    (row,) = (line for line in lines if "run 0" in line)
    assert row.startswith("  run 0  ✔ train  return 123.4  ✔ train-actors  ○ evaluate"), row
    tasks = read_tasks(status(*over), "wf", layout, 1)
    assert not list(tasks.having("failed"))


def test_further_learners_are_shown_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    layout = Layout.of(render.rendered("impala", load_cluster()))
    run = [node("runs"), node("runs(0:0)"), node("runs(0:0).train")]
    stage = "runs(0:0).train-learners"
    nothing = [
        node(stage, "Succeeded", type="DAG"),
        node(f"{stage}.learner", "Skipped", type="Skipped", message="Skipped, empty params"),
    ]
    (row,) = (one for one in shown(Terminal(), layout, status(*run, *nothing)) if "run 0" in one)
    assert "train-actors" in row and "learner" not in row
    some = [node(stage, type="DAG"), node(f"{stage}.learner", type="TaskGroup")]
    some += [node(f"{stage}.learner({at}:{at + 1})") for at in range(2)]
    seen = status(*run, *some)
    (row,) = (one for one in shown(Terminal(), layout, seen) if "run 0" in one)
    assert "● train-learners 2 of 2" in row
    pods = [one for one in read_tasks(seen, "wf", layout, 1).pods() if one.state == "running"]
    assert [one.member for one in pods] == ["", "learner-1", "learner-2"]


@pytest.mark.parametrize("rows", [8, 12, 24, 40])
def test_where_the_rows_are_few_what_does_something_has_them(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", str(rows))
    monkeypatch.setenv("COLUMNS", "60")
    ended = [node(f"experiments({i}:e{i})", "Succeeded") for i in range(30)]
    ended += [node(f"experiments({i}:e{i}).prepare", "Succeeded") for i in range(30)]
    runs = [node(f"experiments(30:e30).runs({i}:{i}).train") for i in range(100)]
    runs += [node(f"experiments(30:e30).runs({i}:{i}).train.learner") for i in range(100)]
    lines = shown(Terminal(), looped(), status(*ended, node("experiments(30:e30)"), *runs))
    assert len(lines) <= rows - 2 and max(map(len, lines)) <= 60
    assert any("● experiment e30" in line for line in lines)
    assert any(re.search(r"and \d+ more", line) for line in lines)
    if rows == 40:
        assert any("run  0  ● train" in line for line in lines)


def test_the_progress_of_each_experiment_comes_from_its_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own parameters: half of the epochs of one are not half of those of another."""
    monkeypatch.setattr("workflows.progress.lines.SAY_AFTER_S", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    for name, epochs in (("first", 196), ("second", 392)):
        directory = synthetic.experiment(tmp_path / name, ("absent",), epochs=epochs)
        run = directory.run(0)
        run.root.mkdir(parents=True)
        run.train_csv.write_text("epoch,step,return_mean\n98,25088,123.4\n")
    learning = [node(f"{name}.runs(0:0).train.learner") for name in ("first", "second")]
    stages = [node(f"{name}.runs(0:0).train") for name in ("first", "second")]
    layout, seen = Layout.of(study("first", "second")), status(*learning, *stages)
    files: dict[str, Any] = {"find": lambda outdir: tmp_path / Path(outdir).name}
    rows = [line for line in shown(Terminal(), layout, seen, **files) if "return" in line]
    assert [row.partition("━ ")[2] for row in rows] == [
        " 50 %  return 123.4 (● learner, ○ actors)",
        " 25 %  return 123.4 (● learner, ○ actors)",
    ]
    said = shown(io.StringIO(), layout, seen, **files)
    assert said[-1][10:] == "second  run 0  train  learner  25 %  return 123.4"


@pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
def test_a_workflow_of_two_experiments_can_be_followed(
    statuses: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(on_cluster, "POLL_S", 0.0)
    monkeypatch.setattr(on_cluster, "ASK_FOR_LINES_S", 0.0)
    monkeypatch.setattr("workflows.progress.lines.SAY_AFTER_S", 0.0)
    monkeypatch.chdir(tmp_path)
    running = status(
        node("second.runs(1:1).train.learner", id="wf-4711", templateName="learner"),
        node("second.runs(1:1).train.actors(0:0)", id="wf-4712", templateName="actor"),
    )
    with LoopbackArgo().running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.workflows["wf"] = study("first", "second")
        server.printed["wf-learner-4711"] = ["epoch 40 of 100, step 10240 of 25600, return 43.2"]
        server.printed["wf-actor-4712"] = ["epoch 99 of 100, step 10240 of 25600"]
        server.statuses = [running, running, running, statuses[-1]]
        assert submit.main(["--follow", "wf"]) == 0
    said = capsys.readouterr().out
    assert "second  run 1  train  learner  40 %  return 43.2" in said
    assert "99 %" not in said, "an actor's words are not the run's progress"
    assert "second run 1 train learner failed: main: Error (exit code 3)" in said
    assert f"Report: {OWN}/second/report.html on the cluster's storage" in said
