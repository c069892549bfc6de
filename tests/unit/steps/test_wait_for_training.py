"""Actors and workers start when their training runs, or when it needs none any more."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from steps import wait_for_training
from steps.directory.experiment import read_experiment, training_inputs
from steps.directory.layout import ExperimentDirectory
from steps.training import meeting
from tests import synthetic
from tests.outside import ROOT, outside
from tests.waiting import PATIENCE_S

OURS = {"workflow": "uid-1"}


@pytest.fixture
def unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentDirectory:
    """An experiment of the workflow uid-1. Its only run has not begun."""
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1")
    monkeypatch.setattr(wait_for_training, "POLL_S", 0.02)
    directory = synthetic.experiment(tmp_path / "x", ("absent",))
    directory.owner_json.write_text('{"uid": "uid-1"}')
    return directory


def waits(directory: ExperimentDirectory, until: str = "") -> int:
    return wait_for_training.main([f"--outdir={directory.root}", "--run=0", f"--until={until}"])


def test_it_waits_until_the_training_of_this_workflow_runs(
    unfinished: ExperimentDirectory,
) -> None:
    status = unfinished.run(0).status / "train.json"
    synthetic.status(status, state="running", details={"workflow": "an earlier one"})
    begins = threading.Timer(0.5, lambda: synthetic.status(status, state="running", details=OURS))
    started = time.monotonic()
    begins.start()
    assert waits(unfinished) == 0
    assert time.monotonic() - started >= 0.5
    begins.join()


def test_it_does_not_wait_for_a_training_that_has_failed_for_good(
    unfinished: ExperimentDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic.status(
        unfinished.run(0).status / "train.json",
        state="failed", exit_code=3, reason="diverged", details=OURS,
    )  # fmt: skip
    assert waits(unfinished) == 0
    assert "the training has failed for good: diverged" in capsys.readouterr().out


def paused(directory: ExperimentDirectory, epoch: int) -> None:
    synthetic.status(
        directory.run(0).status / "train.json",
        state="paused", reason=f"paused at epoch {epoch} of 196", details={**OURS, "epoch": epoch},
        inputs=training_inputs(read_experiment(directory)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("until", "waits_for_more"), [("5", False), ("4", False), ("6", True), ("", True)]
)
def test_a_pause_is_its_end_if_it_knows_of_that_one(
    unfinished: ExperimentDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    until: str,
    waits_for_more: bool,
) -> None:
    """Before a training goes on, its status says where it paused last."""
    monkeypatch.setattr(meeting, "is_trained", lambda run, status: True)
    paused(unfinished, 5)
    status = unfinished.run(0).status / "train.json"
    begins = threading.Timer(0.2, lambda: synthetic.status(status, state="running", details=OURS))
    begins.start()
    assert waits(unfinished, until) == 0
    assert ("the run is paused at epoch 5" in capsys.readouterr().out) != waits_for_more
    begins.join()


def test_a_pause_that_comes_while_it_waits_is_its_end(unfinished: ExperimentDirectory) -> None:
    paused(unfinished, 5)
    again = threading.Timer(0.2, lambda: paused(unfinished, 8))
    again.start()
    assert waits(unfinished) == 0
    again.join()


def test_it_ends_when_another_workflow_takes_the_directory(
    unfinished: ExperimentDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = threading.Timer(0.3, lambda: unfinished.owner_json.write_text('{"uid": "uid-2"}'))
    taken.start()
    assert waits(unfinished) == 4
    taken.join()
    assert "uid-2" in capsys.readouterr().err


def test_a_stop_ends_it_without_a_trace(unfinished: ExperimentDirectory) -> None:
    before = sorted(unfinished.root.rglob("*"))
    command = [sys.executable, "-m", "steps.wait_for_training", f"--outdir={unfinished.root}"]
    process = subprocess.Popen(
        [*command, "--run=0"], cwd=ROOT, env=outside(EXPERIMENT_OWNER="uid-1"),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75, err
    assert err.count("\n") == 1
    assert sorted(unfinished.root.rglob("*")) == before
