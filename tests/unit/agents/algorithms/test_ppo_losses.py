"""Losses against the paper's numbers; distributions against torch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.algorithms.ppo import clipped_objective, squared_value_error
from agents.experience.returns import approximate_divergence
from agents.networks.action_distributions import (
    NOISE_ROWS,
    Actions,
    ContinuousActions,
    DiscreteActions,
    MultiDiscreteActions,
    NoiseRows,
)


@pytest.mark.parametrize(
    ("advantage", "ratio", "expected"),
    [(1, 0.8, 0.8), (1, 1.3, 1.2), (-1, 0.8, -0.8), (-1, 1.3, -1.3)],
)
def test_clip(advantage: float, ratio: float, expected: float) -> None:
    objective = clipped_objective(
        torch.tensor([math.log(ratio)]), torch.tensor([float(advantage)]), 0.2
    )
    assert float(objective) == pytest.approx(expected, abs=1e-6)


def numbers(*shape: int, seed: int = 0, scale: float = 1) -> Tensor:
    return scale * torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def test_a_row_has_a_gradient_unless_its_clipped_term_is_the_smaller_one() -> None:
    """Within the clip both terms are equal, and the gradient is whole: ρA / B, not half of it."""
    log_ratio, advantages = numbers(500, scale=0.3).requires_grad_(), numbers(500, seed=1)
    clipped_objective(log_ratio, advantages, 0.2).backward()
    ratio = log_ratio.detach().exp()
    constant = ((ratio > 1.2) & (advantages > 0)) | ((ratio < 0.8) & (advantages < 0))
    expected = torch.where(constant, 0.0, ratio * advantages / 500)
    assert constant.any() and not constant.all()
    assert log_ratio.grad is not None and torch.allclose(log_ratio.grad, expected, atol=1e-15)


def test_a_ratio_beyond_all_numbers_has_no_gradient_where_it_is_clipped() -> None:
    log_ratio = torch.tensor([100.0, 0.1]).requires_grad_()
    objective = clipped_objective(log_ratio, torch.ones(2), torch.tensor(0.2))
    objective.backward()
    assert float(objective.detach()) == pytest.approx((1.2 + math.exp(0.1)) / 2)
    assert log_ratio.grad is not None
    assert log_ratio.grad.tolist() == [0, pytest.approx(math.exp(0.1) / 2)]


def test_rounding_takes_no_row_its_value_gradient() -> None:
    """Seen in a training: moved by less than the clip, and old + (value − old) is not quite
    value."""
    values, old, returns = (
        torch.tensor([one])
        for one in (0.04848610609769821, -0.07753428816795349, -0.06480690836906433)
    )
    assert (old + (values - old) - returns).square() > (values - returns).square()
    values.requires_grad_()
    squared_value_error(values, returns, old, 0.2).backward()
    assert values.grad is not None
    assert float(values.grad) == pytest.approx(2 * float((values - returns).detach()))


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_gradient(clip: float | None) -> None:
    """2 (V − R) / B, and none where the value clipped to its old one has the larger error."""
    old, returns = numbers(500), numbers(500, seed=1)
    values = (old + numbers(500, seed=2, scale=0.3)).requires_grad_()
    squared_value_error(values, returns, old, clip).backward()
    errors, near = (values - returns).detach(), old + (values - old).detach().clamp(-0.2, 0.2)
    constant = (near - returns).square() > errors.square() + 1e-12
    expected = 2 * errors / 500
    if clip is not None:
        expected[constant] = 0
        assert constant.any() and not constant.all()
    assert values.grad is not None and torch.allclose(values.grad, expected, atol=1e-15)


def test_value_clipping_takes_the_larger_error() -> None:
    values, returns, old = torch.tensor([1.0]), torch.tensor([1.0]), torch.tensor([0.0])
    assert float(squared_value_error(values, returns, old, None)) == 0
    assert float(squared_value_error(values, returns, old, 0.2)) == pytest.approx(0.8**2)


def discrete() -> tuple[Actions, Tensor, Tensor]:
    return DiscreteActions(5), numbers(64, 5), torch.arange(64) % 5


def continuous() -> tuple[Actions, Tensor, Tensor]:
    return (
        ContinuousActions(3),
        torch.cat((numbers(64, 3), numbers(64, 3, seed=1, scale=0.5)), dim=1),
        numbers(64, 3, seed=2),
    )


def test_distributions_agree_with_torch_s() -> None:
    actions, policy, taken = discrete()
    reference = torch.distributions.Categorical(logits=policy)
    assert torch.allclose(actions.log_probability(policy, taken), reference.log_prob(taken))
    assert torch.allclose(actions.entropy(policy), reference.entropy())
    actions, policy, taken = continuous()
    normal = torch.distributions.Normal(policy[:, :3], policy[:, 3:].exp())
    expected = normal.log_prob(taken).sum(1)
    assert torch.allclose(actions.log_probability(policy, taken), expected)
    assert torch.allclose(actions.entropy(policy), normal.entropy().sum(1))


@pytest.mark.parametrize(
    "actions", [DiscreteActions(4), MultiDiscreteActions((2, 3)), ContinuousActions(2)]
)
def test_what_is_drawn_is_what_is_chosen_and_as_probable(actions: Actions) -> None:
    policy = numbers(64, actions.parameters)
    noise = actions.noise((64,), torch.Generator().manual_seed(5))
    chosen = actions.choose(policy, noise)
    drawn = actions.drawn(policy.numpy(), noise.numpy())
    assert drawn.actions.dtype == chosen.numpy().dtype
    assert drawn.actions.tolist() == chosen.tolist()
    expected = actions.log_probability(policy, chosen).numpy()
    np.testing.assert_allclose(drawn.log_probability, expected, rtol=1e-14)


@pytest.mark.parametrize("parts", [[1] * 3000, [700, 700, 1600], [3000]])
def test_noise_that_is_drawn_for_many_steps_at_once_is_the_same_in_any_parts(
    parts: list[int],
) -> None:
    actions = DiscreteActions(3)
    noise = NoiseRows(actions, torch.Generator().manual_seed(2))
    rows = np.concatenate([noise.take(count) for count in parts])
    generator = torch.Generator().manual_seed(2)
    expected = torch.cat([actions.noise((NOISE_ROWS,), generator) for _ in range(3)])
    assert np.array_equal(rows, expected.numpy()[:3000])


def test_sampled_actions_have_the_policy_s_frequencies() -> None:
    count, generator = 100_000, torch.Generator().manual_seed(0)
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    actions = DiscreteActions(4)
    chosen = actions.choose(
        probabilities.log().expand(count, 4), actions.noise((count,), generator)
    )
    frequencies = torch.bincount(chosen, minlength=4) / count
    assert torch.allclose(frequencies, probabilities, atol=4 * math.sqrt(0.25 / count))
    normal = ContinuousActions(1)
    policy = torch.tensor([[2.0, math.log(0.5)]]).expand(count, 2)
    drawn = normal.choose(policy, normal.noise((count,), generator))
    assert float(drawn.mean()) == pytest.approx(2, abs=0.01) and float(
        drawn.std()
    ) == pytest.approx(0.5, abs=0.01)
    assert torch.equal(normal.mode(policy)[0], torch.tensor([2.0]))


@pytest.mark.parametrize("kind", [discrete, continuous])
def test_leading_dimensions_are_rows(kind) -> None:  # type: ignore[no-untyped-def]
    """[T, N, P] gives what [T · N, P] gives; 4 rows of 16, neither the number of components."""
    actions, policy, taken = kind()
    stacked, folded = policy.unflatten(0, (4, 16)), taken.unflatten(0, (4, 16))
    expected = actions.log_probability(policy, taken)
    assert torch.allclose(actions.log_probability(stacked, folded).flatten(), expected)
    assert torch.allclose(actions.entropy(stacked).flatten(), actions.entropy(policy))
    noise = actions.noise((64,), torch.Generator().manual_seed(0)).double()
    for whole, parts in (
        (actions.mode(policy), actions.mode(stacked)),
        (actions.choose(policy, noise), actions.choose(stacked, noise.unflatten(0, (4, 16)))),
    ):
        assert torch.allclose(whole.double(), parts.flatten(0, 1).double())


@pytest.mark.parametrize("kind", [discrete, continuous])
def test_noise_comes_from_the_given_generator_alone(kind) -> None:  # type: ignore[no-untyped-def]
    actions = kind()[0]
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(drawn))
        drawn.append(actions.noise((2, 3), torch.Generator().manual_seed(seed)))
    assert drawn[0].shape[:2] == (2, 3)
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_divergence_estimate() -> None:
    ratio = torch.tensor([1.1, 0.9, 1.05], dtype=torch.float64)
    assert approximate_divergence(ratio.log()) == pytest.approx(0.00375339, abs=1e-8)
    assert approximate_divergence(torch.zeros(3)) == 0
