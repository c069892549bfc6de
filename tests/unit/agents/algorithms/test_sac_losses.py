"""SAC's targets and losses: closed forms, an implementation by loops in double precision, and what
gradients must not reach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from agents.algorithms.sac import (
    SACTrainer,
    actor_loss,
    critics_loss,
    soft_targets,
    temperature_loss,
)
from agents.algorithms.twin_critic_learning import Batch
from agents.networks.twin_critics import Perceptrons
from config.resolve import resolve

SMALL = {"hidden_sizes": "8,8", "batch_size": "16", "learning_starts": "16", "outdir": "/x"}


def trainer_of(**given: str) -> SACTrainer:
    resolved = resolve("sac", {"game": "pendulum", **SMALL, **given})
    return SACTrainer(resolved, run=0, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def trainer() -> SACTrainer:
    """Its targets are others than its critics, and so is its temperature."""
    made = trainer_of()
    made.close()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        made.network.target_critics.load_state_dict(
            Perceptrons(2, (4, 8, 8, 1), generator).state_dict()
        )
        made.log_alpha.fill_(math.log(0.3))
    return made


@pytest.fixture
def batch() -> Batch:
    drawn = np.random.default_rng(0)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(drawn.standard_normal(shape, np.float32))

    discounts = torch.tensor([0.9, 0.0] * 8)
    weights = torch.tensor([1 / 15] * 15 + [0.0])
    return Batch(
        normal(16, 3), normal(16, 1).tanh(), normal(16), discounts, normal(16, 3), weights
    )  # fmt: skip


NOISE, NEXT_NOISE = torch.from_numpy(
    np.random.default_rng(1).standard_normal((2, 16, 1), np.float32)
)


class Slow:
    """The same networks, one row at a time, in double precision."""

    def __init__(self, trainer: SACTrainer) -> None:
        state = trainer.network.state_dict()
        self.state = {
            name: value.double().requires_grad_() for name, value in state.items() if value.dim()
        }
        self.alpha = math.exp(trainer.log_alpha.item())

    def network(self, name: str, number: int, row: Tensor) -> Tensor:
        for layer in (1, 2, 3):
            weight = self.state[f"{name}.weight{layer}"][number]
            row = row @ weight + self.state[f"{name}.bias{layer}"][number, 0]
            row = torch.maximum(row, torch.zeros_like(row)) if layer < 3 else row
        return row

    def sample(self, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.network("actor", 0, observation.double())
        squashed = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform(cache_size=1))
        action = squashed.transforms[0](mean + log_std.exp() * noise.double()[0])
        return action, squashed.log_prob(action)

    def value(self, name: str, number: int, observation: Tensor, action: Tensor) -> Tensor:
        return self.network(name, number, torch.cat((observation.double(), action.reshape(1))))[0]

    def target(self, batch: Batch, row: int) -> float:
        action, log_probability = self.sample(batch.next_encoded[row], NEXT_NOISE[row])
        values = [
            self.value("target_critics", number, batch.next_encoded[row], action).item()
            for number in (0, 1)
        ]
        soft = min(values) - self.alpha * log_probability.item()
        return float(batch.rewards[row]) + float(batch.discounts[row]) * soft

    def critics_loss(self, batch: Batch) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for row in range(len(batch.rewards)):
            for number in (0, 1):
                value = self.value(
                    "critics", number, batch.encoded[row], batch.actions[row].double()
                )
                error = value - self.target(batch, row)
                total = total + 0.5 * float(batch.weights[row]) * error * error
        return total

    def actor_loss(self, batch: Batch) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for row in range(len(batch.rewards)):
            action, log_probability = self.sample(batch.encoded[row], NOISE[row])
            values = [
                self.value("critics", number, batch.encoded[row], action) for number in (0, 1)
            ]
            total = total + self.alpha * log_probability - min(values)
        return total / len(batch.rewards)

    def gradients(self, loss: Tensor, prefix: str) -> list[Tensor]:
        for parameter in self.state.values():
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        found = [value.grad for name, value in self.state.items() if name.startswith(prefix)]
        return [gradient for gradient in found if gradient is not None]


def gradients_of(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def assert_close(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected) == 6
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_the_targets_are_those_of_loops(trainer: SACTrainer, batch: Batch) -> None:
    found = trainer._targets(batch, NEXT_NOISE, trainer.log_alpha.detach().exp())
    slow = Slow(trainer)
    expected = [slow.target(batch, row) for row in range(16)]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert not found.requires_grad
    assert found[1::2].tolist() == pytest.approx(batch.rewards[1::2].tolist()), (
        "terminated: r alone"
    )


def test_the_critics_loss_and_gradients_are_those_of_loops(
    trainer: SACTrainer, batch: Batch
) -> None:
    targets = trainer._targets(batch, NEXT_NOISE, trainer.log_alpha.detach().exp())
    inputs = (batch.encoded, batch.actions, targets, batch.weights)
    loss, q_mean, error = trainer.learners["critics"].gradients(*inputs)
    slow = Slow(trainer)
    expected = slow.critics_loss(batch)
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    assert_close(gradients_of(trainer.network.critics), slow.gradients(expected, "critics"))
    values = trainer.network.values(batch.encoded, batch.actions)
    assert float(q_mean) == pytest.approx(values.mean().item())
    assert float(error) == pytest.approx((values - targets).abs().mean().item())


def test_the_actor_s_loss_and_gradients_are_those_of_loops(
    trainer: SACTrainer, batch: Batch
) -> None:
    alpha = trainer.log_alpha.detach().exp()
    for _ in range(3):
        loss, entropy = trainer.learners["actor"].gradients(batch.encoded, NOISE, alpha)
    slow = Slow(trainer)
    expected = slow.actor_loss(batch)
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    assert_close(gradients_of(trainer.network.actor), slow.gradients(expected, "actor"))
    rows = [slow.sample(batch.encoded[row], NOISE[row])[1].item() for row in range(16)]
    assert float(entropy) == pytest.approx(-sum(rows) / 16, rel=1e-5)


def test_gradients_stay_where_they_belong(trainer: SACTrainer, batch: Batch) -> None:
    """Each loss moves its own parameters: none reaches the targets, α, or the other network."""
    alpha = trainer.log_alpha.detach().exp().requires_grad_()
    targets = trainer._targets(batch, NEXT_NOISE, alpha)
    losses = {
        "critics.": trainer._critics_loss(batch.encoded, batch.actions, targets, batch.weights),
        "actor.": trainer._actor_loss(batch.encoded, NOISE, alpha.detach()),
    }
    for own, (loss, *_) in losses.items():
        trainer.network.zero_grad()
        trainer.log_alpha.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        moved = {
            name.partition(".")[0] + "."
            for name, parameter in trainer.network.named_parameters()
            if parameter.grad is not None
        }
        assert moved == {own}
        assert trainer.log_alpha.grad is None and alpha.grad is None


def test_targets_take_the_smaller_value_and_the_entropy() -> None:
    values, one = torch.tensor([[5.0, 1.0], [3.0, 2.0]]), torch.ones(2)
    found = soft_targets(one, 0.5 * one, values, torch.tensor([-2.0, 2.0]), torch.tensor(0.1))
    assert found.tolist() == pytest.approx([1 + 0.5 * (3 + 0.2), 1 + 0.5 * (1 - 0.2)])


def test_losses_of_known_numbers() -> None:
    values, weights = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.full((2,), 0.5)
    assert float(critics_loss(values, torch.tensor([1.0, 1.0]), weights)) == pytest.approx(
        0.5 * (0 + 1) / 2 + 0.5 * (4 + 16) / 2
    )
    assert float(critics_loss(values, torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0]))) == 2
    log_probabilities = torch.tensor([-1.0, 3.0])
    assert float(actor_loss(values, log_probabilities, torch.tensor(0.5))) == pytest.approx(
        ((-0.5 - 1) + (1.5 - 2)) / 2
    )


@pytest.mark.parametrize(("entropy", "sign"), [(-0.4, 1), (-1.6, -1), (-1.0, 0)])
def test_alpha_falls_when_there_is_more_entropy_than_asked_for(entropy: float, sign: int) -> None:
    log_alpha = nn.Parameter(torch.tensor(-1.0))
    loss = temperature_loss(log_alpha, torch.tensor(entropy), -1.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(math.exp(-1) * (entropy + 1), abs=1e-7)
    assert np.sign(round(log_alpha.grad.item(), 6)) == sign


@pytest.mark.parametrize(("target", "rises"), [("-20", False), ("20", True)])
def test_the_trainer_s_alpha_follows_its_target(target: str, rises: bool) -> None:
    trainer = trainer_of(target_entropy=target, epoch_steps="40", epochs="1")
    (progress,) = trainer.train()
    trainer.close()
    assert (trainer.log_alpha.item() > 0) == rises
    assert (progress.metrics["alpha"] > 1) == rises


def test_the_target_entropy_is_minus_the_number_of_actions_unless_given() -> None:
    wide = resolve("sac", {"game": "tests.own_games:Wide", **SMALL})
    trainer = SACTrainer(wide, run=0, device="cpu", precision="fp32")
    trainer.close()
    assert trainer.target_entropy == -3


def test_a_fixed_alpha_stays() -> None:
    trainer = trainer_of(alpha="0.25", epoch_steps="40", epochs="1")
    (progress,) = trainer.train()
    trainer.close()
    assert trainer.log_alpha.exp().item() == pytest.approx(0.25)
    assert progress.metrics["alpha"] == pytest.approx(0.25)


def test_targets_follow_by_tau() -> None:
    trainer = trainer_of()
    trainer.close()
    network: Any = trainer.network
    before = [slow.clone() for slow in network.targets]
    with torch.no_grad():
        for parameter in network.learnt_by_critics:
            parameter.add_(1)
    network.follow(0.25)
    for slow, old in zip(network.targets, before, strict=True):
        torch.testing.assert_close(slow, old + 0.25)
