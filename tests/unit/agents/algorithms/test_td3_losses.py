"""TD3's targets and losses: closed forms, what each of its three ideas does to them, and what gradients
must not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.algorithms.td3 import (
    TD3Trainer,
    actor_loss,
    clipped_targets,
    critics_loss,
    smoothed,
)
from agents.algorithms.twin_critic_learning import Batch
from agents.networks.action_distributions import NoisyActions
from agents.networks.twin_critics import Perceptrons
from config.resolve import resolve

SMALL = {"hidden_sizes": "8,8", "batch_size": "16", "learning_starts": "16", "outdir": "/x"}


def trainer_of(**given: str) -> TD3Trainer:
    resolved = resolve("td3", {"game": "pendulum", **SMALL, **given})
    return TD3Trainer(resolved, run=0, device="cpu", precision="fp32")


@pytest.fixture
def trainer() -> TD3Trainer:
    """Its targets are others than what they follow."""
    made = trainer_of()
    made.close()
    generator = torch.Generator().manual_seed(5)
    critics, actor = (
        Perceptrons(2, (4, 8, 8, 1), generator),
        Perceptrons(1, (3, 8, 8, 1), generator),
    )
    made.network.target_critics.load_state_dict(critics.state_dict())
    made.network.target_actor.load_state_dict(actor.state_dict())
    return made


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


@pytest.fixture
def batch() -> Batch:
    discounts = torch.tensor([0.9, 0.0] * 8)
    weights = torch.tensor([1 / 15] * 15 + [0.0])
    return Batch(
        normal(0, 16, 3), normal(1, 16, 1).tanh(), normal(2, 16), discounts, normal(3, 16, 3), weights
    )  # fmt: skip


def test_smoothing_cuts_the_noise_and_then_the_action() -> None:
    actions = torch.tensor([[0.0], [0.0], [0.0], [0.9], [-0.9]])
    noise = torch.tensor([[1.0], [4.0], [-4.0], [4.0], [-1.0]])
    found = smoothed(actions, noise, deviation=0.2, clip=0.5)
    assert found.ravel().tolist() == pytest.approx([0.2, 0.5, -0.5, 1.0, -1.0])


def test_exploring_noise_is_in_the_unit_of_the_actions_and_stays_there() -> None:
    policy = torch.tensor([[0.0, 0.5], [3.0, -3.0]], dtype=torch.float64)
    noise = torch.tensor([[1.0, -2.0], [1.0, -1.0]], dtype=torch.float64)
    actions = NoisyActions(2, 0.1)
    taken = actions.choose(policy, noise)
    assert taken.ravel().tolist() == pytest.approx([0.1, np.tanh(0.5) - 0.2, 1.0, -1.0])
    assert torch.equal(actions.mode(policy), policy.tanh())


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
def test_a_training_explores_with_as_much_noise_as_asked_for(noise: float) -> None:
    trainer = trainer_of(exploration_noise=str(noise))
    trainer.collection.step = 16
    rows = np.zeros((4000, 3), np.float32)
    taken = trainer._act(rows, None)
    assert taken.std() == pytest.approx(noise, rel=0.05, abs=1e-6)
    trainer.collection.step = 15
    uniform = trainer._act(rows, None)
    trainer.close()
    assert np.histogram(uniform, 4, (-1, 1))[0] == pytest.approx([1000] * 4, abs=120)


def test_targets_take_the_smaller_value() -> None:
    values, one = torch.tensor([[5.0, 1.0], [3.0, 2.0]]), torch.ones(2)
    found = clipped_targets(one, torch.tensor([0.5, 0.0]), values)
    assert found.tolist() == pytest.approx([1 + 0.5 * 3, 1])
    assert clipped_targets(one, 0.5 * one, values).tolist() == pytest.approx([2.5, 1.5])


def test_losses_of_known_numbers() -> None:
    values, weights = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.full((2,), 0.5)
    ones = torch.ones(2)
    assert float(critics_loss(values, ones, weights)) == pytest.approx((0 + 1) / 2 + (4 + 16) / 2)
    assert float(critics_loss(values, ones, torch.tensor([1.0, 0.0]))) == 4
    assert float(actor_loss(torch.tensor([1.0, 4.0]))) == -2.5


def test_targets_are_of_the_slow_policy_s_smoothed_actions(
    trainer: TD3Trainer, batch: Batch
) -> None:
    noise, network = 3 * normal(4, 16, 1), trainer.network
    found = trainer._targets(batch, noise)
    assert not found.requires_grad
    assert found[1::2].tolist() == pytest.approx(batch.rewards[1::2].tolist()), (
        "terminated: r alone"
    )
    with torch.no_grad():
        slow = network.target_policy(batch.next_encoded).tanh()
        fast = network.policy(batch.next_encoded).tanh()
        cut = (0.2 * noise).clamp(-0.5, 0.5)
        expected = (slow + cut).clamp(-1, 1)
        others = {
            "unsmoothed": slow, "of the policy": (fast + cut).clamp(-1, 1), "uncut noise": slow + 0.2 * noise,
        }  # fmt: skip

        def targets(actions: Tensor, rows: Tensor = batch.next_encoded) -> Tensor:
            least = network.target_values(rows, actions).amin(dim=0)
            return batch.rewards + batch.discounts * least

        torch.testing.assert_close(found, targets(expected))
        for name, actions in others.items():
            assert float((found - targets(actions)).abs().max()) > 1e-3, name
        values = network.target_values(batch.next_encoded, expected)
        for value in (values[0], values.mean(dim=0), values.amax(dim=0)):
            assert not torch.allclose(found, batch.rewards + batch.discounts * value, atol=1e-3)


def test_gradients_stay_where_they_belong(trainer: TD3Trainer, batch: Batch) -> None:
    """Each loss moves its own parameters: none reaches the targets or the other network."""
    targets = trainer._targets(batch, normal(4, 16, 1))
    losses = {
        "critics.": trainer._critics_loss(batch.encoded, batch.actions, targets, batch.weights),
        "actor.": trainer._actor_loss(batch.encoded),
    }
    for own, (loss, *_) in losses.items():
        trainer.network.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        moved = {
            name.partition(".")[0] + "."
            for name, parameter in trainer.network.named_parameters()
            if parameter.grad is not None
        }
        assert moved == {own}


def test_the_policy_climbs_the_first_critic_by_the_deterministic_policy_gradient(
    trainer: TD3Trainer, batch: Batch
) -> None:
    """∇J = E[∇_a Q_1(o, a) ∇_θ π(o)], by hand for the last layer."""
    network: Any = trainer.network
    trainer.learners["actor"].gradients(batch.encoded)
    with torch.no_grad():
        policy = network.policy(batch.encoded)
        hidden = batch.encoded
        for layer in (1, 2):
            weight, bias = (
                getattr(network.actor, f"{kind}{layer}")[0] for kind in ("weight", "bias")
            )
            hidden = (hidden @ weight + bias).relu()
    actions = policy.tanh().requires_grad_()
    network.values(batch.encoded, actions)[0].sum().backward()
    along = actions.grad * (1 - policy.tanh() ** 2)
    expected = -(hidden * along).mean(dim=0)
    torch.testing.assert_close(network.actor.weight3.grad[0, :, 0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_policy_and_targets_move_in_every_dth_update(delay: int) -> None:
    trainer = trainer_of(policy_delay=str(delay), learning_rate="0.01", target_rate="0.5")
    for _ in range(20):
        trainer.collection.take_step(trainer._act)
    network = trainer.network
    parts = {
        "critics": network.critics, "actor": network.actor, "target_critics": network.target_critics,
        "target_actor": network.target_actor,
    }  # fmt: skip
    for update in range(1, 7):
        before = {name: [one.clone() for one in part.parameters()] for name, part in parts.items()}
        critics, actor = trainer._update()
        moved = {
            name
            for name, part in parts.items()
            if not all(map(torch.equal, part.parameters(), before[name]))
        }
        is_due = update % delay == 0
        assert critics is not None and (actor is not None) == is_due
        assert moved == (set(parts) if is_due else {"critics"})
    trainer.close()


def test_targets_follow_by_tau() -> None:
    trainer = trainer_of()
    trainer.close()
    network = trainer.network
    before = [slow.clone() for slow in network.targets]
    assert len(before) == len(network.followed) == 12
    with torch.no_grad():
        for parameter in network.followed:
            parameter.add_(1)
    network.follow(0.25)
    for slow, old in zip(network.targets, before, strict=True):
        torch.testing.assert_close(slow, old + 0.25)
    assert network.followed[-1] is list(network.actor.parameters())[-1]
