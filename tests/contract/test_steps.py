"""What every step promises, over every module in steps/: help, one line for bad input, a repeat
that changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import steps
from config import pipeline
from config.pipeline import Step
from steps import prepare
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.directory.usable import usability
from steps.training.meeting import is_trained

FOLDER = sorted(path.stem for path in Path(steps.__path__[0]).glob("*.py"))
COMMANDS = {
    "steps.browse": False,
    "steps.notify": False,
    "steps.prune": False,
    "steps.export": True,
    "steps.check": False,
    "steps.versus": False,
    "steps.wait_for_training": True,
}
"""Modules of `steps` that are no step of the pipeline: whether they take `--run`."""
OF_MANY = (*pipeline.STUDY_STEPS, *pipeline.SEARCH_STEPS)
OF_STUDY = list(dict.fromkeys(step.module for step in OF_MANY if find_spec(step.module)))
IN_RUN = {step.module: step.in_run for step in pipeline.STEPS} | COMMANDS
IN_RUN |= dict.fromkeys(OF_STUDY, False)
AFTER_PREPARE = [step for step in pipeline.STEPS if step.name != pipeline.PREPARE]
each_step = pytest.mark.parametrize("step", AFTER_PREPARE, ids=lambda step: step.name)


PARAMETERS = (
    "game=cartpole", "epochs=3", "evaluation_episodes=4", "evaluations=3", "snapshot_episodes=2",
    "track=tests.recording_sink:Recording",
)  # fmt: skip
"""Of an experiment that has every step."""


def run(module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", module, *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=900,
    )


def run_step(step: Step, outdir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """As its pod is started."""
    more = {"run": ["--run=0"], "exit": ["--workflow-status=Succeeded"]}.get(step.scope, [])
    return run(step.module, f"--outdir={outdir}", *more, **variables)


def place_of(step: Step, outdir: Path) -> Path:
    return outdir / "runs" / "0" if step.in_run else outdir


def test_a_module_is_a_step_or_a_command():
    ours = {module.removeprefix("steps.") for module in IN_RUN if module.startswith("steps.")}
    assert sorted(ours | {"__init__"}) == FOLDER


@pytest.mark.parametrize("module", IN_RUN)
def test_help_explains_the_step(module):
    done = run(module, "--help")
    assert done.returncode == 0
    assert f"usage: python -m {module}" in done.stdout
    assert ("--run" in done.stdout) == IN_RUN[module]
    assert len(done.stdout.split("options:")[0].split()) > 12, "more than a usage line"


@each_step
def test_a_missing_directory_is_one_line_and_nothing_is_written(step, tmp_path):
    done = run_step(step, tmp_path / "nowhere")
    assert done.returncode == 2
    assert done.stderr == f"{step.name}: no directory {tmp_path}/nowhere: prepare makes it\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """One real run of a few epochs, through every step."""
    outdir = tmp_path_factory.mktemp("steps") / "experiment"
    parameters = (*PARAMETERS, f"outdir={outdir}")
    prepared = run("steps.prepare", "--algorithm=ppo", *(f"-p{one}" for one in parameters))
    assert prepared.returncode == 0, prepared.stderr
    for step in AFTER_PREPARE:
        done = run_step(step, outdir, ARGO_PROGRESS_FILE=str(outdir.parent / step.name))
        assert done.returncode == 0, (step.name, done.stdout, done.stderr)
    return outdir


@pytest.mark.slow
def test_what_takes_long_tells_argo_how_far_it_is(experiment):
    said = {path.name: path.read_text() for path in experiment.parent.iterdir() if path.is_file()}
    assert said == {"train": "3/3\n", "evaluate": "4/4\n", "evaluate-snapshots": "3/3\n"}


@pytest.mark.parametrize("step", pipeline.STEPS, ids=lambda step: step.name)
def test_a_step_leaves_what_its_row_says(step, experiment):
    place = place_of(step, experiment)
    expected = [f"logs/{step.name}.log", f"status/{step.name}.json", *step.leaves]
    missing = [
        leaf
        for leaf in expected
        if not ((place / leaf).is_dir() if leaf.endswith("/") else (place / leaf).is_file())
    ]
    assert missing == []


def test_nothing_is_left_that_no_row_names(experiment):
    """Beside the logs and the status of every step, and what is no single step's."""
    shared = {"logs/", "status/", "runs/", "compute.json"}
    for scope, place in (("run", experiment / "runs" / "0"), ("experiment", experiment)):
        named = {*pipeline.left_by(scope), *shared}
        named |= set(pipeline.left_by("exit")) if scope == "experiment" else set()
        found = {f"{path.name}/" if path.is_dir() else path.name for path in place.iterdir()}
        tops = {f"{leaf.split('/')[0]}/" if "/" in leaf else leaf for leaf in named}
        assert found <= tops


def test_the_files_of_the_design_are_there(experiment):
    plots = [
        f"runs/0/plots/{name}.{kind}"
        for name in ("training", "evaluation", "losses")
        for kind in ("png", "svg")
    ]
    expected = ["runs/0/videos/episode-0.mp4", "average/plots/training.png", *plots]
    assert [name for name in expected if not (experiment / name).is_file()] == []
    assert [path for path in experiment.rglob(".*") if path.name.endswith(".tmp")] == []
    assert len((experiment / "runs/0/evaluation.csv").read_text().splitlines()) == 5


def test_the_evaluation_is_what_the_status_says(experiment):
    status = json.loads((experiment / "runs/0/status/evaluate.json").read_text())
    rows = [
        line.split(",") for line in (experiment / "runs/0/evaluation.csv").read_text().splitlines()
    ]
    assert rows[0] == ["episode", "seed", "return", "length"]
    assert status["details"]["return_mean"] == pytest.approx(
        sum(float(row[2]) for row in rows[1:]) / 4
    )
    assert len({row[1] for row in rows[1:]}) == 4, "every episode has a seed of its own"


def listed_as_trained(experiment, folder, monkeypatch):
    """What `prepare` says of the runs when the same is submitted again."""
    monkeypatch.setenv("OUTPUTS", str(folder))
    given = (*PARAMETERS, f"outdir={experiment}", "runs=2")
    arguments = [word for one in given for word in ("-p", one)]
    assert prepare.main(["--algorithm=ppo", *arguments]) == 0
    return (folder / pipeline.TRAINED).read_text()


def test_prepare_lists_the_runs_that_need_no_training(experiment, tmp_path, monkeypatch):
    copy = tmp_path / "experiment"
    shutil.copytree(experiment, copy)
    record = copy / "experiment.yaml"
    record.write_text(record.read_text().replace(str(experiment), str(copy)))
    assert listed_as_trained(copy, tmp_path, monkeypatch) == ",0,"
    newest = max((copy / "runs/0/checkpoints").iterdir(), key=lambda path: int(path.name))
    (newest / "tensors.safetensors").write_bytes(b"")
    assert listed_as_trained(copy, tmp_path, monkeypatch) == ","


def lose_rows(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


def change_a_number(path):
    *rows, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*rows, last.replace("0.", "1.", 1)]))


@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        (lose_rows, "it has 3"),
        (change_a_number, "it holds other numbers"),
        (Path.unlink, "cannot be read: No such file"),
    ],
)
def test_a_training_table_that_was_changed_is_named_and_left_out(
    damage, seen, experiment, tmp_path
):
    copy = tmp_path / "experiment"
    shutil.copytree(experiment, copy)
    directory = ExperimentDirectory(copy)
    resolved = read_experiment(directory).resolved
    assert usability(directory.run(0), resolved)
    damage(directory.run(0).train_csv)
    found = usability(directory.run(0), resolved)
    assert found.state == "failed" and seen in found.reason
    assert ("remove" in found.reason) == (damage is not Path.unlink)
    status = read_status(directory.run(0).status / "train.json")
    assert not is_trained(directory.run(0), status)


@pytest.fixture(scope="module")
def paused(tmp_path_factory):
    """An experiment whose only run pauses at epoch 2 of 3."""
    outdir = tmp_path_factory.mktemp("paused") / "experiment"
    parameters = (*PARAMETERS, f"outdir={outdir}")
    prepared = run("steps.prepare", "--algorithm=ppo", *(f"-p{one}" for one in parameters))
    assert prepared.returncode == 0, prepared.stderr
    trained = run("steps.train", f"--outdir={outdir}", "--run=0", "--until=2")
    assert trained.returncode == 0, trained.stderr
    return outdir


SILENT = (
    pipeline.TRAIN, "evaluate-snapshots", "plot-training", "plot-average", pipeline.TRACK, pipeline.TRACK_REST,
)  # fmt: skip
"""What works with whatever a training has left, or reads no run itself."""
REFUSED = {"evaluate": 2, "play": 2, "plot-evaluation": 2, "report": 5}
NAMING = [
    (step.module, REFUSED.get(step.name, 0))
    for step in AFTER_PREPARE
    # A step of one's own may read what a paused training has left.
    if step.name not in SILENT and step.module.startswith("steps.")
]
NAMING += [("steps.export", 2), ("steps.compare", 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "code"), NAMING)
def test_a_paused_run_is_named_and_used_for_nothing(module, code, paused, tmp_path):
    outdir = tmp_path / "experiment"
    shutil.copytree(paused, outdir)
    record = outdir / "experiment.yaml"
    record.write_text(record.read_text().replace(str(paused), str(outdir)))
    words = [f"--outdir={outdir}", *(["--run=0"] if IN_RUN[module] else [])]
    if module == "steps.compare":
        words = [str(outdir), f"--outdir={tmp_path / 'comparison'}"]
    done = run(module, *words)
    assert done.returncode == code, done.stderr
    assert "paused at epoch 2" in done.stdout + done.stderr
    assert done.stderr.count("\n") <= 1
    assert not (outdir / "runs/0/evaluation.csv").exists()


@each_step
def test_a_repeat_changes_nothing(step, experiment):
    before = {path: path.stat().st_mtime_ns for path in experiment.rglob("*") if path.is_file()}
    done = run_step(step, experiment)
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stdout
    assert {
        path: path.stat().st_mtime_ns for path in experiment.rglob("*") if path.is_file()
    } == before


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("evaluate", "evaluation.csv"),
        ("plot-evaluation", "plots/evaluation.svg"),
        ("evaluate-snapshots", "snapshot-evaluations/000000000512.csv"),
        ("evaluation-curve", "best-snapshot.csv"),
        pytest.param("plot-training", "plots/losses.png", marks=pytest.mark.slow),
        pytest.param("plot-average", "average/plots/training.png", marks=pytest.mark.slow),
    ],
)
def test_a_product_that_was_lost_is_made_again_with_the_same_bytes(name, product, experiment):
    step = pipeline.find(name)
    path = place_of(step, experiment) / product
    before = path.read_bytes()
    path.unlink()
    done = run_step(step, experiment)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == before
