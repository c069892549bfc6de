"""A training that pauses, also twice, also killed around its pauses, ends with the bytes of one that never
paused."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from steps import train as train_step
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import read_status
from steps.directory.usable import usability
from tests.fault.conftest import Start, assignments, snapshot
from tests.fault.test_kills import Oracle, products

LENGTH = 11
TIED = {"anneal_learning_rate": "true", "anneal_clip": "true"}
"""Depend on the length: a pause must not be mistaken for it."""


def prepare(start: Start, outdir: Path) -> RunDirectory:
    given = assignments(outdir, epochs=LENGTH, evaluations=4, **TIED)
    step = start("steps.prepare", given)
    assert step.end() == 0, step.text
    return ExperimentDirectory(outdir).run(0)


def train(start: Start, outdir: Path, until: object = "", fault: str = "") -> tuple[str, str]:
    """What the step printed, and how many epochs it says that the run has; a fault kills it."""
    outputs = outdir.parent / "outputs"
    environment = {"OUTPUTS": str(outputs)} | ({"EXPERIMENT_FAULT": fault} if fault else {})
    step = start(
        "steps.train", ["--outdir", str(outdir), "--run", "0", f"--until={until}"], environment
    )
    assert step.end() == (-signal.SIGKILL if fault else 0), step.text
    return step.text, "" if fault else (outputs / "reached").read_text()


_ORACLE: list[Oracle] = []


@pytest.fixture
def oracle(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    if not _ORACLE:
        outdir = tmp_path_factory.mktemp("undisturbed") / "x"
        run = prepare(start, outdir)
        train(start, outdir)
        _ORACLE.append(products(run))
    return _ORACLE[0]


@pytest.mark.parametrize(
    ("pauses", "faults"),
    [
        # Every third epoch has a checkpoint, every second one a row.
        ([1, 5, 6], []),
        # Before the checkpoint of the pause, and between it and the status.
        ([5], ["before_rename:2:checkpoints"]),
        ([5], ["after_rename:2:checkpoints"]),
        ([7], ["mid_row:2:train.csv", "after_rename:1:checkpoints", "after_rename:2:checkpoints"]),
    ],
    ids=str,
)
def test_it_ends_with_the_same_bytes(
    start: Start, tmp_path: Path, oracle: Oracle, pauses: list[int], faults: list[str]
) -> None:
    outdir = tmp_path / "x"
    run = prepare(start, outdir)
    for pause in pauses:
        for fault in faults:
            train(start, outdir, pause, fault)
        said, reached = train(start, outdir, pause)
        assert f"paused at epoch {pause} of {LENGTH}" in said
        assert reached == str(pause)
        status = read_status(run.status / "train.json")
        assert status is not None and (status.state, status.exit_code) == ("paused", 0)
        usable = usability(run, read_experiment(ExperimentDirectory(outdir)).resolved)
        assert (usable.state, usable.reason) == ("paused", f"paused at epoch {pause} of {LENGTH}")
        assert not usable
    _, reached = train(start, outdir)
    assert reached == str(LENGTH)
    assert products(run) == oracle


def test_what_is_reached_is_not_trained_again(start: Start, tmp_path: Path) -> None:
    outdir = tmp_path / "x"
    run = prepare(start, outdir)
    train(start, outdir, 5)
    before = snapshot(run.root)
    for until in (5, 1):
        said, reached = train(start, outdir, until)
        assert reached == "5" and "nothing to do" in said
    assert snapshot(run.root) == before
    # As after a kill between the checkpoint and the status.
    document = json.loads((run.status / "train.json").read_bytes())
    expected = {name: value for name, value in document["details"].items() if name != "guard"}
    (run.status / "train.json").unlink()
    said, reached = train(start, outdir, 4)
    assert reached == "5" and "epoch 6" not in said
    found = read_status(run.status / "train.json")
    assert found is not None and found.state == "paused"
    for name in set(expected) - {"wall_s", "steps_per_second", "resumed_from"}:
        assert found.details[name] == expected[name], name
    said, reached = train(start, outdir, LENGTH + 1)
    assert reached == str(LENGTH) and "train of run 0: succeeded" in said
    assert train(start, outdir, 3)[1] == str(LENGTH)


@pytest.mark.parametrize("until", ["0", "-1", "half", "1.5"])
def test_a_pause_that_cannot_be_is_refused_in_one_line(
    start: Start, tmp_path: Path, until: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = prepare(start, tmp_path / "x")
    before = snapshot(tmp_path / "x")
    arguments = ["--outdir", str(run.root.parent.parent), "--run", "0", "--until", until]
    assert train_step.main(arguments) == 2
    error = capsys.readouterr().err
    assert f"--until cannot be '{until}'" in error and error.count("\n") == 1
    assert snapshot(tmp_path / "x") == before
