"""What an actor sends is what happened, and the learner sees it as the actor did."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agents.algorithms.impala import IMPALATrainer
from agents.algorithms.impala_acting import ActorCriticActing
from agents.distributed.protocol import Columns, Version, Weights
from agents.distributed.queues import Batch
from agents.distributed.stepping import Play
from agents.distributed.weights import weights_of
from agents.environments.training import TrainingEnvironments
from config.errors import Diverged
from config.games import Game
from config.resolved import Resolved
from tests.local_actors import impala, learner
from tests.recorded_game import LIFE, Recorded, Row
from tests.unit.agents.algorithms.test_ppo_reference import _make_recorded

SMALL = {"envs_per_actor": 3, "unroll_length": 5, "batch_size": 6, "hidden_sizes": 5, "epochs": 1}


def played(
    resolved: Resolved, trainer: IMPALATrainer | None = None, steps: int = 60
) -> Iterator[Columns]:
    """Unrolls of one actor by the trainer's weights."""
    environments = TrainingEnvironments(resolved, 0, 1)
    acting = ActorCriticActing(resolved, environments, run=0, number=1)
    if trainer is not None:
        load(acting, trainer)
    play = Play(environments, acting, resolved.hyperparameters.unroll_length)
    for _ in range(steps):
        play.step()
        unrolls = play.take(1)
        if unrolls is not None:
            yield unrolls.columns
    environments.close()


def load(acting: ActorCriticActing, trainer: IMPALATrainer) -> None:
    arrays = weights_of(trainer.network, trainer.observation_normaliser)
    acting.load(Weights(version=Version(1, 0), arrays=arrays))


def recorded(monkeypatch: pytest.MonkeyPatch, lives: bool, **given: Any) -> Resolved:
    """The recorded game, if asked for with Atari's lives and FIRE."""
    resolved = impala("tests.recorded_game:Recorded", **SMALL, **given)
    environment = replace(resolved.environment, episodic_life=lives)
    game = Game(name="recorded", id=resolved.game.id, kind="atari" if lives else "sync")
    monkeypatch.setattr("agents.environments.vectors.make_atari", _make_recorded)
    monkeypatch.setattr("agents.environments.training.needs_fire", lambda _: lives)
    Recorded.made.clear()
    return replace(resolved, environment=environment, game=game)


def expected(rows: list[Row], lives: bool) -> list[tuple[Any, ...]]:
    """Observation, action, reward, terminated, begins and valid of each row, truncated episodes'
    final observations included."""
    found, begins = list[tuple[Any, ...]](), True
    for row in rows:
        lost = lives and row.reward > LIFE
        terminated = row.terminated or lost
        forced = lives and row.begins
        found.append((row.observation, row.action, row.reward, terminated, begins, not forced))
        begins = row.terminated or row.truncated
        if row.truncated and not row.terminated:
            found.append((row.next_observation, 0, 0.0, False, False, False))
    return found


@pytest.mark.parametrize("lives", [False, True])
def test_unrolls_hold_what_happened(monkeypatch: pytest.MonkeyPatch, lives: bool) -> None:
    resolved = recorded(monkeypatch, lives)
    unrolls = list(played(resolved))
    environments = Recorded.made[-3:]  # before them one was timed
    streams = [expected(one.rows, lives) for one in environments]
    found: list[list[tuple[Any, ...]]] = [[] for _ in environments]
    names = ("observation", "action", "reward", "terminated", "begins", "valid")
    begun = [stream[0][0].tolist() for stream in streams]
    of_first: dict[tuple[float, ...], int] = {tuple(one): n for n, one in enumerate(begun)}
    for columns in unrolls:
        for unroll in range(len(columns["reward"])):
            rows = list(zip(*(columns[name][unroll] for name in names), strict=True))
            number = of_first.pop(tuple(rows[0][0].tolist()))
            found[number] += rows[:-1]
            of_first[tuple(rows[-1][0].tolist())] = number
    for stream, rows in zip(streams, found, strict=True):
        assert len(stream) - len(rows) <= 6 and len(rows) > 50
        for mine, theirs in zip(rows, stream, strict=False):
            assert mine[0].tolist() == theirs[0].tolist()
            if theirs[5]:
                assert mine[1] == theirs[1]
            assert mine[2] == pytest.approx(theirs[2])
            assert [bool(one) for one in mine[3:]] == list(theirs[3:])


def batch_of(trainer: IMPALATrainer, unrolls: Iterator[Columns]) -> Batch:
    """The next unrolls as a batch."""
    size = trainer.hyper.batch_size
    taken, columns = 0, dict[str, list[np.ndarray]]()
    while taken < size:
        one = next(unrolls)
        for name, column in one.items():
            columns.setdefault(name, []).append(column)
        taken += len(one["reward"])
    joined = {name: np.concatenate(parts)[:size] for name, parts in columns.items()}
    return Batch(joined, np.zeros(size, np.int64))


GAMES = {
    "cartpole": {}, "pendulum": {}, "cartpole with statistics": {"normalise_observations": True},
    "tests.lab_environments:Locks": {}, "tests.own_games:ConstantReward": {},
    "tests.lab_environments:Copy": {"env_options": "acts=multi-discrete"},
}  # fmt: skip


def of_the_same_weights(game: str, mistake: str = "", **given: Any) -> float:
    """The largest |log π/μ| where actor and learner have the same weights."""
    settings = {**SMALL, **GAMES.get(game, {}), **given}
    trainer = learner(impala(game.partition(" ")[0], **settings))
    trainer.network.policy_weight.data *= 100  # what is seen and remembered matters
    unrolls = played(trainer.resolved, trainer, 400)
    largest = 0.0
    for batch in itertools.islice(iter(lambda: batch_of(trainer, unrolls), None), 10):
        columns = batch.columns
        if mistake == "the state of the next row":
            columns["begins"][:, 0] = True
        if mistake == "no reset inside":
            columns["begins"][:, 1:] = False
        if trainer.observation_normaliser is not None:
            trainer.observation_normaliser.update = lambda rows: None  # type: ignore[method-assign]
        rows = trainer._rows(columns)
        _, log_ratio, *_ = trainer._loss(*rows)
        largest = max(largest, float(log_ratio.abs().max()))
    trainer.close()
    return largest


@pytest.mark.parametrize("lstm_size", [0, 6])
@pytest.mark.parametrize("game", GAMES)
def test_the_learner_finds_the_actor_s_probabilities(game: str, lstm_size: int) -> None:
    assert of_the_same_weights(game, lstm_size=lstm_size) < 1e-4


@pytest.mark.parametrize("mistake", ["the state of the next row", "no reset inside"])
def test_each_mistake_with_the_state_would_be_noticed(mistake: str) -> None:
    assert of_the_same_weights("cartpole", mistake, lstm_size=6, envs_per_actor=1) > 1e-3


@pytest.mark.parametrize("network", ["my_lab.nets:Gated", "my_lab.nets:Residual"])
def test_a_person_s_torso_acts_with_and_without_a_memory(network: str) -> None:
    assert of_the_same_weights("cartpole", network=network) < 1e-4


def test_a_nan_of_an_environment_ends_its_actor() -> None:
    resolved = impala("tests.own_games:Broken", env_options="field=observation", **SMALL)
    with pytest.raises(Diverged, match="observation that is not finite"):
        list(played(resolved))


def test_a_final_observation_allows_every_action() -> None:
    """Where none is allowed, no policy has a probability, and the learner asks for one."""
    resolved = impala("tests.lab_environments:Locks", **SMALL)
    environments = TrainingEnvironments(resolved, 0, 1)
    play = Play(environments, ActorCriticActing(resolved, environments, run=0, number=1), 5)
    receive, finals = environments.receive, list[bool]()

    def truncated(group: int) -> Any:
        answer = receive(group)
        return replace(answer, truncated=~answer.terminated, ended=np.arange(3))

    environments.receive = truncated  # type: ignore[method-assign]
    for _ in range(30):
        play.step()
        for rows in [unrolls.columns] if (unrolls := play.take(1)) is not None else []:
            assert not rows["mask"][rows["valid"]].all()
            finals += rows["mask"][~rows["valid"]].all(axis=1).tolist()
    environments.close()
    assert len(finals) > 20 and all(finals)
