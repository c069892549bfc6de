"""An environment is tried before a pod with a GPU begins: each broken promise is one line that says what
was seen and what to change."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agents.checks.trial import needs_a_trial, try_environment
from agents.environments.checked import EnvironmentFailed
from agents.evaluation.episodes import evaluate
from agents.load import load_policy, make_trainer
from config.errors import BadInput
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory.elsewhere import made_elsewhere, tried_elsewhere
from steps.directory.processes import start_time
from tests.waiting import until

SHORT = {"num_envs": "3", "rollout_length": "16", "minibatches": "1", "epochs": "2"}


class Careless(gymnasium.Env[Any, Any]):
    """Breaks one promise, by its kind."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        size = 0 if kind == "empty" else 2
        self.observation_space = spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.time = 0

    def _info(self) -> Any:
        return {
            "lists": {"numbers": list(range(self.time))},
            "shapes": {"image": np.zeros((self.time, 2))},
            "mixed": {
                "x": None if self.time % 2 else {"y": 1},
                "z": "text" if self.time % 3 else 1,
            },
            "no mapping": None,
        }.get(self.kind, {})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        observation = np.zeros(2, np.float32)
        if self.kind == "old reset":
            return observation
        further = (0,) if self.kind == "long reset" else ()
        return observation, self._info(), *further

    def step(self, action: Any) -> Any:
        self.time += 1
        reward = {
            "array": np.ones(1), "vector": np.ones(2), "nothing": None, "nan": float("nan"), "text": "1x",
        }.get(self.kind, 1.0)  # fmt: skip
        observation: Any = {
            "shape": np.zeros((2, 1), np.float32), "words": ["a", "b"], "list": [0.5, 1],
            "infinite": np.array([np.inf, 0], np.float32),
        }.get(self.kind, np.zeros(2, np.float32))  # fmt: skip
        if self.kind == "raises" and self.time == 3:
            raise RuntimeError("the simulator is gone")
        if self.kind == "exit":
            sys.exit()
        if self.kind == "hard exit":
            os._exit(0)
        if self.kind == "hangs":
            time.sleep(60)
        if self.kind == "old step":
            return observation, reward, self.time == 9, {}
        return observation, reward, False, self.time == 9, self._info()


class Unseeded(Careless):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Lasting(Careless):
    """Leaves a thread and a process behind. pids: the file for the numbers of such processes."""

    def __init__(self, pids: str) -> None:
        super().__init__()
        threading.Thread(target=threading.Event().wait).start()
        left = subprocess.Popen(["sleep", "3600"])
        with Path(pids).open("a") as file:
            file.write(f"{left.pid}\n")


class Alone(Careless):
    """A simulator of which only one may run."""

    running = 0

    def __init__(self) -> None:
        super().__init__()
        assert not Alone.running, "the simulator is running already"
        Alone.running += 1

    def close(self) -> None:
        Alone.running -= 1


def game(kind: str, name: str = "Careless", **given: str) -> Resolved:
    options = {"env_options": f"kind={kind}"} if kind else {}
    path = f"tests.unit.agents.checks.test_trial:{name}"
    return resolve("ppo", {"game": path, **SHORT, **options, **given})


BROKEN = {
    "old reset": "reset() returns (observation, info): it returned an array of shape (2,); return a pair",
    "long reset": "it returned a tuple of 3 values; return a pair",
    "old step": "it returned a tuple of 4 values; return five values",
    "vector": "a reward is one number: it was an array of shape (2,) in step 1; return a float",
    "nothing": "a reward is one number: it was None in step 1",
    "text": "a reward is one number: it was str",
    "nan": "rewards are finite numbers",
    "shape": "have the shape (2,) of observation_space: one has the shape (2, 1) after step 1",
    "words": "observations are numbers of float32",
    "infinite": "observations are finite numbers: one after step 1 is not",
    "empty": "has observations Box([], [], (0,), float32); allowed: at least one number",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_promise_is_one_line(kind: str) -> None:
    with pytest.raises(BadInput) as refused:
        try_environment(game(kind))
    assert BROKEN[kind] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_broken_promise_is_one_line_in_processes() -> None:
    with pytest.raises(BadInput, match="it returned a tuple of 4 values"):
        try_environment(game("old step", vectorisation="async"))


def test_a_reset_without_seed_says_how_to_define_it() -> None:
    with pytest.raises(BadInput, match=r"define reset\(self, \*, seed=None, options=None\)"):
        try_environment(game("", "Unseeded"))


@pytest.mark.parametrize("kind", ["raises", "exit"])
def test_what_a_method_raises_names_method_and_step(kind: str) -> None:
    step = {"raises": 3, "exit": 1}[kind]
    with pytest.raises(EnvironmentFailed, match=rf"step\(\) of game .* failed in step {step} of"):
        try_environment(game(kind))


@pytest.mark.parametrize("kind", ["lists", "shapes", "mixed", "no mapping", "array", "list", ""])
def test_what_gymnasium_leaves_open_trains_and_is_evaluated(kind: str) -> None:
    resolved = game(kind)
    try_environment(resolved)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    list(trainer.train())
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    assert [one.return_ for one in evaluate(policy, resolved, 0, 2, False)] == [9, 9]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("", ""),
        ("old step", "it returned a tuple of 4 values"),
        pytest.param(
            "hangs", "has not made 200 steps within 4 s; allowed: a faster", marks=pytest.mark.slow
        ),
        pytest.param(
            "hard exit", "ended the process in which it was tried, with 0", marks=pytest.mark.slow
        ),
        pytest.param("exit", "it ended the process, exit(None)", marks=pytest.mark.slow),
    ],
)
def test_it_is_tried_in_a_process_of_its_own(kind: str, line: str) -> None:
    started_s = time.monotonic()
    if not line:
        tried_elsewhere(game(kind), 60)
        return
    with pytest.raises(BadInput) as refused:
        tried_elsewhere(game(kind), 4 if kind == "hangs" else 60)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert time.monotonic() - started_s < 50


def test_what_an_environment_leaves_behind_holds_nothing_up_and_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    tried_elsewhere(game("", "Lasting", env_options=f"pids={pids}"), 60)
    left = [int(line) for line in pids.read_text().splitlines()]
    assert left
    until(lambda: not any(map(start_time, left)))  # a signal takes a moment


def test_a_module_of_the_working_directory_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("agents", "config", "steps", "workflows"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    monkeypatch.chdir(tmp_path)
    made_elsewhere(resolve("ppo", {"game": "cartpole"}), 60)


def test_our_own_games_need_no_trial() -> None:
    assert not needs_a_trial(resolve("ppo", {"game": "cartpole"}))
    assert not needs_a_trial(resolve("ppo", {"game": "breakout"}))
    assert needs_a_trial(resolve("ppo", {"game": "Taxi-v4"}))
    wrapped = {"game": "cartpole", "wrappers": "gymnasium.wrappers:RecordEpisodeStatistics"}
    assert needs_a_trial(resolve("ppo", wrapped))


def test_who_trains_with_one_environment_never_gets_two() -> None:
    resolved = game("", "Alone", num_envs="1", epochs="1")
    try_environment(resolved)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    list(trainer.train())
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    assert [one.length for one in evaluate(policy, resolved, 0, 3, False)] == [9, 9, 9]
    assert Alone.running == 0
