"""R2D2 where the answer is known, with actors in this process."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch

from agents.algorithms.r2d2_acting import BEST, TAKEN, RecurrentValueActing
from agents.checks.kept_streams import KeptStreams
from agents.distributed.local import LocalLink
from agents.distributed.protocol import Ack, Unrolls
from agents.distributed.unrolls import as_state
from agents.distributed.weights import weights_of
from agents.environments.training import TrainingEnvironments
from agents.evaluation.episodes import evaluate
from agents.interfaces import Progress
from agents.load import load_policy
from agents.networks.action_values import epsilon_of_actor
from config.errors import BadInput, Diverged
from tests.local_actors import in_turn
from tests.replayed_actors import learner, played, replayed


def test_epsilons_of_actors() -> None:
    found = [epsilon_of_actor(one, 4, largest=0.4, exponent=7) for one in range(4)]
    assert found == pytest.approx([0.4, 0.0471556, 0.0055591, 0.00065536], rel=1e-4)
    assert epsilon_of_actor(0, 1, largest=0.4, exponent=7) == 0.4
    assert epsilon_of_actor(1, 2, largest=0.4, exponent=7) == pytest.approx(0.4**8)


def test_every_environment_of_every_actor_explores_differently() -> None:
    resolved = replayed(
        "r2d2", "cartpole", envs_per_actor=2, actors=2, epsilon=0.4, epsilon_exponent=7
    )
    environments = TrainingEnvironments(resolved, 0)
    found = list[float]()
    for member in (0, 1):
        acting = RecurrentValueActing(resolved, environments, run=0, number=9, member=member)
        found += acting.epsilons.tolist()
    environments.close()
    assert found == pytest.approx([0.4, 0.0471556, 0.0055591, 0.00065536], rel=1e-4)


def test_actions_are_random_as_often_as_epsilon_says_and_else_the_best() -> None:
    resolved = replayed("r2d2", "cartpole", epsilon=0.5, epsilon_exponent=0)
    columns, _ = played(resolved, RecurrentValueActing, None, 600)
    worse = columns[TAKEN] < columns[BEST]
    assert 0.2 < worse[columns["valid"]].mean() < 0.3  # half of the random ones are the best
    greedy = replayed("r2d2", "cartpole", epsilon=0)
    columns, _ = played(greedy, RecurrentValueActing, None, 100)
    assert (columns[TAKEN] == columns[BEST])[columns["valid"]].all()


def test_each_environment_explores_by_its_own_epsilon_whichever_group_it_is_in() -> None:
    resolved = replayed("r2d2", "cartpole", envs_per_actor=2)
    environments = TrainingEnvironments(resolved, 0)
    acting = RecurrentValueActing(resolved, environments, run=0, number=0)
    acting.epsilons = np.array([1.0, 0.0])
    second, begins = slice(1, 2), np.array([True])
    acted = [acting.act(second, environments.observation[second], begins, None) for _ in range(30)]
    environments.close()
    assert all(one.rows[TAKEN] == one.rows[BEST] for one in acted)


@pytest.mark.parametrize("game", ["cartpole", "tests.own_games:Chain"])
def test_the_learner_finds_the_actor_s_values_from_the_stored_state(game: str) -> None:
    """Of every row, also of what an episode was truncated with, and of rows that are sent twice."""
    resolved = replayed("r2d2", game, lstm_size=5, epsilon=1, epsilon_exponent=0)
    trainer = learner(resolved)
    for parameter in trainer.network.parameters():
        parameter.data *= 3
    arrays = weights_of(trainer.network, None)
    columns, _ = played(resolved, RecurrentValueActing, arrays, 80, trainer.hyper.burn_in)
    seen = trainer._seen(columns)
    values, _ = trainer.network(seen.encoded, as_state(columns, trainer.remembered), seen.begins)
    best = values.amax(dim=2).T.detach().numpy()
    assert columns[BEST] == pytest.approx(best, abs=1e-4)
    final = columns["begins"][:, 1:] & ~columns["terminated"][:, :-1]
    assert final.any() == (game != "cartpole") and np.std(best) > 0.01
    new = slice(trainer.hyper.burn_in, -1)
    assert columns["valid"][:, new].sum() > 0.9 * 80 * 3 - final.sum() - 30


def test_a_bandit_is_solved() -> None:
    given = {
        "epochs": 4, "epoch_updates": 20, "learning_rate": 0.01, "adam_epsilon": 1e-6,
        "epsilon": 1, "epsilon_exponent": 0,
    }  # fmt: skip
    resolved = replayed("r2d2", "tests.own_games:Bandit", **given)
    trainer = learner(resolved)
    progress = list(in_turn(trainer, 2))
    assert np.mean([one for each in progress for one in each.returns]) < 0.6
    policy = load_policy(resolved, trainer.state_dict())
    assert [one.return_ for one in evaluate(policy, resolved, 0, 5, False)] == [1.0] * 5


def value_of(merged: bool) -> float:
    resolved = replayed(
        "r2d2", "tests.own_games:ConstantReward", epochs=4, epoch_updates=40, discount=0.8,
        target_every=10, learning_rate=0.02, adam_epsilon=1e-6, rescale_values=False,
        env_options=f"merged={str(merged).lower()}",
    )  # fmt: skip
    trainer = learner(resolved)
    list(in_turn(trainer))
    policy: Any = load_policy(resolved, trainer.state_dict())
    state, encoded = policy.first_state(1), torch.zeros(1, 1)
    for step in range(10):
        values, state = policy.network(
            encoded[None], tuple(map(torch.as_tensor, state)), torch.tensor([[step == 0]])
        )
    return float(values.max().detach())


def test_a_truncated_episode_is_worth_what_would_have_followed() -> None:
    assert value_of(merged=False) == pytest.approx(5, abs=0.3)
    assert value_of(merged=True) < 4.3


def recall(burn_in: int, **given: Any) -> float:
    resolved = replayed(
        "r2d2", "tests.own_games:Recall", env_options="steps=6", envs_per_actor=8, burn_in=burn_in,
        unroll_length=12, batch_size=16, epochs=12, epoch_updates=100, learning_rate=0.005,
        adam_epsilon=1e-5, lstm_size=16, hidden_sizes=16, target_every=50, max_ahead=60, **given,
    )  # fmt: skip
    trainer = learner(resolved)
    list(in_turn(trainer, 2))
    policy = load_policy(resolved, trainer.state_dict())
    return float(np.mean([one.return_ for one in evaluate(policy, resolved, 0, 60, False)]))


@pytest.mark.slow
def test_a_cue_is_remembered_and_without_a_memory_it_is_chance() -> None:
    assert recall(3) == 1.0
    assert recall(3, network="tests.replayed_actors:Forgetful") < 0.8


def test_the_same_seed_in_turn_is_the_same_training() -> None:
    def rows() -> list[Progress]:
        return list(in_turn(learner(replayed("r2d2", "cartpole", seed=3)), 2))

    first = rows()
    assert first == rows()
    given = replayed("r2d2", "cartpole")
    expected = [60 + given.steps_per_epoch * n for n in (1, 2, 3)]
    assert [one.step for one in first] == expected
    assert all(one.metrics.keys() == first[0].metrics.keys() for one in first)


def test_everything_twice_teaches_nothing_twice() -> None:
    class Twice(LocalLink):
        """Every acknowledgement is lost once."""

        def send(self, unrolls: Unrolls) -> list[Ack]:
            first = super().send(unrolls)
            self._sequence -= 1
            assert [ack.state for ack in super().send(unrolls)] == ["duplicate"]
            return first

    once, twice = (learner(replayed("r2d2", "cartpole")) for _ in range(2))
    assert list(in_turn(once)) == list(in_turn(twice, link=Twice))
    assert once.experience.replay.added == twice.experience.replay.added > 0
    assert torch.equal(once.network.weight, twice.network.weight)


def test_a_training_goes_on_with_the_replay_that_it_had() -> None:
    resolved = replayed("r2d2", "cartpole", normalise_observations=True, replay_size=100, epochs=6)
    one, kept = learner(resolved), KeptStreams()
    for progress in itertools.islice(in_turn(one, 2), 4):
        assert progress is not None
        kept.take(one)
    assert kept.names == ["replay"] and one.experience.replay.added > one.experience.replay.slots
    state = json.loads(json.dumps(one.state_dict(), default=lambda array: array.tolist()))
    assert state["queue"]["taken"] == one.experience.steps
    later, without = learner(resolved), learner(resolved)
    for trainer in (later, without):
        trainer.load_state_dict(one.state_dict())
        kept.give(trainer)
    without.priorities.load_state_dict(learner(resolved).priorities.state_dict())
    without.priorities.follow(without.experience.replay.unrolls)
    assert (later.epoch, later.step, later.experience.updates) == (4, one.step, 12)
    for _ in range(4):
        for trainer in (one, later, without):
            trainer._learn()
    weights = [trainer.network.weight for trainer in (one, later, without)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])  # whose priorities are others
    exchange = later.receiver(1)
    assert exchange._version.generation == 2
    for trainer in (one, later):
        assert (trainer.experience.normaliser.mean == one.experience.normaliser.mean).all()


def test_the_target_is_copied_when_it_is_due() -> None:
    trainer = learner(replayed("r2d2", "cartpole", target_every=4, epoch_updates=6, epochs=1))
    copies = list[int]()
    trainer._copy_target = lambda: copies.append(trainer.experience.updates + 1)
    list(in_turn(trainer))
    assert copies == [4]


def test_what_is_not_finite_never_reaches_the_optimiser() -> None:
    trainer = learner(replayed("r2d2", "cartpole", epochs=1))
    list(in_turn(trainer))
    before = trainer.network.weight.detach().clone()
    trainer.experience.replay._columns["reward"][:] = 3e38  # finite, what it is summed to is not
    with pytest.raises(Diverged, match=r"rewards 3e\+38 … 3e\+38"):
        trainer._learn()
    assert torch.equal(trainer.network.weight, before)


def test_learning_rate_and_clipped_rewards() -> None:
    trainer = learner(replayed("r2d2", "cartpole", anneal_learning_rate=True, learning_rate=0.09))
    rates = list[float]()
    step = trainer.optimiser.step
    trainer.optimiser.step = lambda rate: (rates.append(rate), step(rate))
    list(in_turn(trainer))
    assert rates == pytest.approx([0.01 * number for number in range(9, 0, -1)])
    columns = {name: one[:2].copy() for name, one in trainer.experience.replay._columns.items()}
    columns["reward"][:] = -7
    clips = learner(replayed("r2d2", "cartpole", clip_rewards=True))
    found = [one._rows(columns, torch.device("cpu")).rewards.min() for one in (trainer, clips)]
    assert found == [-7, -1]


def test_priorities_and_importance_weights_are_as_asked() -> None:
    for given, spread in (({}, True), ({"priority_exponent": 0}, False)):
        trainer = learner(replayed("r2d2", "cartpole", epochs=1, **given))
        list(in_turn(trainer))
        rows, probabilities = trainer.priorities.sample(500, np.random.default_rng(0))
        assert (np.ptp(probabilities) > 1e-3) == spread
        assert set(rows) <= set(trainer.experience.replay.unrolls)
    seen = list[np.ndarray]()
    for exponent in (0.0, 0.6):
        trainer = learner(replayed("r2d2", "cartpole", epochs=1, importance_exponent=exponent))
        update = trainer._update
        trainer._update = lambda *one, update=update: (seen.append(one[2]), update(*one))[1]
        list(in_turn(trainer))
    assert (seen[0] == 1).all() and seen[-1].min() < 0.99 and seen[-1].max() == 1


def test_a_sequence_has_the_priority_of_its_own_error() -> None:
    trainer = learner(replayed("r2d2", "cartpole", epochs=1))
    list(in_turn(trainer))
    sequences = np.arange(trainer.experience.replay.unrolls.start, trainer.hyper.batch_size)
    trainer.priorities.sample = lambda *_: (sequences, np.full(len(sequences), 0.1))

    def update(seen: Any, rows: Any, weights: Any) -> Any:
        errors = torch.arange(1.0, 1 + len(sequences)).expand(rows.valid.shape)
        rows.valid[:] = True
        return torch.zeros(()), errors, errors, 0.0

    written = list[tuple[list[int], list[float]]]()
    trainer._update = update
    trainer.priorities.update = lambda *one: written.append((one[0].tolist(), one[1].tolist()))
    trainer._learn()
    assert written[0][0] == sequences.tolist()
    assert written[0][1] == pytest.approx(range(1, 1 + len(sequences)))


def test_values_that_do_not_go_together_are_refused() -> None:
    for given, word in (
        ({"burn_in": 7}, "'burn_in' cannot be 7; allowed: less than unroll_length, 7"),
        ({"max_ahead": 1, "replay_ratio": 90}, "'max_ahead' cannot be 1; allowed: at least"),
        ({"replay_size": 59}, "'replay_size' cannot be 59; allowed: at least 60"),
        ({"replay_ratio": 200, "max_ahead": 200}, "'replay_ratio' cannot be 200; allowed: at most"),
        ({"normalise_rewards": True}, "'normalise_rewards' cannot be true"),
    ):
        with pytest.raises(BadInput, match=word):
            replayed("r2d2", "cartpole", **given)


@pytest.mark.parametrize("given", [{}, {"dueling": False}, {"network": "my_lab.nets:Gated"}])
def test_a_trained_policy_is_evaluated_like_any_other(given: dict[str, Any]) -> None:
    more = {"normalise_observations": True, "epsilon": 0.4, "epsilon_exponent": 7, **given}
    resolved = replayed("r2d2", "cartpole-no-velocity", **more)
    trainer = learner(resolved)
    list(in_turn(trainer))
    policy: Any = load_policy(resolved, trainer.state_dict())
    assert policy.epsilon == pytest.approx(0.00065536)
    greedy, sampled = (
        next(iter(evaluate(policy, resolved, 0, 1, sample))).length for sample in (False, True)
    )
    assert greedy > 0 and sampled > 0
    assert policy.normaliser.mean.tolist() == trainer.experience.normaliser.mean.tolist()
