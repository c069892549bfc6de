"""Squashed actions: the density of tanh(u) against closed forms, torch's distributions, an integral."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from agents.networks.action_distributions import LARGEST_LOG_STD, LEAST_LOG_STD, SquashedActions


def sampled(mean: float, log_std: float, noise: float) -> tuple[Tensor, Tensor]:
    """In double precision, of one component."""
    policy = torch.tensor([[mean, log_std]], dtype=torch.float64)
    return SquashedActions(1).sample(policy, torch.tensor([[noise]], dtype=torch.float64))


def test_the_published_value() -> None:
    action, log_probability = sampled(0.0, 0.0, 0.5)
    assert float(action) == pytest.approx(math.tanh(0.5))
    assert float(log_probability) == pytest.approx(-0.8037095193, abs=1e-9)


@pytest.mark.parametrize("unsquashed", [-3.0, -0.5, 0.0, 0.1, 2.0])
def test_it_is_the_form_with_the_square(unsquashed: float) -> None:
    normal = -0.5 * unsquashed**2 - 0.5 * math.log(2 * math.pi)
    expected = normal - math.log(1 - math.tanh(unsquashed) ** 2)
    assert float(sampled(0.0, 0.0, unsquashed)[1]) == pytest.approx(expected, abs=1e-12)


def test_it_is_torch_s_density_of_the_same_actions() -> None:
    generator = torch.Generator().manual_seed(0)
    policy, noise = (
        torch.empty(50, size, dtype=torch.float64).uniform_(-1, 1, generator=generator)
        for size in (6, 3)
    )
    actions, log_probabilities = SquashedActions(3).sample(policy, noise)
    mean, log_std = policy.chunk(2, dim=1)
    squashed = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform())
    expected = Independent(squashed, 1).log_prob(actions)
    torch.testing.assert_close(log_probabilities, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.2, -1.0), (-0.4, 0.7)])
def test_it_integrates_to_one(mean: float, log_std: float) -> None:
    edges = np.tanh(np.linspace(-12, 12, 200_001))
    middles = np.arctanh((edges[1:] + edges[:-1]) / 2)
    noise = torch.from_numpy((middles - mean) / math.exp(log_std))[:, None]
    policy = torch.tensor([[mean, log_std]], dtype=torch.float64).expand(len(noise), 2)
    density = SquashedActions(1).sample(policy, noise)[1].exp().numpy()
    assert float((density * np.diff(edges)).sum()) == pytest.approx(1, abs=1e-6)


def test_far_out_it_does_not_saturate() -> None:
    """log(1 − tanh² + ε) would stand still from u = 9 on, and end the gradient."""
    policy = torch.tensor([[0.0, 0.0]], requires_grad=True)
    action, log_probability = SquashedActions(1).sample(policy, torch.tensor([[30.0]]))
    log_probability.sum().backward()
    assert action.item() == 1
    assert log_probability.item() == pytest.approx(-450 - 0.9189385 + 60 - math.log(4), rel=1e-6)
    assert policy.grad is not None
    assert policy.grad[0, 0].item() == pytest.approx(2)


def test_log_std_is_bounded_and_gets_no_gradient_beyond() -> None:
    policy = torch.tensor([[0.0, 5.0], [0.0, -30.0]], requires_grad=True)
    actions, log_probabilities = SquashedActions(1).sample(policy, torch.full((2, 1), 0.1))
    widths = [math.exp(LARGEST_LOG_STD), math.exp(LEAST_LOG_STD)]
    assert actions[:, 0].tolist() == pytest.approx([math.tanh(0.1 * width) for width in widths])
    log_probabilities.sum().backward()
    assert policy.grad is not None and policy.grad[:, 1].tolist() == [0, 0]


def test_the_mode_is_the_tanh_of_the_mean_and_noise_is_the_row_s_own() -> None:
    actions, policy = SquashedActions(2), torch.tensor([[0.3, -2.0, 0.5, 0.5]])
    assert actions.mode(policy)[0].tolist() == pytest.approx([math.tanh(0.3), math.tanh(-2)])
    noise = actions.noise((1,), torch.Generator().manual_seed(3))
    chosen = actions.choose(policy, noise)
    assert torch.equal(chosen, actions.sample(policy, noise)[0])
    assert torch.equal(noise, actions.noise((1,), torch.Generator().manual_seed(3)))
    assert not torch.equal(chosen, actions.mode(policy))
