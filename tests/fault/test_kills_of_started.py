"""A training that began with another's weights, killed before its first checkpoint and after it: it
ends with the bytes of an undisturbed one, and needs the other no more once it has its own."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from steps.directory.layout import ExperimentDirectory, RunDirectory
from tests.fault.conftest import Start, assignments
from tests.fault.test_kills_of_algorithms import Products, products

pytestmark = pytest.mark.timeout(300)
SMALL = {
    "ppo": {"epochs": "8", "hidden_sizes": "8"},
    "dqn": {"epochs": "8", "hidden_sizes": "8", "epoch_steps": "64", "learning_starts": "100",
            "num_envs": "1", "replay_size": "300"},
}  # fmt: skip
OF_PPO = ("rollout_length", "update_epochs")


def prepared(start: Start, outdir: Path, algorithm: str, **given: str) -> RunDirectory:
    words = assignments(outdir, **SMALL[algorithm], **given)[2:]
    if algorithm != "ppo":
        pairs = zip(words[::2], words[1::2], strict=True)
        words = [one for pair in pairs if not pair[1].startswith(OF_PPO) for one in pair]
    step = start("steps.prepare", ["--algorithm", algorithm, *words])
    assert step.end() == 0, step.text
    return ExperimentDirectory(outdir).run(0)


def train(start: Start, outdir: Path, fault: str = "") -> int:
    environment = {"EXPERIMENT_FAULT": fault} if fault else {}
    step = start("steps.train", ["--outdir", str(outdir), "--run", "0"], environment)
    return step.end()


FAULTS = (
    ("before_rename:1:checkpoints", True),
    ("after_rename:1:checkpoints", False),
    ("mid_row:1:train.csv", False),
    ("after_rename:2:checkpoints", False),
)
"""Where it is killed, and whether it needs the other then."""


@pytest.mark.parametrize(
    ("algorithm", "faults"),
    [
        pytest.param("ppo", FAULTS[:2], id="ppo", marks=pytest.mark.slow),
        pytest.param("ppo", FAULTS[2:], id="ppo, later", marks=pytest.mark.slow),
        pytest.param("dqn", FAULTS, id="dqn", marks=pytest.mark.slow),
    ],
)
def test_killed_before_its_first_checkpoint_and_after_it(
    start: Start, tmp_path: Path, algorithm: str, faults: Sequence[tuple[str, bool]]
) -> None:
    theirs, undisturbed = tmp_path / "theirs", tmp_path / "undisturbed"
    prepared(start, theirs, algorithm)
    assert train(start, theirs) == 0
    run = prepared(start, undisturbed, algorithm, start_from=str(theirs), seed="3")
    shutil.copytree(undisturbed, tmp_path / "prepared")
    assert train(start, undisturbed) == 0
    oracle: Products = products(run)
    for number, (fault, needs_theirs) in enumerate(faults):
        outdir = tmp_path / f"killed-{number}"
        shutil.copytree(tmp_path / "prepared", outdir)
        assert train(start, outdir, fault) == -signal.SIGKILL
        ours = ExperimentDirectory(outdir).run(0)
        assert bool(ours.checkpoint_steps()) != needs_theirs
        theirs.rename(tmp_path / "away")
        if needs_theirs:
            assert train(start, outdir) == 2
            (tmp_path / "away").rename(theirs)
        assert train(start, outdir) == 0
        assert products(ours) == oracle, fault
        if not needs_theirs:
            (tmp_path / "away").rename(theirs)
