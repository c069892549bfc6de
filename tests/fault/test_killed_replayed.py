"""R2D2 and asynchronous SAC as real processes: an actor and the learner are killed, the run finishes,
nothing is learnt twice, and the replay goes on from what the checkpoint lists."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steps.directory import segments
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.tables import read_rows
from tests.fault.test_actors import end_group, has_joined, kill, start, status_of
from tests.waiting import PATIENCE_S, until

SHARED = {
    "runs": "1", "actors": "2", "evaluation_episodes": "3", "checkpoint_interval": "1",
    "log_interval": "1",
}  # fmt: skip
GIVEN = {
    "r2d2": {
        "game": "cartpole-no-velocity", "epochs": "20", "envs_per_actor": "2", "epoch_updates": "20",
        "learning_starts": "500", "replay_size": "3000",
    },
    "async-sac": {
        "game": "pendulum", "epochs": "20", "epoch_steps": "200", "hidden_sizes": "32",
        "replay_size": "1500",
    },
}  # fmt: skip


def saved(run: RunDirectory, step: int) -> dict[str, Any]:
    """The state of a checkpoint, without its arrays."""
    found: dict[str, Any] = json.loads((run.checkpoint(step) / "state.json").read_bytes())["state"]
    return found


def replay_of(run: RunDirectory, step: int) -> tuple[int, dict[str, np.ndarray]]:
    """The number of its first unroll, and all that it needs."""
    listed = segments.parse((run.checkpoint(step) / segments.STREAMS).read_bytes())["replay"]
    parts = list(segments.read(run, "replay", listed))
    return listed.first, {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", ["async-sac", pytest.param("r2d2", marks=pytest.mark.soak)])
def test_a_killed_actor_and_a_killed_learner_are_replaced(
    algorithm: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = ExperimentDirectory(tmp_path / "killed")
    run = directory.run(0)
    process = start(directory.root, algorithm, SHARED | GIVEN[algorithm])
    request.addfinalizer(lambda: end_group(process))
    until(lambda: all(has_joined(run, actor) for actor in (0, 1)), process)
    kill(run, "train-actor-1")
    until(lambda: len(run.checkpoint_steps()) > 1, process)
    os.kill(int(status_of(run, "train").process.split(":")[1]), signal.SIGSTOP)  # and so it stays
    before = run.checkpoint_steps()[-1]
    first, replay = replay_of(run, before)
    counted = saved(run, before)
    kill(run, "train")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output

    assert [status_of(run, f"train{one}").attempt for one in ("", "-actor-0")] == [2, 1]
    rows = read_rows(run.train_csv)
    assert [int(row["epoch"]) for row in rows] == list(range(1, 21))
    last = run.checkpoint_steps()[-1]
    ended = saved(run, last)
    assert ended["exchange"]["generation"] > counted["exchange"]["generation"]
    assert ended["queue"]["updates"] > counted["queue"]["updates"]
    assert ended["replay"]["added"] > counted["replay"]["added"]
    # What had been gathered is still there, in its place, as far as it was not written over.
    later_first, later = replay_of(run, last)
    common = range(max(first, later_first), first + len(replay["reward"]))
    for name, column in replay.items():
        mine = column[common.start - first : common.stop - first]
        theirs = later[name][common.start - later_first : common.stop - later_first]
        assert np.array_equal(mine, theirs), name
    assert len(later["reward"]) == min(ended["replay"]["added"], len(later["reward"]))
    seen = later["observation"].reshape(len(later["reward"]), -1)
    assert len(np.unique(seen, axis=0)) == len(seen), "an unroll was learnt from twice"
    assert len(read_rows(run.root / "evaluation.csv")) == 3
    assert "2 of 2 actors joined" in directory.report_html.read_text(encoding="utf-8")
