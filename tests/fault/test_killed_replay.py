"""DQN with its replay: killed anywhere, it ends with the weights, the rows and the experience of an
undisturbed training."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from steps.directory.layout import ExperimentDirectory, RunDirectory
from tests.fault.conftest import Start

pytestmark = pytest.mark.timeout(900)
Products = tuple[object, ...]
TINY = {
    "game": "cartpole", "epochs": "40", "epoch_steps": "100", "checkpoint_interval": "3",
    "log_interval": "2", "learning_starts": "300", "train_every": "10", "updates": "2",
    "hidden_sizes": "16", "replay_size": "1500", "prioritised": "true", "n_step": "3",
}  # fmt: skip
"""The replay is full in the middle and written over from there on."""


def prepare(start: Start, outdir: Path, given: dict[str, str]) -> RunDirectory:
    words = [
        word for name, value in given.items() for word in ("-p", f"{name}={value}")
    ]  # fmt: skip
    step = start("steps.prepare", ["--algorithm", "dqn", "-p", f"outdir={outdir}", *words])
    assert step.end() == 0, step.text
    return ExperimentDirectory(outdir).run(0)


def train(outdir: Path) -> tuple[str, list[str]]:
    return "steps.train", ["--outdir", str(outdir), "--run", "0"]


def products(run: RunDirectory) -> Products:
    """What must be equal: train.csv, weights, the rest of the state, and every row of the replay."""
    final = run.checkpoint(run.checkpoint_steps()[-1])
    state = json.loads((final / "state.json").read_bytes())["state"]
    streams = json.loads((final / "streams.json").read_bytes())
    files = [run.train_csv, final / "tensors.safetensors"]
    files += [
        run.stream(name) / segment["name"]
        for name, stream in streams.items()
        for segment in stream["segments"]
    ]
    return (*(path.read_bytes() for path in files), state, streams)


def undisturbed(start: Start, outdir: Path, given: dict[str, str]) -> Products:
    run = prepare(start, outdir, given)
    step = start(*train(outdir))
    assert step.end(600) == 0, step.text
    return products(run)


_EXPECTED: list[Products] = []


@pytest.fixture
def expected(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Products:
    if not _EXPECTED:
        outdir = tmp_path_factory.mktemp("undisturbed") / "x"
        _EXPECTED.append(undisturbed(start, outdir, TINY))
    return _EXPECTED[0]


@pytest.mark.parametrize(
    "fault",
    ["before_rename:2:checkpoints", "after_rename:9:checkpoints"],
)
@pytest.mark.slow
def test_killed_at_a_chosen_place(
    start: Start, tmp_path: Path, expected: Products, fault: str
) -> None:
    """Before and after the ring is written over."""
    run = prepare(start, tmp_path / "x", TINY)
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": fault})
    assert step.end() == -signal.SIGKILL, step.text
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert products(run) == expected


@pytest.mark.slow
def test_a_sigterm_is_no_loss(start: Start, tmp_path: Path, expected: Products) -> None:
    run = prepare(start, tmp_path / "x", TINY)
    step = start(*train(tmp_path / "x"))
    step.wait_for(run.checkpoint_steps)
    step.kill(signal.SIGTERM)
    assert step.end() == 75, step.text
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert products(run) == expected


def test_a_missing_segment_is_named_and_not_gone_on_without(start: Start, tmp_path: Path) -> None:
    run = prepare(start, tmp_path / "x", TINY)
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": "after_rename:4:checkpoints"})
    assert step.end() == -signal.SIGKILL, step.text
    removed = sorted(run.stream("replay").iterdir())
    for path in removed:
        path.unlink()
    again = start(*train(tmp_path / "x"))
    assert again.end() == 4, again.text
    assert any(f"replay/{path.name}" in again.text for path in removed)
