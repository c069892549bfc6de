"""Snapshots of a policy: when they are taken, how they are divided among pods, and when their
evaluation counts."""

from __future__ import annotations

import numpy as np
import pytest

from config.errors import BadInput, NoUsableState, WrongDirectory
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory import snapshots
from steps.directory.files import write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.tables import format_table


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path, 0)


def take(run: RunDirectory, resolved: Resolved, step: int, weight: float = 0.0) -> None:
    state = {"format": 3, "network": {"w": np.full(3, weight)}}
    packed = snapshots.pack(step=step, epoch=step, state=state, identity=resolved.identity())
    snapshots.write(run, step, packed)


@pytest.mark.parametrize(
    ("count", "epochs", "expected"),
    [
        ("0", "60", []),
        ("2", "60", [0, 60]),
        ("5", "60", [0, 15, 30, 45, 60]),
        ("4", "10", [0, 3, 7, 10]),
        ("20", "3", [0, 1, 2, 3]),
    ],
)
def test_snapshots_lie_evenly_over_the_training(count, epochs, expected):
    resolved = resolve("ppo", {"evaluations": count, "epochs": epochs})
    assert resolved.snapshot_epochs == expected


def test_a_single_snapshot_is_refused():
    with pytest.raises(BadInput, match=r"'evaluations' cannot be 1.*allowed: 0, or an integer"):
        resolve("ppo", {"evaluations": "1"})


def test_every_snapshot_is_in_one_part_and_no_run_has_many_parts():
    for count in range(0, 200):
        listed = snapshots.parts(range(count))
        assert [step for part in listed for step in part] == list(range(count))
        sizes = [len(part) for part in listed]
        assert len(sizes) <= 8 and max(sizes, default=0) - min(sizes, default=0) <= 1
        assert count > 40 or max(sizes, default=0) <= 5


def test_an_evaluation_counts_for_the_weights_that_played_it(run):
    resolved = resolve("ppo", {"snapshot_episodes": "2"})
    take(run, resolved, 512)
    digest = snapshots.digest(run, 512, resolved)
    rows = [{"episode": number, "snapshot": digest} for number in range(2)]
    write_atomically(snapshots.table(run, 512), format_table(("episode", "snapshot"), rows))
    assert snapshots.evaluated(run, 512, resolved) is not None
    for other in ({"snapshot_episodes": "3"}, {"evaluation_policy": "sample"}):
        asked = resolve("ppo", {"snapshot_episodes": "2", **other})
        assert snapshots.evaluated(run, 512, asked) is None, "other episodes are asked for"
    for other in ({"video_episodes": "3"}, {"evaluate_above": "100"}):
        asked = resolve("ppo", {"snapshot_episodes": "2", **other})
        assert snapshots.evaluated(run, 512, asked) is not None, "the same episodes are asked for"
    take(run, resolved, 512, weight=1.0)
    assert snapshots.evaluated(run, 512, resolved) is None, "a later attempt has other weights"


def test_a_training_that_has_grown_keeps_the_spacing_of_its_snapshots():
    first = resolve("ppo", {"evaluations": "3", "epochs": "10"})
    grown = resolve("ppo", {"evaluations": "3", "epochs": "17"}).continuing(first)
    assert first.snapshot_epochs == [0, 5, 10]
    assert grown.snapshot_epochs == [0, 5, 10, 15, 17]


def test_a_training_that_goes_on_removes_what_was_taken_after_its_checkpoint(run):
    for step in (0, 256, 512, 768):
        take(run, resolve("ppo", {}), step)
    snapshots.discard_after(run, 512)
    assert run.snapshot_steps() == [0, 256, 512]


def test_a_damaged_or_foreign_snapshot_is_named(run):
    resolved = resolve("ppo", {})
    take(run, resolved, 512)
    assert snapshots.load(run, 512, resolved).epoch == 512
    with pytest.raises(WrongDirectory, match=r"000000000512 belongs to other .*seed: 0 there, 1"):
        snapshots.load(run, 512, resolve("ppo", {"seed": "1"}))
    (run.snapshot(512) / "tensors.safetensors").write_bytes(b"")
    with pytest.raises(NoUsableState, match=r"000000000512 is damaged .*delete it"):
        snapshots.load(run, 512, resolved)
