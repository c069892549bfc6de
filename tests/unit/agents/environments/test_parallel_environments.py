"""Environments in processes of their own: the same bytes as in one process, one line for a process
that is killed, and nothing left running."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from agents.environments import parallel
from agents.environments.checked import EnvironmentFailed
from agents.environments.game_check import check_game
from agents.environments.games import make_environment
from agents.environments.parallel import ParallelEnvironments, pays, step_time_s
from agents.environments.training import TrainingEnvironments
from agents.environments.vectors import choose_vectorisation, make_environments, reset
from agents.load import make_trainer
from config.errors import ExperimentError
from config.resolve import resolve
from config.resolved import Resolved
from steps import prepare, train
from steps.directory.experiment import Compute
from steps.training.choose_compute import settled
from tests.waiting import until

LAB = "tests.lab_environments"
SHORT = {"num_envs": "2", "rollout_length": "40", "minibatches": "1", "epochs": "3"}
ROOT = Path(__file__).resolve().parents[4]


def resolved_for(game: str, vectorisation: str, **given: str) -> Resolved:
    return resolve("ppo", {"game": game, **SHORT, "vectorisation": vectorisation, **given})


def trainer_of(resolved: Resolved) -> Any:
    return make_trainer(resolved, run=0, device="cpu", precision="fp32")


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_until_gone(pids: list[int]) -> None:
    until(lambda: all(map(gone, pids)))


@pytest.mark.parametrize(
    ("game", "options"),
    [(f"{LAB}:Corridor", "slippery=true,length=3"), (f"{LAB}:Locks", "where=observation")],
)
def test_both_ways_give_the_same_bytes_and_continue_each_other(game: str, options: str) -> None:
    rows, states = dict[str, list[str]](), list[Any]()
    for way in ("sync", "async"):
        trainer = trainer_of(resolved_for(game, way, env_options=options))
        rows[way] = []
        for one in trainer.train():
            rows[way].append(repr(one))
            states.append(trainer.state_dict())
        processes = [one.pid for one in getattr(trainer.environments._made[0], "processes", ())]
        assert len(processes) == (2 if way == "async" else 0)
        trainer.close()
        wait_until_gone(processes)
    assert rows["sync"] == rows["async"]
    resumed = trainer_of(resolved_for(game, "async", env_options=options))
    resumed.load_state_dict(states[0])
    assert [repr(one) for one in resumed.train()] == rows["sync"][1:]
    resumed.close()


def test_how_the_environments_are_laid_out_is_no_part_of_the_identity() -> None:
    ways = [resolved_for("acrobot", way) for way in ("auto", "sync", "async")]
    assert len({one.identity_hash for one in ways}) == 1


def made(count: int = 2) -> ParallelEnvironments:
    resolved = resolved_for(f"{LAB}:Corridor", "async")
    found = make_environments(resolved, count)
    assert isinstance(found, ParallelEnvironments)
    reset(found, np.arange(count))
    return found


def test_a_signal_to_all_reaches_no_environment() -> None:
    environments = made()
    for process in environments.processes:
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
    for _ in range(3):
        environments.step(np.ones(2, np.int64))
    pids = [process.pid for process in environments.processes]
    environments.close()
    wait_until_gone(pids)


@pytest.mark.parametrize("when", ["step", "reset"])
def test_a_killed_process_is_one_line_and_no_hang(when: str) -> None:
    resolved = resolved_for(f"{LAB}:Corridor", "async")
    environments = TrainingEnvironments(resolved, 0)
    vector: Any = environments._made[0]
    pids = [process.pid for process in vector.processes]
    os.kill(pids[1], signal.SIGKILL)
    wait_until_gone(pids[1:2])
    said = "the process of environment 1 was killed by signal 9"
    with pytest.raises(ExperimentError, match=said):
        if when == "step":
            environments.step(np.zeros(2, np.int64))
        else:
            reset(vector, np.array([1, 2]))
    wait_until_gone(pids)
    environments.close()


def test_the_error_of_a_killed_process_can_be_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame that failed to send held a view of a buffer: in a cycle that is a BufferError, and
    was a segmentation fault in Python 3.12.1."""
    unraisable = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", lambda seen: unraisable.append(seen.exc_value))
    environments = TrainingEnvironments(resolved_for(f"{LAB}:Corridor", "async"), 0)
    process = environments._made[0].processes[1]  # type: ignore[attr-defined]
    process.kill()
    wait_until_gone([process.pid])
    with pytest.raises(ExperimentError) as error:
        environments.step(np.zeros(2, np.int64))
    error.value.itself = error.value  # type: ignore[attr-defined]
    environments.close()
    del environments, process, error
    gc.collect()
    assert unraisable == []


def test_an_environment_that_cannot_be_made_in_a_process_is_one_line() -> None:
    with pytest.raises(ExperimentError, match=r"the process of environment \d ended with 1"):
        TrainingEnvironments(resolved_for(f"{LAB}:OnlyHere", "async"), 0)


def it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any machine."""
    monkeypatch.setattr("agents.environments.vectors.cores", lambda: 2)
    monkeypatch.setattr("agents.environments.vectors.pays", lambda step_s, count: True)


def test_auto_falls_back_to_one_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it_pays(monkeypatch)
    resolved = resolved_for(f"{LAB}:OnlyHere", "auto")
    assert isinstance(make_environments(resolved, 2), gymnasium.vector.SyncVectorEnv)
    assert "ended with 1: they step in one process" in caplog.text
    kind, reason = choose_vectorisation(resolved, 2)
    assert kind == "sync" and reason.endswith("ended with 1")


def test_what_an_environment_raises_is_what_is_raised() -> None:
    environments = TrainingEnvironments(resolved_for(f"{LAB}:Locks", "async"), 0)
    with pytest.raises(EnvironmentFailed, match=r"step\(\) of game .* is forbidden"):
        for _ in range(20):
            environments.step(np.zeros(2, np.int64))
    environments.close()


HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from agents.environments.vectors import make_environments
from config.resolve import resolve
if __name__ == "__main__":
    given = {"game": "tests.lab_environments:Corridor", "vectorisation": "async"}
    environments = make_environments(resolve("ppo", given), 2)
    print(*[process.pid for process in environments.processes], flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_of_a_training_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "holder.py"
    script.write_text(HOLDER)
    command = [sys.executable, str(script), str(ROOT)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None and holder.stdout is not None
    pids = [int(text) for text in holder.stdout.readline().split()]
    assert len(pids) == 2
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    wait_until_gone(pids)


def test_auto_measures_what_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "processors", lambda: 4.0)
    slow, fast, locked = (
        step_time_s(partial(make_environment, one.game, one.environment))
        for one in (resolved_for(f"{LAB}:{name}", "auto") for name in ("Slow", "Corridor", "Locks"))
    )
    assert pays(slow, 4) and not pays(fast, 4) and not pays(locked, 4)
    assert not pays(slow, 1)
    monkeypatch.setattr(parallel, "processors", lambda: 1.0)
    assert not pays(slow, 4)


@pytest.mark.parametrize(
    ("game", "asked", "count", "pays", "expected"),
    [
        ("cartpole", "async", 2, True, "native, the game brings it"),
        ("breakout", "auto", 2, True, "native, the game brings it"),
        (f"{LAB}:Corridor", "auto", 1, True, "sync, there is one environment"),
        (f"{LAB}:Corridor", "sync", 2, True, "sync, sync was asked for"),
        (f"{LAB}:Corridor", "async", 2, False, "async, async was asked for"),
        (f"{LAB}:Corridor", "auto", 2, True, "async, measured: a step takes 2.5 ms"),
        (f"{LAB}:Corridor", "auto", 2, False, "sync, measured: a step takes 2.5 ms"),
    ],
)
def test_what_is_chosen_and_why(
    monkeypatch: pytest.MonkeyPatch, game: str, asked: str, count: int, pays: bool, expected: str
) -> None:
    it_pays(monkeypatch)
    monkeypatch.setattr("agents.environments.vectors.step_time_s", lambda make: 0.0025)
    monkeypatch.setattr("agents.environments.vectors.pays", lambda step_s, count: pays)
    assert ", ".join(choose_vectorisation(resolved_for(game, asked), count)) == expected
    # A pod with one and a half processors of its node.
    monkeypatch.undo()
    monkeypatch.setattr("agents.environments.parallel.processors", lambda: 1.5)
    one_core = choose_vectorisation(resolved_for(f"{LAB}:Corridor", "auto"), 2)
    assert one_core == ("sync", "there is one core")


@pytest.mark.slow
def test_what_was_chosen_is_recorded_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first training measures; the next run, and a resume, take its answer, whatever they would
    find."""
    it_pays(monkeypatch)
    made = list[int]()

    class Counted(ParallelEnvironments):
        def __init__(self, makers: Any) -> None:
            made.append(len(makers))
            super().__init__(makers)

    monkeypatch.setattr("agents.environments.vectors.ParallelEnvironments", Counted)
    short = {"game": f"{LAB}:Corridor", **SHORT, "runs": "2", "device": "cpu", "epochs": "1"}
    given = [f"-p{name}={text}" for name, text in {**short, "outdir": str(tmp_path)}.items()]
    assert prepare.main(["--algorithm=ppo", *given]) == 0
    assert train.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    assert made == [2, 2], "a trial, and the training's own"
    recorded = json.loads((tmp_path / "compute.json").read_text())
    assert recorded["vectorisation"] == "async"
    assert recorded["vectorisation_reason"].startswith("measured: a step takes ")
    monkeypatch.setattr("agents.environments.vectors.pays", lambda step_s, count: False)
    assert train.main([f"--outdir={tmp_path}", "--run=1"]) == 0
    (tmp_path / "runs/0/status/train.json").unlink()  # as if killed after its last checkpoint
    assert train.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    assert made == [2, 2, 2, 2]
    assert json.loads((tmp_path / "compute.json").read_text()) == recorded


def test_what_a_person_asks_for_counts() -> None:
    """Also in a directory where `auto` chose before: no result depends on it."""
    compute = Compute(device="cpu", precision="fp32", reason="x", vectorisation="async")
    native, older = (replace(compute, vectorisation=kind) for kind in ("native", None))
    asked = resolved_for(f"{LAB}:Corridor", "sync")
    assert settled(asked, compute) is asked
    auto = resolved_for(f"{LAB}:Corridor", "auto")
    assert settled(auto, compute).environment.vectorisation == "async"
    assert settled(auto, native) is settled(auto, older) is auto


def test_auto_takes_what_pays_and_a_single_one_needs_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it_pays(monkeypatch)
    resolved = resolved_for(f"{LAB}:Corridor", "auto")
    environments = make_environments(resolved, 2)
    assert isinstance(environments, ParallelEnvironments)
    environments.close()
    monkeypatch.setattr("agents.environments.vectors.ParallelEnvironments", None)
    assert check_game(resolved).family == "discrete"
    vector = make_environments(resolved_for(f"{LAB}:Corridor", "sync"), 2)
    assert isinstance(vector, gymnasium.vector.SyncVectorEnv)


def test_measuring_leaves_the_generators_where_they_are() -> None:
    resolved = resolved_for("tests.own_games:Global", "auto")
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    step_time_s(partial(make_environment, resolved.game, resolved.environment))
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]
