"""What every step promises, over every module in steps/: help, one line for bad input, a repeat
that changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import steps

STEPS = sorted(
    path.stem for path in Path(steps.__path__[0]).glob("*.py") if path.stem != "__init__"
)
IN_RUN = {"train", "evaluate", "play", "plot_training", "plot_evaluation", "export"}
PIPELINE = (
    "train",
    "evaluate",
    "play",
    "plot_training",
    "plot_evaluation",
    "average",
    "plot_average",
    "report",
)
ARGUMENTS = {name: ["--run=0"] if name in IN_RUN else [] for name in PIPELINE} | {
    "report": ["--workflow-status=Succeeded"]
}


def run(step: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", f"steps.{step}", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_steps_are_those_of_the_design():
    assert sorted((*PIPELINE, "prepare", "export")) == STEPS, (
        "export is a command, and no step of the DAG"
    )


@pytest.mark.parametrize("step", STEPS)
def test_help_explains_the_step(step):
    done = run(step, "--help")
    assert done.returncode == 0
    assert f"usage: python -m steps.{step}" in done.stdout
    assert ("--run" in done.stdout) == (step in IN_RUN)
    assert len(done.stdout.split("options:")[0].split()) > 12, "more than a usage line"


@pytest.mark.parametrize("step", PIPELINE)
def test_a_missing_directory_is_one_line_and_nothing_is_written(step, tmp_path):
    done = run(step, f"--outdir={tmp_path}/nowhere", *ARGUMENTS[step])
    assert done.returncode == 2
    assert (
        done.stderr
        == f"{step.replace('_', '-')}: no directory {tmp_path}/nowhere: prepare makes it\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """One real run of a few epochs, through every step."""
    outdir = tmp_path_factory.mktemp("steps") / "experiment"
    parameters = ("game=cartpole", "epochs=3", "evaluation_episodes=4", f"outdir={outdir}")
    prepared = run("prepare", "--algorithm=ppo", *(f"-p{one}" for one in parameters))
    assert prepared.returncode == 0, prepared.stderr
    for step in PIPELINE:
        done = run(step, f"--outdir={outdir}", *ARGUMENTS[step])
        assert done.returncode == 0, (step, done.stdout, done.stderr)
    return outdir


def test_the_pipeline_leaves_the_files_of_the_design(experiment):
    averages = [
        "average/train.csv",
        "average/evaluation.csv",
        "average/summary.json",
        "average/plots/training.png",
    ]
    tables = [
        "runs/0/train.csv",
        "runs/0/evaluation.csv",
        "runs/0/resources.csv",
        "runs/0/videos/episode-0.mp4",
    ]
    plots = [
        f"runs/0/plots/{name}.{kind}"
        for name in ("training", "evaluation", "losses")
        for kind in ("png", "svg")
    ]
    expected = ["experiment.yaml", "report.html", *averages, *tables, *plots]
    tasks = [name.replace("_", "-") for name in PIPELINE]
    for name in tasks:
        place = "runs/0/" if name.replace("-", "_") in IN_RUN else ""
        expected += [f"{place}logs/{name}.log", f"{place}status/{name}.json"]
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


@pytest.mark.parametrize("step", PIPELINE)
def test_a_repeat_changes_nothing(step, experiment):
    before = {path: path.stat().st_mtime_ns for path in experiment.rglob("*") if path.is_file()}
    done = run(step, f"--outdir={experiment}", *ARGUMENTS[step])
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stdout
    assert {
        path: path.stat().st_mtime_ns for path in experiment.rglob("*") if path.is_file()
    } == before


@pytest.mark.parametrize("step", ["evaluate", "plot_evaluation", "plot_training", "plot_average"])
def test_a_product_that_was_lost_is_made_again_with_the_same_bytes(step, experiment):
    product = {
        "evaluate": "runs/0/evaluation.csv",
        "plot_evaluation": "runs/0/plots/evaluation.svg",
        "plot_training": "runs/0/plots/losses.png",
        "plot_average": "average/plots/training.png",
    }[step]
    path = experiment / product
    before = path.read_bytes()
    path.unlink()
    done = run(step, f"--outdir={experiment}", *ARGUMENTS[step])
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == before
