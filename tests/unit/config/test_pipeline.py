"""The table of the pipeline's steps: what it must be, and that a step is added by one row."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config import pipeline
from config.cluster import load_cluster
from config.errors import BadInput, WrongDirectory
from config.pipeline import Need, Step
from steps import report
from steps.directory.files import refuse_links
from tests import own_step, synthetic
from workflows.dag.pods import cpu
from workflows.dag.render import build_manifest
from workflows.dag.tasks import Layout
from workflows.progress.view import ProgressView

ROOT = Path(__file__).parents[3]


def test_the_rows_fit_together() -> None:
    """A need is a row above it that can be seen from there; a condition has a default."""
    seen: dict[str, Step] = {}
    for step in pipeline.STEPS:
        assert step.name not in seen
        for need in step.needs:
            if need.task == pipeline.RUNS:
                assert step.scope == "experiment" and any(one.in_run for one in seen.values())
                continue
            needed = seen[need.task]
            assert needed.scope == step.scope or (needed.scope, step.scope) == ("experiment", "run")
            defaults = {output.name: output.default for output in needed.outputs}
            assert not need.only_if or defaults[need.only_if] is not None
        seen[step.name] = step


def test_the_rows_of_a_study_fit_together() -> None:
    """The first lists the experiments, and what comes after them waits for all, however they ended."""
    (decide,) = (step for step in pipeline.STUDY_STEPS if step.scope == "study-round")
    assert (decide.name, decide.needs) == (pipeline.DECIDE, ())
    first, *rest, last = (step for step in pipeline.STUDY_STEPS if step is not decide)
    assert (first.name, first.scope, first.needs) == (pipeline.PLAN, "study", ())
    outputs = {output.name for output in first.outputs}
    assert outputs == {*pipeline.EXPERIMENTS.values(), pipeline.AGAIN}
    assert outputs == {output.name for output in decide.outputs}
    assert not [output for output in first.outputs if output.default is not None]
    seen = [first.name, pipeline.ROUND]
    for step in rest:
        assert step.scope == "study" and step.pool == "cpu"
        assert step.needs, "it would begin together with plan"
        for need in step.needs:
            assert need.task in seen
            assert (need.end == "ended") == (need.task == pipeline.ROUND)
        seen.append(step.name)
    assert (last.scope, last.needs) == ("study-exit", ())
    names = [step.name for step in (*pipeline.STEPS, *pipeline.STUDY_STEPS)]
    assert len(set(names)) == len(names)


def test_the_first_step_of_a_study_and_the_last_have_a_deadline() -> None:
    """That of plan leaves time for many trials of games, each as long as prepare may take."""
    deadlines = {step.name: step.deadline_s for step in pipeline.STUDY_STEPS}
    first, last = pipeline.STUDY_STEPS[0].name, pipeline.STUDY_STEPS[-1].name
    bounded = {name for name, seconds in deadlines.items() if seconds}
    assert bounded == {first, pipeline.DECIDE, last}
    assert (deadlines[first] or 0) > (pipeline.find(pipeline.PREPARE).deadline_s or 0)
    assert (deadlines[last] or 0) > (pipeline.find("report").deadline_s or 0)


@pytest.mark.parametrize(
    "step", [*pipeline.STEPS, *pipeline.STUDY_STEPS], ids=lambda step: step.name
)
def test_every_step_has_a_module_with_main(step: Step) -> None:
    assert pipeline.find(step.name) is step
    assert callable(importlib.import_module(step.module).main)


def test_every_command_has_its_place_in_the_reference() -> None:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "reference_pages.py")
    assert spec is not None and spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    modules = {f"steps.{path.stem}" for path in (ROOT / "steps").glob("[a-z]*.py")}
    assert sorted(pages.COMMANDS) == sorted({*pages.SUBMIT, *modules})
    shown = pages.commands()
    assert "steps.track [-h] --outdir OUTDIR [--run RUN]" in shown
    for word in ("Raises `", "Returns ", "the first all", "\n    network or"):
        assert word not in shown, "said to whoever calls the function, not the command"


def test_what_needs_the_evaluation_may_be_left_out() -> None:
    """Of a run below `evaluate_above` a report requires the rest."""
    left_out = {step.name for step in pipeline.STEPS if pipeline.may_be_left_out(step)}
    assert left_out == {
        "evaluate", "play", "plot-evaluation", "evaluate-snapshots", "evaluation-curve", "play-learning",
    }  # fmt: skip
    further = Step(name="further", scope="run", needs=(Need(task="play"),))
    assert pipeline.may_be_left_out(further)
    assert not pipeline.may_be_left_out(own_step.STEP)


def test_an_unknown_step_is_named() -> None:
    with pytest.raises(BadInput, match="unknown step 'plot-trainin'; did you mean 'plot-training'"):
        pipeline.find("plot-trainin")


def test_the_command_of_a_pod_is_independent_of_its_template() -> None:
    pod = cpu(load_cluster(), "actor", "steps.train", own=())
    assert (pod.name, pod.command) == ("actor", ["python", "-m", "steps.train"])
    assert Step(name="plot-rows", scope="run").module == "steps.plot_rows"
    assert own_step.STEP.module == "tests.own_step"


@pytest.fixture
def one_row_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline with a step of the test's own."""
    monkeypatch.setattr(pipeline, "STEPS", (*pipeline.STEPS, own_step.STEP))


@pytest.mark.usefixtures("one_row_more")
def test_one_row_more_is_in_the_dag_and_in_the_live_view() -> None:
    manifest = build_manifest("ppo", load_cluster())
    templates: dict[str, Any] = {one["name"]: one for one in manifest["spec"]["templates"]}
    task = next(one for one in templates["run"]["dag"]["tasks"] if one["name"] == "count-rows")
    assert task["depends"] == "train.Succeeded"
    container = templates["count-rows"]["container"]
    assert container["command"] == ["python", "-m", "tests.own_step"]
    assert container["args"][1] == "--run={{inputs.parameters.run}}"
    out = io.StringIO()
    layout = Layout.of(manifest)
    with ProgressView(workflow="wf", layout=layout, resolved=None, directory=None, out=out) as view:
        node = {"name": "wf.runs(0:0).count-rows", "type": "Retry", "phase": "Running"}
        view.update({"phase": "Running", "nodes": {"1": node}})
    assert "run 0  count-rows started" in out.getvalue()


@pytest.mark.usefixtures("one_row_more")
def test_one_row_more_is_in_the_report_and_its_verdict(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = synthetic.experiment(tmp_path, ("complete", "skipped"), evaluate_above=470)
    synthetic.finish(directory, draw=False)
    for run in (0, 1):  # where the step has not run, it left no status
        (directory.run(run).status / "count-rows.json").unlink(missing_ok=True)
    arguments = [f"--outdir={tmp_path}", "--workflow-status=Succeeded"]
    assert report.main(arguments) == 5, "a run below the threshold must have it, too"
    assert "count-rows of 2 runs (0-1): not started" in capfd.readouterr().err
    for run in (0, 1):
        assert own_step.main([f"--outdir={tmp_path}", f"--run={run}"]) == 0
    assert report.main(arguments) == 0
    page = directory.report_html.read_text()
    assert "<th>count-rows</th>" in page
    assert 'href="runs/0/rows.txt"' in page and 'href="runs/0/counted"' in page
    (tmp_path / "runs/1/counted").rmdir()
    (tmp_path / "runs/1/counted").symlink_to(tmp_path)
    with pytest.raises(WrongDirectory, match="counted is a symbolic link"):
        refuse_links(directory, 1)


def test_one_row_more_is_in_the_contract_tests(tmp_path: Path) -> None:
    row = "from config import pipeline\nfrom config.pipeline import Need, Step\n"
    row += f"pipeline.STEPS += ({own_step.STEP!r},)\n"
    (tmp_path / "sitecustomize.py").write_text(row)  # each process starts with it
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    chosen = "(count-rows and missing_directory) or tests.own_step"
    done = subprocess.run(
        [*command, "tests/contract/test_steps.py", "-k", chosen],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_help_explains_the_step[tests.own_step] PASSED" in done.stdout
    assert "nothing_is_written[count-rows] PASSED" in done.stdout
