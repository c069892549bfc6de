"""`steps.check`: an algorithm and an environment that keep their promises, and ten and more of each
that break one, each named by one line."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from my_lab import reinforce

from agents.checks.algorithm_checks import TrainingChecks
from agents.checks.environment_checks import EnvironmentChecks
from agents.checks.promises import Finding, tried
from agents.interfaces import Growth, Progress, State
from config.algorithms import find_algorithm
from config.resolve import resolve
from steps import check
from tests.own_games import Square

SMALL = {"num_envs": "2", "rollout_length": "16", "epochs": "4"}


class Early(reinforce.Trainer):
    """Ends before its epochs are done."""

    def train(self) -> Iterator[Progress]:
        yield next(super().train())


class Miscounted(reinforce.Trainer):
    """Counts the epochs' environments once."""

    def train(self) -> Iterator[Progress]:
        for progress in super().train():
            yield replace(progress, step=progress.epoch)


class Changing(reinforce.Trainer):
    """Has another metric in every epoch."""

    def train(self) -> Iterator[Progress]:
        for progress in super().train():
            yield replace(progress, metrics={f"loss_{progress.epoch}": 0.0})


class NotANumber(reinforce.Trainer):
    def train(self) -> Iterator[Progress]:
        for progress in super().train():
            yield replace(progress, metrics={"policy_loss": float("nan")})


class Unseeded(reinforce.Trainer):
    def __init__(self, resolved: Any, **options: Any) -> None:
        super().__init__(resolved, **options)
        self.generator.seed()


class OneSeed(reinforce.Trainer):
    """Every run is run 0."""

    def __init__(self, resolved: Any, *, run: int, **options: Any) -> None:
        super().__init__(resolved, run=0, **options)


class Tensors(reinforce.Trainer):
    def state_dict(self) -> State:
        return super().state_dict() | {"network": self.network.state_dict()}


class Disturbing(reinforce.Trainer):
    """Draws from its generator when it is saved."""

    def state_dict(self) -> State:
        torch.rand(1, generator=self.generator)
        return super().state_dict()


class Forgetful(reinforce.Trainer):
    """Its generator starts anew after a restart."""

    def load_state_dict(self, state: State, *between: Any) -> None:
        super().load_state_dict(state, *between)
        self.generator.manual_seed(0)


class Restarting(reinforce.Trainer):
    def load_state_dict(self, state: State, *between: Any) -> None:
        super().load_state_dict(state | {"epoch": 0}, *between)


class Scheduled(reinforce.Trainer):
    """Its learning rate falls over the training, which its hyperparameters do not say."""

    def learn(self, *rollout: np.ndarray) -> float:
        rate = self.hyper.learning_rate * (1 - self.epoch / self.resolved.epochs)
        self.optimiser.param_groups[0]["lr"] = rate
        return super().learn(*rollout)


class Replaying(reinforce.Trainer):
    """Draws a row of its last fifty observations in every epoch but the first; it keeps them in a
    stream."""

    CAPACITY = 50

    def __init__(self, resolved: Any, **options: Any) -> None:
        super().__init__(resolved, **options)
        self.replay = np.zeros((0, 4), np.float32)
        self.added = 0

    def rollout(self) -> tuple[np.ndarray, ...]:
        rows = super().rollout()
        seen = rows[0].reshape(-1, 4)
        self.replay = np.concatenate([self.replay, seen])[-self.CAPACITY :]
        self.added += len(seen)
        return rows

    def train(self) -> Iterator[Progress]:
        for progress in super().train():
            place = int(torch.randint(len(self.replay), (1,), generator=self.generator))
            drawn = float(self.replay[place].sum()) if self.epoch > 1 else None
            yield replace(progress, metrics={"drawn": drawn})

    def grown(self) -> dict[str, Growth]:
        added, self.added = self.added, 0
        return {"replay": Growth(rows={"seen": self.replay[-added:]}, keep=self.CAPACITY)}

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        self.replay = np.concatenate([part["seen"] for part in streams["replay"]])


class Emptied(Replaying):
    """Takes only the last part back."""

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        self.replay = list(streams["replay"])[-1]["seen"]


class Repeating(Replaying):
    """What was given back is added again."""

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        super().load_streams(streams)
        self.added = len(self.replay)


class Differing(Replaying):
    """Its rows are rounded once it has been given some back."""

    digits = 9

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        super().load_streams(streams)
        self.digits = 3

    def grown(self) -> dict[str, Growth]:
        (growth,) = super().grown().values()
        return {"replay": replace(growth, rows={"seen": growth.rows["seen"].round(self.digits)})}


class OtherColumns(Replaying):
    def grown(self) -> dict[str, Growth]:
        (growth,) = super().grown().values()
        return {"replay": replace(growth, rows={f"seen_{self.epoch}": growth.rows["seen"]})}


class Ragged(Replaying):
    def grown(self) -> dict[str, Growth]:
        (growth,) = super().grown().values()
        seen = growth.rows["seen"]
        return {"replay": replace(growth, rows={"seen": seen, "action": seen[1:]})}


class Outside(reinforce.Policy):
    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        return super().act(observations, sample=sample) + 2


class Unrepeatable(reinforce.Policy):
    """Its actions alternate from call to call."""

    calls = 0

    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        self.calls += 1
        return np.full(len(observations), self.calls % 2)


class Batched(reinforce.Policy):
    """Every action is chosen by the sum of the batch."""

    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        return np.full(len(observations), int(observations.sum() > 20))


class Short(reinforce.Policy):
    def seed(self, seeds: Sequence[int]) -> None:
        super().seed(seeds[:1])

    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        return super().act(observations[:1], sample=False)


BROKEN_TRAINERS = [
    (Early, "train() ends after 1 of 4 epochs; one Progress each"),
    (Miscounted, "after epoch 1 step is 1, the hyperparameters say 32"),
    (Changing, "epoch 2 has metrics ['loss_2'], not ['loss_1']"),
    (NotANumber, "a metric, return or length of epoch 1 is not finite"),
    (Unseeded, "the same run trained twice differs"),
    (OneSeed, "run 1 is the same as run 0"),
    (Tensors, "state_dict()['network']['1.weight'] is a Tensor; allowed: dict, numpy.ndarray"),
    (Disturbing, "state_dict() changed the training"),
    (Forgetful, "the resumed training differs"),
    (Restarting, "load_state_dict() leaves epoch 0, step 64; saved were 2 and 64"),
    (
        Scheduled,
        "a training of 2 epochs that goes on differs from one of 4: ",
    ),
    (Emptied, "the resumed training differs: metrics of epoch 3"),
    (Repeating, "the resumed training adds other rows: 146 in the stream 'replay', not 128"),
    (Differing, "the resumed training adds other rows: column 'seen' of the stream 'replay'"),
    (OtherColumns, "'seen_1': ('float32', (4,))}, it got {'seen_2': ('float32', (4,))}"),
    (Ragged, "the stream 'replay' got columns of [31, 32] rows"),
]
BROKEN_POLICIES = [
    (Outside, "is not in Discrete(2)"),
    (Unrepeatable, "actions of the same observations and seeds differ"),
    (Batched, "a greedy action depends on the other observations of its batch"),
    (Short, "4 observations got 1 actions"),
]


def findings_of(monkeypatch: pytest.MonkeyPatch, **classes: str) -> list[Finding]:
    changed = replace(reinforce.ALGORITHM, **classes)  # type: ignore[arg-type]
    monkeypatch.setattr(reinforce, "ALGORITHM", changed)
    find_algorithm.cache_clear()
    try:
        resolved = resolve("my_lab.reinforce:ALGORITHM", SMALL)
        return list(tried(TrainingChecks(resolved).all()))
    finally:
        find_algorithm.cache_clear()


def test_a_stranger_s_algorithm_keeps_every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = findings_of(monkeypatch)
    assert [finding for finding in findings if not finding.kept] == []
    assert len(findings) == 8


def test_a_trainer_with_a_replay_keeps_every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its last rows back before it goes on, and is asked for new ones after every epoch."""
    findings = findings_of(monkeypatch, trainer=f"{__name__}:Replaying")
    assert [finding for finding in findings if not finding.kept] == []
    assert findings[2].seen.endswith("bytes, beside it the streams replay")


@pytest.mark.parametrize(("broken", "reason"), BROKEN_TRAINERS, ids=lambda one: str(one)[-30:])
def test_a_trainer_that_breaks_a_promise(
    broken: type, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = findings_of(monkeypatch, trainer=f"{__name__}:{broken.__name__}")[-1]
    assert not last.kept
    assert reason in last.seen
    assert last.seen.isprintable()


@pytest.mark.parametrize(("broken", "reason"), BROKEN_POLICIES, ids=lambda one: str(one)[-30:])
def test_a_policy_that_breaks_a_promise(
    broken: type, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = findings_of(monkeypatch, policy=f"{__name__}:{broken.__name__}")[-1]
    assert not last.kept
    assert reason in last.seen


class Endless(Square):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class Random(CartPoleEnv):
    """From its third step on, so that gymnasium's checker does not see it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        seen, *rest = super().step(action)
        noise = np.random.default_rng().random(4) if self.steps > 2 else np.zeros(4)
        return (seen + noise.astype(np.float32), *rest)


class Lying(Square):
    """Gives what its observation space does not have."""

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        return observation[:0], info


class Remembering(Square):
    """Rewards change after the 15th episode of an instance, too late for gymnasium's checker."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward + (self.episodes > 15), *rest


class Textual(Square):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Text(5)  # type: ignore[assignment]


class Raising(Square):
    def step(self, action: Any) -> Any:
        raise ValueError("no such cell")


class Leaving(Square):
    def step(self, action: Any) -> Any:
        os._exit(0)


class Hanging(Square):
    def reset(self, **options: Any) -> Any:
        time.sleep(3600)


BROKEN_GAMES = [
    (Endless, "random steps and no end: wrap it in gymnasium.wrappers.TimeLimit"),
    (Random, ": take randomness from self.np_random"),
    (Remembering, "it differs at step 1 after other episodes: reset must leave nothing of them"),
    (Lying, "observations have the shape (1,) of observation_space"),
    (Textual, "has actions Text"),
    (Raising, "it raised ValueError: no such cell"),
]


@pytest.mark.parametrize(("broken", "reason"), BROKEN_GAMES, ids=lambda one: str(one)[-30:])
def test_an_environment_that_breaks_a_promise(
    broken: type, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.checks.environment_checks.LONGEST_EPISODE", 2000)
    checks = EnvironmentChecks(resolve("ppo", {"game": f"{__name__}:{broken.__name__}"}))
    findings = list(tried(checks.all()))
    assert not findings[-1].kept
    assert reason in findings[-1].seen


@pytest.mark.slow
@pytest.mark.soak
def test_the_command_on_a_game(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # For the process in which an environment is tried.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    assert check.main(["tests.own_games:Square"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in printed] == ["ok    "] * 8
    assert printed[-2].startswith("ok      film: none: ")
    assert printed[-1].startswith("ok      killed and continued, the same bytes: train.csv, ")
    assert check.main(["my_lab.envs:Maze"]) == 0, "only steps that its mask allows are taken"
    capsys.readouterr()
    assert check.main([f"{__name__}:Raising"]) == 2
    assert capsys.readouterr().out.splitlines()[-1].startswith("BROKEN")
    for broken, says in ((Leaving, "ended the process"), (Hanging, "within 8 s")):
        game = f"{__name__}:{broken.__name__}"
        assert check.main([game, "-p", "trial_timeout=8"]) == 2
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith("BROKEN  a training can use it: ") and says in line


def test_the_command_on_a_network(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_killed", lambda what, texts: "train.csv")
    assert check.main(["my_lab.nets:Residual", "-p", "rollout_length=16"]) == 0
    assert capsys.readouterr().out.count("ok    ") == 10


def test_what_a_network_and_a_game_are_tried_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours that can, or the one that is named, which says what it cannot."""
    monkeypatch.setattr(check, "_killed", lambda what, texts: "train.csv")
    lab = "my_lab.reinforce:ALGORITHM"
    assert check.main(["cartpole", "--algorithm", lab]) == 0
    said = capsys.readouterr().out
    assert said.count("ok    ") == 7
    assert "\nok      film: 50 frames/s\n" in said
    for arguments, refusal in (
        (["pendulum", "--algorithm", lab], f"{lab} cannot play pendulum: the game's actions are"),
        (["my_lab.nets:Residual", "--algorithm", lab], "unknown parameter 'network'"),
        (["my_lab.nets:Residual", "--algorithm", "pp0"], "unknown algorithm 'pp0'; did you mean"),
        ([lab, "--algorithm", "ppo"], f"--algorithm is for a network or a game; {lab!r} is an"),
        (["cartpole", "-p", "epochs=1"], "a training with one row in train.csv (epochs=1, log_"),
        (["ppo", "-p", "log_interval=6"], "a training with one row in train.csv (epochs=6, log_"),
    ):
        assert check.main(arguments) == 2
        said = capsys.readouterr()
        assert said.err.startswith(f"check: {refusal}") and said.err.count("\n") == 1
        assert said.out == ""


def test_the_algorithm_of_ours_is_the_first_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    ppo = check.ALGORITHMS["ppo"]
    ours = {
        "reinforce": reinforce.ALGORITHM,
        "sac": replace(reinforce.ALGORITHM, families=("continuous",)),
        "ppo": ppo,
    }
    monkeypatch.setattr(check, "ALGORITHMS", ours)
    assert check._trains("my_lab.nets:Residual", {}) == "ppo"
    games = ("cartpole", "pendulum", "Taxi-v4")
    assert [check._player(game) for game in games] == ["reinforce", "sac", "ppo"]


def test_the_command_on_what_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["my_lab.nothing:ALGORITHM"]) == 2
    assert "cannot be imported: ModuleNotFoundError" in capsys.readouterr().err


@pytest.fixture
def that_plays(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """The stranger's algorithm, said to play games of one family."""

    def changed(family: str) -> None:
        monkeypatch.setattr(
            reinforce, "ALGORITHM", replace(reinforce.ALGORITHM, families=(family,))
        )
        find_algorithm.cache_clear()

    yield changed
    find_algorithm.cache_clear()


def test_a_family_that_nobody_knows_is_one_line(
    that_plays: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    that_plays("discret")
    assert check.main(["my_lab.reinforce:ALGORITHM"]) == 2
    refused = (
        "check: algorithm 'my_lab.reinforce:ALGORITHM': unknown family 'discret'; did you mean"
    )
    captured = capsys.readouterr()
    assert captured.err.startswith(f"{refused} 'discrete'? known: continuous, discrete, multi-")
    assert captured.out == "" and captured.err.count("\n") == 1


def test_an_algorithm_of_a_family_without_a_game_of_ours_is_one_line(
    that_plays: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a KeyError; `-p game=…` names one that it plays."""
    that_plays("multi-discrete")
    assert check.main(["my_lab.reinforce:ALGORITHM"]) == 2
    assert "plays games whose actions are multi-discrete" in capsys.readouterr().err
