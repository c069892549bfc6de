"""Logs as Stable-Baselines3 and rl-baselines3-zoo leave them, written by hand."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.errors import BadInput
from steps.comparison.readers import read

Rows = Sequence[tuple[float, int, float]]
"""Return, length, seconds since the environment was made."""


def monitor(path: Path, rows: Rows, *, game: str = "CartPole-v1", started: float = 1000.0) -> None:
    """As ResultsWriter writes it: csv.DictWriter ends its lines with CR and LF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"t_start": started, "env_id": game})
    lines = [f"{value},{length},{seconds}" for value, length, seconds in rows]
    path.write_bytes(f"#{header}\nr,l,t\r\n".encode() + "".join(f"{x}\r\n" for x in lines).encode())


def evaluations(folder: Path, steps: Sequence[int], results: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    results = np.asarray(results)
    lengths = np.ones(results.shape, np.int64)
    np.savez(folder / "evaluations.npz", timesteps=steps, results=results, ep_lengths=lengths)


EPISODES = [(float(i), 10, float(i + 1)) for i in range(120)]


def test_a_run_of_one_environment(tmp_path: Path) -> None:
    monitor(tmp_path / "run" / "monitor.csv", EPISODES)
    (entry,) = read(f"{tmp_path / 'run'}:label=PPO")
    (run,) = entry.runs
    assert (entry.label, entry.game, entry.made_by) == ("PPO", "cartpole", "Stable-Baselines3")
    assert entry.evaluation == "last 100 training episodes" and entry.in_training
    assert (run.name, run.score, run.episodes) == ("run", np.mean(range(20, 120)), 100)
    assert run.training.steps.tolist() == list(range(10, 1201, 10)) and run.steps == 1200
    assert run.training.values.tolist() == [float(i) for i in range(120)]
    assert run.times.steps.tolist() == list(range(1000, 120_001, 1000))
    assert run.cost.processor_h is None and entry.steps is None


def test_environments_of_one_run_are_merged_by_the_clock(tmp_path: Path) -> None:
    """The second environment was made a second later than the first."""
    monitor(tmp_path / "0.monitor.csv", [(1.0, 5, 1.5), (3.0, 7, 4.0)], started=1000.0)
    monitor(tmp_path / "1.monitor.csv", [(2.0, 11, 1.0), (4.0, 13, 3.5)], started=1001.0)
    (run,) = read(f"{tmp_path}:label=PPO")[0].runs
    assert run.training.values.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert run.training.steps.tolist() == [5, 16, 23, 36]
    assert run.times.steps.tolist() == [1500, 2000, 4000, 4500]
    assert (run.score, run.episodes) == (2.5, 4)


def test_the_last_evaluation_is_the_score(tmp_path: Path) -> None:
    monitor(tmp_path / "monitor.csv", EPISODES)
    evaluations(tmp_path, [500, 1000], [[10.0, 20.0], [30.0, 50.0]])
    (entry,) = read(f"{tmp_path}:label=PPO")
    (run,) = entry.runs
    assert entry.evaluation == "2 episodes of the last evaluation" and not entry.in_training
    assert (run.score, run.episodes, run.steps) == (40.0, 2, 1200)
    assert run.policy.steps.tolist() == [500, 1000] and run.policy.values.tolist() == [15.0, 40.0]
    assert len(run.training) == 120


def test_evaluations_in_a_folder_of_their_own_belong_to_the_run(tmp_path: Path) -> None:
    monitor(tmp_path / "monitor.csv", EPISODES)
    evaluations(tmp_path / "eval", [1000], [[30.0, 50.0]])
    (run,) = read(f"{tmp_path}:label=PPO")[0].runs
    assert (run.score, len(run.training)) == (40.0, 120)
    monitor(tmp_path / "eval" / "monitor.csv", EPISODES)
    with pytest.raises(BadInput, match=r"eval lies inside of .*, which is a run itself"):
        read(f"{tmp_path}:label=PPO")


def zoo(root: Path) -> None:
    """Three algorithms and games, with a folder for each run."""
    for number in (1, 2, 10):
        monitor(root / f"ppo/CartPole-v1_{number}/0.monitor.csv", EPISODES)
    monitor(root / "ppo/Hopper-v4_1/0.monitor.csv", EPISODES, game="Hopper-v4")
    evaluations(root / "tqc/ALE-Pong-v5_1", [1000], [[20.0, 21.0]])


def test_the_folders_of_the_zoo_say_labels_and_games(tmp_path: Path) -> None:
    zoo(tmp_path / "logs")
    entries = read(f"{tmp_path / 'logs'}:frames=4")
    found = {(one.label, one.game): [run.name for run in one.runs] for one in entries}
    assert found == {
        ("ppo", "cartpole"): ["ppo/CartPole-v1_1", "ppo/CartPole-v1_2", "ppo/CartPole-v1_10"],
        ("ppo", "Hopper-v4"): ["ppo/Hopper-v4_1"],
        ("tqc", "pong"): ["tqc/ALE-Pong-v5_1"],
    }
    (entry,) = read(str(tmp_path / "logs" / "ppo" / "CartPole-v1_2"))
    assert (entry.label, entry.game, len(entry.runs)) == ("ppo", "cartpole", 1)


def test_other_folders_need_a_label_and_some_a_game(tmp_path: Path) -> None:
    monitor(tmp_path / "mine/CartPole-v1_1/monitor.csv", EPISODES, game="None")
    with pytest.raises(
        BadInput, match=r"the label of .*CartPole-v1_1 is unknown: say it, .*:label="
    ):
        read(str(tmp_path))
    with pytest.raises(BadInput, match=r"the game of .*CartPole-v1_1 is unknown: say it, .*:game="):
        read(f"{tmp_path}:label=PPO")
    (entry,) = read(f"{tmp_path}:label=PPO:game=CartPole-v1")
    assert entry.game == "cartpole"
    with pytest.raises(BadInput, match="unknown game 'cartpol'; did you mean 'cartpole'"):
        read(f"{tmp_path}:label=PPO:game=cartpol")


def test_a_run_without_the_evaluation_that_others_have_is_left_out(tmp_path: Path) -> None:
    monitor(tmp_path / "a/monitor.csv", EPISODES)
    monitor(tmp_path / "b/monitor.csv", EPISODES)
    evaluations(tmp_path / "b", [1000], [[30.0, 50.0]])
    evaluations(tmp_path / "c", [1000], [[30.0, float("nan")]])
    (entry,) = read(f"{tmp_path}:label=PPO:game=cartpole")
    assert [one.score for one in entry.runs] == [None, 40.0, None]
    assert entry.runs[0].left_out == "it has no evaluations.npz"
    assert entry.runs[2].left_out.startswith("a return in its score is not finite")
    assert entry.scores == [40.0]


def test_a_run_in_which_no_episode_has_ended_is_left_out(tmp_path: Path) -> None:
    monitor(tmp_path / "monitor.csv", [])
    (run,) = read(f"{tmp_path}:label=PPO")[0].runs
    assert (run.score, run.left_out, len(run.training)) == (None, "no episode ended", 0)


def test_the_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    monitor(path, EPISODES[:5])
    path.write_bytes(path.read_bytes() + b"99.0,1")
    (run,) = read(f"{tmp_path}:label=PPO")[0].runs
    assert (run.episodes, run.score) == (5, 2.0)


def test_a_training_that_was_continued_goes_on_in_time(tmp_path: Path) -> None:
    """`override_existing=False` appends, and the clock of the rows starts again."""
    monitor(
        tmp_path / "monitor.csv", [(1.0, 5, 10.0), (2.0, 5, 20.0), (3.0, 5, 4.0), (4.0, 5, 9.0)]
    )
    (run,) = read(f"{tmp_path}:label=PPO")[0].runs
    assert run.times.steps.tolist() == [10_000, 20_000, 24_000, 29_000]
    assert run.training.values.tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("game", "frames", "steps"),
    [
        ("BreakoutNoFrameskip-v4", 4, [100, 200]),  # the Monitor counts frames
        ("BreakoutNoFrameskip-v4", 1, [400, 800]),
        ("ALE/Breakout-v5", 4, [400, 800]),  # it counts what the id already skips
        ("ALE/Breakout-v5", 16, [100, 200]),
    ],
)
def test_a_step_is_a_decision_of_the_agent(
    game: str, frames: int, steps: list[int], tmp_path: Path
) -> None:
    monitor(tmp_path / "monitor.csv", [(1.0, 400, 1.0), (2.0, 400, 2.0)], game=game)
    with pytest.raises(BadInput, match="say it, frames=4"):
        read(f"{tmp_path}:label=PPO")
    (entry,) = read(f"{tmp_path}:label=PPO:frames={frames}")
    assert entry.frames == frames and entry.runs[0].training.steps.tolist() == steps


BROKEN_MONITORS = {
    "no header": b"r,l,t\n1.0,1,1.0\n",
    "no JSON": b"#{t_start\nr,l,t\n1.0,1,1.0\n",
    "no mapping": b"#[1]\nr,l,t\n",
    "no start": b'#{"env_id": "CartPole-v1"}\nr,l,t\n',
    "no column": b'#{"t_start": 1.0}\nr,t\n1.0,1.0\n',
    "no number": b'#{"t_start": 1.0}\nr,l,t\nfive,1,1.0\n',
    "empty cell": b'#{"t_start": 1.0}\nr,l,t\n1.0,,1.0\n',
    "no length": b'#{"t_start": 1.0}\nr,l,t\n1.0,0,1.0\n',
    "endless": b'#{"t_start": 1.0}\nr,l,t\n1.0,1e300,1.0\n',
    "infinite": b'#{"t_start": 1.0}\nr,l,t\ninf,1,1.0\n',
    "bytes": b"#\xff\xfe\nr,l,t\n",
    "deep": b"#" + b"[" * 100_000 + b"\n",
    "empty": b"",
}


@pytest.mark.parametrize("case", BROKEN_MONITORS)
def test_a_broken_monitor_is_named(case: str, tmp_path: Path) -> None:
    (tmp_path / "monitor.csv").write_bytes(BROKEN_MONITORS[case])
    with pytest.raises(BadInput) as raised:
        read(f"{tmp_path}:label=PPO:game=cartpole")
    assert str(raised.value).startswith(f"{tmp_path}/monitor.csv is no file of a Monitor: ")
    assert "\n" not in str(raised.value)


def archive(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as written:
        for name, member in members.items():
            written.writestr(f"{name}.npy", member)
    return content.getvalue()


def array(values: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, np.asarray(values), allow_pickle=True)
    return content.getvalue()


HUGE = array([0.0]).replace(b"(1,)", b"(1" + b"0" * 14 + b",)").replace(b" " * 14 + b"\n", b"\n")
BROKEN_EVALUATIONS = {
    "no archive": b"PK nothing",
    "no array": archive(timesteps=array([1, 2])),
    "pickled": archive(timesteps=array([1]), results=array([[{"a": 1}]])),
    "other shapes": archive(timesteps=array([1, 2]), results=array([[1.0]])),
    "no rows": archive(timesteps=array([]), results=array(np.empty((0, 3)))),
    "flat": archive(timesteps=array([1]), results=array([1.0])),
    "text": archive(timesteps=array(["a"]), results=array([[1.0]])),
    "cut": archive(timesteps=array([1]), results=array([[1.0]])[:-4]),
    "more than there is": archive(timesteps=array([1]), results=HUGE),
}


@pytest.mark.parametrize("case", BROKEN_EVALUATIONS)
def test_broken_evaluations_are_named(case: str, tmp_path: Path) -> None:
    (tmp_path / "evaluations.npz").write_bytes(BROKEN_EVALUATIONS[case])
    with pytest.raises(BadInput) as raised:
        read(f"{tmp_path}:label=PPO:game=cartpole")
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}/evaluations.npz is no file of an EvalCallback: ")
    assert "\n" not in message


def test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path: Path) -> None:
    zeros = archive(timesteps=array([1]), results=bytes(257 * 2**20))
    (tmp_path / "evaluations.npz").write_bytes(zeros)
    with pytest.raises(BadInput, match="unpacks to more than 268435456 bytes"):
        read(f"{tmp_path}:label=PPO:game=cartpole")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["monitor.csv", "evaluations.npz"])
def test_a_fifo_holds_nobody_up(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(BadInput, match=f"cannot read {tmp_path}/{name}: no regular file"):
        read(f"{tmp_path}:label=PPO:game=cartpole")


def test_several_games_in_one_run_are_refused(tmp_path: Path) -> None:
    monitor(tmp_path / "0.monitor.csv", EPISODES)
    monitor(tmp_path / "1.monitor.csv", EPISODES, game="Acrobot-v1")
    with pytest.raises(BadInput, match="has episodes of several games: Acrobot-v1, CartPole-v1"):
        read(f"{tmp_path}:label=PPO")
