"""Asynchronous SAC is SAC's update on what its workers experienced, with workers in this process."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch

from agents.algorithms.async_sac_acting import SquashedActing, of_policy
from agents.algorithms.sac import SACTrainer, SoftActorCriticLearning
from agents.checks.kept_streams import KeptStreams
from agents.distributed.protocol import Version, Weights
from agents.distributed.weights import weights_of
from agents.environments.training import TrainingEnvironments
from agents.evaluation.episodes import evaluate
from agents.interfaces import Progress
from agents.load import load_policy, make_trainer
from config.errors import BadInput, Diverged
from config.resolve import resolve
from tests.local_actors import in_turn
from tests.replayed_actors import learner, played, replayed


def test_its_update_is_that_of_sac_to_the_bit() -> None:
    """From the same weights, on the same transitions, by the same noise."""
    resolved = replayed("async-sac", "pendulum")
    one, trainer = resolve("sac", {"game": "pendulum", "hidden_sizes": "8"}), learner(resolved)
    list(in_turn(trainer, 2))
    single: Any = make_trainer(one, run=0, device="cpu", precision="fp32")
    single.network.load_state_dict(trainer.network.state_dict())
    single.log_alpha.data.copy_(trainer.log_alpha.data)
    for name, each in trainer.learners.items():
        single.learners[name].optimiser.load_state_dict(each.optimiser.state_dict())
    for name, generator in trainer.generators.items():
        single.generators[name].bit_generator.state = generator.bit_generator.state
    drawn = trainer._drawn()
    for trained in (single, trainer):
        trained._drawn = lambda: drawn
        trained.hyper = trainer.hyper
        ((means, norms),) = trained._update()
        assert torch.isfinite(means).all() and min(norms) > 0
    for name, tensor in trainer.network.state_dict().items():
        assert torch.equal(tensor, single.network.state_dict()[name]), name
    assert torch.equal(trainer.log_alpha, single.log_alpha)
    assert type(trainer)._update is SACTrainer._update is SoftActorCriticLearning._update
    single.close()


def test_actions_are_uniform_until_something_is_learnt_and_then_the_policy_s() -> None:
    resolved = replayed("async-sac", "pendulum", unroll_length=1)
    before, acting = played(resolved, SquashedActing, None, 1500)
    actions = before["action"].ravel()
    assert acting.knows_nothing  # type: ignore[attr-defined]
    assert np.histogram(actions, 4, (-1, 1))[0] / len(actions) == pytest.approx(
        [0.25] * 4, abs=0.03
    )
    trainer = learner(resolved)
    with torch.no_grad():
        for parameter in trainer.network.actor.parameters():
            parameter.zero_()
        parameter += torch.tensor([[[0.5, -3.0]]])  # the last one is the bias of μ and log σ
    after, acting = played(
        resolved, SquashedActing, weights_of(of_policy(trainer.network), None), 300
    )
    unsquashed = np.arctanh(after["action"][after["valid"]].ravel())
    assert not acting.knows_nothing  # type: ignore[attr-defined]
    assert np.mean(unsquashed) == pytest.approx(0.5, abs=0.02)
    assert np.std(unsquashed) == pytest.approx(np.exp(-3), rel=0.1)


def test_weights_of_no_update_teach_nothing() -> None:
    resolved = replayed("async-sac", "pendulum")
    environments = TrainingEnvironments(resolved, 0)
    acting = SquashedActing(resolved, environments, run=0, number=0)
    environments.close()
    arrays = weights_of(of_policy(learner(resolved).network), None)
    for update, knows_nothing in ((0, True), (1, False)):
        acting.load(Weights(version=Version(3, update), arrays=arrays))
        assert acting.knows_nothing is knows_nothing


def test_only_what_acts_is_sent() -> None:
    trainer = learner(replayed("async-sac", "pendulum"))
    names = set(weights_of(of_policy(trainer.network), None))
    assert names and all(name.startswith("network.actor.") for name in names)


def test_square_is_learnt() -> None:
    resolved = replayed(
        "async-sac", "tests.own_games:Square", epochs=4, epoch_steps=80, learning_rate=0.01,
        batch_size=32, hidden_sizes=16, updates=2, train_every=1, max_ahead=40,
    )  # fmt: skip
    trainer = learner(resolved)
    progress = list(in_turn(trainer, 2))
    assert np.mean(progress[0].returns) < -1.5
    policy = load_policy(resolved, trainer.state_dict())
    assert np.mean([one.return_ for one in evaluate(policy, resolved, 0, 5, False)]) > -0.3


def test_as_many_updates_and_steps_as_where_one_process_does_both() -> None:
    resolved = replayed("async-sac", "pendulum", train_every=4, updates=3)
    trainer = learner(resolved)
    progress = list(in_turn(trainer, 2))
    assert [one.step for one in progress] == [60, 120, 180]
    assert trainer.experience.updates == (180 - 40) // 4 * 3
    assert trainer.experience.steps >= 180
    assert progress[-1].metrics["replayed"] is not None
    assert all(one.metrics.keys() == progress[0].metrics.keys() for one in progress)


def test_the_same_seed_in_turn_is_the_same_training() -> None:
    def rows() -> list[Progress]:
        return list(in_turn(learner(replayed("async-sac", "pendulum", seed=3)), 2))

    assert rows() == rows()


def test_a_training_goes_on_with_the_replay_that_it_had() -> None:
    resolved = replayed("async-sac", "pendulum", normalise_observations=True, learning_starts=60)
    one, kept = learner(resolved), KeptStreams()
    for _ in itertools.islice(in_turn(one, 2), 2):
        kept.take(one)
    json.dumps(one.state_dict(), default=lambda array: array.tolist())
    later, without = learner(resolved), learner(resolved)
    for trainer in (later, without):
        trainer.load_state_dict(one.state_dict())
        kept.give(trainer)
    without.experience.replay._columns["reward"][:] = 0
    assert (later.epoch, later.step, later.steps_now) == (2, 120, one.steps_now)
    for _ in range(3):
        for trainer in (one, later, without):
            trainer._update()
    weights = [trainer.network.critics.weight1 for trainer in (one, later, without)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_what_is_not_finite_never_reaches_an_optimiser() -> None:
    trainer = learner(replayed("async-sac", "pendulum", epochs=1))
    list(in_turn(trainer))
    before = trainer.network.critics.weight1.detach().clone()
    trainer.experience.replay._columns["reward"][:] = 1e30
    with pytest.raises(Diverged, match="of the critics is not finite in epoch 2"):
        trainer._update()
    assert torch.equal(trainer.network.critics.weight1, before)


def test_rewards_are_clipped_and_observations_normalised_where_that_is_asked_for() -> None:
    for given, least in (({}, -17), ({"clip_rewards": True}, -1)):
        trainer = learner(
            replayed(
                "async-sac", "pendulum", normalise_observations=True, learning_starts=60, **given
            )
        )
        list(in_turn(trainer))
        drawn = trainer._drawn()
        assert least <= drawn.reward.min() <= -1
        stored = trainer.experience.replay._columns["observation"]
        assert np.abs(drawn.observation).max() != pytest.approx(np.abs(stored).max())


@pytest.mark.parametrize("overlap", [0, 2])
def test_statistics_of_observations_learn_each_row_once(overlap: int) -> None:
    """An unroll begins with the last rows of the one before."""
    given = {"normalise_observations": True, "learning_starts": 60}
    trainer = learner(replayed("async-sac", "pendulum", **given))
    columns, _ = played(trainer.resolved, SquashedActing, None, 40)
    experience = trainer.experience
    experience._overlap = overlap
    experience._add({name: column[:4] for name, column in columns.items()})
    new = columns["valid"][:4, overlap:-1]
    assert experience.normaliser.statistics.count == new.sum()


def test_values_that_do_not_go_together_are_refused() -> None:
    for given, word in (
        ({"max_ahead": 5}, "'max_ahead' cannot be 5; allowed: at least 11"),
        ({"replay_size": 8}, r"'replay_size' cannot be 8; allowed: at least 10"),
        ({"alpha": 1, "target_entropy": 1}, "'target_entropy'"),
    ):
        with pytest.raises(BadInput, match=word):
            replayed("async-sac", "pendulum", **given)
