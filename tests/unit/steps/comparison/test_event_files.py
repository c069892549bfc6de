"""TensorBoard's event files, written by its own writers, as CleanRL, Stable-Baselines3 and RLlib do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import SummaryWriter

from config.errors import BadInput
from steps.comparison.readers import read

Points = Iterable[tuple[int, float]]
CLEANRL = "CartPole-v1__ppo__1__1700000000"
STARTED_S = 1_700_000_000.0


def written(folder: Path, tags: Mapping[str, Points], *, began: int = 0, **options: bool) -> Path:
    """One event file; a point is written every half second. Returns the file."""
    before = set(folder.glob("*")) if folder.is_dir() else set()
    writer = SummaryWriter(str(folder), filename_suffix=f".{began}")
    for tag, points in tags.items():
        for at, (step, value) in enumerate(points):
            writer.add_scalar(tag, value, step, walltime=STARTED_S + began + at / 2, **options)
    writer.close()
    (made,) = set(folder.glob("*")) - before
    return made


def rising(count: int) -> list[tuple[int, float]]:
    return [(20 * (i + 1), float(i)) for i in range(count)]


def test_a_run_of_cleanrl(tmp_path: Path) -> None:
    for seed in (1, 2, 10):
        folder = tmp_path / f"CartPole-v1__ppo__{seed}__1700000000"
        written(folder, {"charts/episodic_return": rising(120), "losses/value_loss": rising(9)})
    (entry,) = read(str(tmp_path))
    assert (entry.label, entry.game, entry.made_by) == ("ppo", "cartpole", "CleanRL")
    assert entry.evaluation == "last 100 training episodes" and entry.in_training
    assert [one.name.split("__")[2] for one in entry.runs] == ["1", "2", "10"]
    run = entry.runs[0]
    assert (run.score, run.episodes, run.steps) == (np.mean(range(20, 120)), 100, 2400)
    assert run.training.steps.tolist() == [20 * (i + 1) for i in range(120)]
    assert run.times.steps.tolist() == [500 * i for i in range(120)]


def test_the_numbers_are_those_that_tensorboard_reads(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    steps = np.cumsum(generator.integers(1, 50, 300)).tolist()
    returns = generator.normal(100, 30, 300).tolist()
    folder = tmp_path / CLEANRL
    written(folder, {"charts/episodic_return": zip(steps, returns, strict=True)})
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    expected = accumulator.Scalars("charts/episodic_return")
    (run,) = read(str(tmp_path))[0].runs
    assert run.training.steps.tolist() == [one.step for one in expected]
    assert run.training.values.tolist() == [one.value for one in expected]
    assert run.score == pytest.approx(np.mean([one.value for one in expected[-100:]]), abs=1e-12)


def test_newer_writers_put_numbers_into_tensors(tmp_path: Path) -> None:
    written(tmp_path / CLEANRL, {"charts/episodic_return": rising(5)}, new_style=True)
    (run,) = read(str(tmp_path))[0].runs
    assert run.training.values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_episodes_that_end_together_are_one_point_and_two_episodes(tmp_path: Path) -> None:
    points = [(10, 1.0), (10, 3.0), (30, 5.0)]
    written(tmp_path / CLEANRL, {"charts/episodic_return": points})
    (run,) = read(str(tmp_path))[0].runs
    assert run.training.steps.tolist() == [10, 30]
    assert run.training.values.tolist() == [2.0, 5.0]
    assert (run.score, run.episodes) == (3.0, 3)


def test_the_episodes_of_the_final_policy_are_the_score(tmp_path: Path) -> None:
    """CleanRL numbers them by episode, not by step."""
    finals = [(i, 100.0 + i) for i in range(10)]
    tags = {"charts/episodic_return": rising(50), "eval/episodic_return": finals}
    written(tmp_path / CLEANRL, tags)
    written(tmp_path / "CartPole-v1__ppo__2__1700000000", {"charts/episodic_return": rising(50)})
    (entry,) = read(str(tmp_path))
    first, second = entry.runs
    assert entry.evaluation == "10 episodes of the final policy" and not entry.in_training
    assert (first.score, first.episodes, first.steps) == (104.5, 10, 1000)
    assert len(first.policy) == 0 and len(first.training) == 50
    assert (second.score, second.left_out) == (None, "it has no eval/episodic_return")


def test_stable_baselines3_evaluates_while_it_trains(tmp_path: Path) -> None:
    tags = {"rollout/ep_rew_mean": rising(10), "eval/mean_reward": [(100, 50.0), (200, 80.0)]}
    written(tmp_path / "PPO_1", tags)
    with pytest.raises(BadInput, match=r"the label of .*PPO_1 is unknown: say it, .*:label="):
        read(str(tmp_path))
    with pytest.raises(BadInput, match=r"the game of .*PPO_1 is unknown: say it, .*:game="):
        read(f"{tmp_path}:label=PPO")
    (entry,) = read(f"{tmp_path}:label=PPO:game=CartPole-v1")
    (run,) = entry.runs
    assert (entry.made_by, entry.game) == ("Stable-Baselines3", "cartpole")
    assert entry.evaluation == "last evaluation, eval/mean_reward" and not entry.in_training
    assert (run.score, run.episodes, run.steps) == (80.0, 0, 200)
    assert run.policy.values.tolist() == [50.0, 80.0] and len(run.training) == 10


def test_a_tag_that_is_given_counts_alone(tmp_path: Path) -> None:
    tags = {"rollout/ep_rew_mean": rising(10), "eval/mean_reward": [(100, 50.0)]}
    written(tmp_path, tags)
    (entry,) = read(f"{tmp_path}:label=PPO:game=cartpole:tag=rollout/ep_rew_mean")
    (run,) = entry.runs
    assert entry.evaluation == "training episodes, last rollout/ep_rew_mean" and entry.in_training
    assert (run.score, len(run.policy)) == (9.0, 0)


@pytest.mark.parametrize(
    ("kind", "score", "in_training"),
    [("evaluation", 119.0, False), ("mean", 119.0, True), ("episode", 69.5, True)],
)
def test_of_a_tag_that_is_not_known_it_must_be_said_what_a_value_is(
    kind: str, score: float, in_training: bool, tmp_path: Path
) -> None:
    written(tmp_path, {"return": rising(120)})
    source = f"{tmp_path}:label=PPO:game=cartpole"
    with pytest.raises(
        BadInput, match="has no tag that is known: say it, tag=NAME; there are: return"
    ):
        read(source)
    with pytest.raises(
        BadInput, match=r"what one value of 'return' in .* cannot be seen: say kind="
    ):
        read(f"{source}:tag=return")
    with pytest.raises(BadInput, match="unknown kind 'episodes'; did you mean 'episode'"):
        read(f"{source}:tag=return:kind=episodes")
    with pytest.raises(BadInput, match=r"unknown tag in .*: 'retrun'; did you mean 'return'"):
        read(f"{source}:tag=retrun:kind=mean")
    (entry,) = read(f"{source}:tag=return:kind={kind}")
    (run,) = entry.runs
    assert (run.score, entry.in_training) == (score, in_training)
    assert len(run.training if in_training else run.policy) == 120


def test_iterations_of_rllib_are_counted_in_steps(tmp_path: Path) -> None:
    steps = [(i, 4000.0 * i) for i in range(1, 6)]
    tags = {
        "ray/tune/env_runners/episode_return_mean": [(i, 10.0 * i) for i in range(1, 6)],
        "ray/tune/num_env_steps_sampled_lifetime": steps,
    }
    written(tmp_path / "PPO_CartPole-v1_00000_0", tags)
    (entry,) = read(f"{tmp_path}:label=PPO:game=cartpole")
    assert entry.made_by == "RLlib"
    assert entry.runs[0].training.steps.tolist() == [4000, 8000, 12000, 16000, 20000]
    assert entry.runs[0].score == 50.0
    del tags["ray/tune/num_env_steps_sampled_lifetime"]
    written(tmp_path / "without", tags)
    with pytest.raises(BadInput, match="has none of the tags that count RLlib's environment steps"):
        read(f"{tmp_path / 'without'}:label=PPO:game=cartpole")


def test_a_training_that_continued_is_read_once(tmp_path: Path) -> None:
    """The second file begins before the end of the first: what lies behind was done again."""
    folder = tmp_path / CLEANRL
    first = [(20 * i, 1.0) for i in range(1, 11)]
    again = [(20 * i, 2.0) for i in range(6, 16)]
    written(folder, {"charts/episodic_return": first}, began=0)
    for path in folder.iterdir():
        path.rename(folder / "events.out.tfevents.1000.first")
    written(folder, {"charts/episodic_return": again}, began=100)
    (run,) = read(str(tmp_path))[0].runs
    assert run.training.steps.tolist() == [20 * i for i in range(1, 16)]
    assert run.training.values.tolist() == [1.0] * 5 + [2.0] * 10
    assert (run.episodes, run.score) == (15, pytest.approx(25 / 15))


def test_what_is_whole_of_a_cut_file_counts(tmp_path: Path) -> None:
    path = written(tmp_path / CLEANRL, {"charts/episodic_return": rising(20)})
    content = path.read_bytes()
    counts = []
    for cut in range(0, 200):
        path.write_bytes(content[: len(content) - cut])
        (run,) = read(f"{tmp_path}:tag=charts/episodic_return")[0].runs
        counts.append(run.episodes)
    assert counts[0] == 20 and counts[1] == 19 and counts[-1] < 18
    assert counts == sorted(counts, reverse=True)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / CLEANRL, {"charts/episodic_return": rising(20)})
    content = path.read_bytes()
    last = content.rindex(b"charts/episodic_return")
    for at in (3, 9, last + 25, len(content) - 2):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(BadInput, match=f"{path.name} is damaged, or no event file"):
            read(str(tmp_path))
    path.write_bytes(b"these are no events, but a text of some length")
    with pytest.raises(BadInput, match="is damaged, or no event file: a checksum is wrong"):
        read(str(tmp_path))


def test_a_file_with_a_record_of_another_kind_is_named(tmp_path: Path) -> None:
    folder = tmp_path / CLEANRL
    folder.mkdir()
    with (folder / "events.out.tfevents.1").open("wb") as file:
        RecordWriter(file).write(b"\xff" * 20)
    with pytest.raises(BadInput, match=r"tfevents\.1 is damaged, or no event file: a record is no"):
        read(str(tmp_path))


def test_a_record_longer_than_the_file_is_not_waited_for(tmp_path: Path) -> None:
    """Its length and the checksum of that are as they should be."""
    import struct

    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    path = written(tmp_path / CLEANRL, {"charts/episodic_return": rising(20)})
    length = struct.pack("<Q", 2**62)
    with path.open("ab") as file:
        file.write(length + struct.pack("<I", masked_crc32c(length)) + b"1234")
    assert read(str(tmp_path))[0].runs[0].episodes == 20


def test_pictures_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / CLEANRL
    folder.mkdir()
    image = Summary.Image(height=1, width=1, colorspace=3, encoded_image_string=bytes(300_000))
    with (folder / "events.out.tfevents.1").open("wb") as file:
        records = RecordWriter(file)
        for value in (
            Summary.Value(tag="charts/episodic_return", simple_value=7.0),
            Summary.Value(tag="videos/agent", image=image),
            Summary.Value(tag="charts/episodic_return", simple_value=9.0),
        ):
            event = Event(step=5, wall_time=1.0, summary=Summary(value=[value]))
            records.write(event.SerializeToString())
    (run,) = read(str(tmp_path))[0].runs
    assert (run.score, run.episodes) == (8.0, 2)


def test_an_empty_file_leaves_its_run_out(tmp_path: Path) -> None:
    written(tmp_path / CLEANRL, {"charts/episodic_return": rising(20)})
    empty = tmp_path / "CartPole-v1__ppo__2__1700000000" / "events.out.tfevents.1"
    empty.parent.mkdir()
    empty.write_bytes(b"")
    (entry,) = read(str(tmp_path))
    assert [one.left_out for one in entry.runs] == ["", "it has no charts/episodic_return"]


def test_runs_without_any_value_are_named_with_label_and_game(tmp_path: Path) -> None:
    written(tmp_path / CLEANRL, {"charts/episodic_return": rising(20)})
    crashed = "Acrobot-v1__ppo__1__1700000000"
    written(tmp_path / crashed, {})
    with pytest.raises(BadInput, match=f"of ppo on acrobot in .* have no values, {crashed}: leave"):
        read(str(tmp_path))


def test_returns_that_no_statistic_can_use_leave_a_run_out(tmp_path: Path) -> None:
    written(tmp_path / CLEANRL, {"charts/episodic_return": [(20, 1.0), (40, float("nan"))]})
    (run,) = read(str(tmp_path))[0].runs
    assert run.score is None and run.left_out.startswith("a return in its score is not finite")
    assert run.training.values.tolist() == [1.0]


@pytest.mark.timeout(60)
def test_a_fifo_holds_nobody_up(tmp_path: Path) -> None:
    folder = tmp_path / CLEANRL
    folder.mkdir()
    os.mkfifo(folder / "events.out.tfevents.1")
    with pytest.raises(BadInput, match=r"cannot read .*tfevents\.1: no regular file"):
        read(str(tmp_path))
