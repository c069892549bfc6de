"""GAE against closed forms and against a slow double loop over episodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from agents.experience.returns import (
    explained_variance,
    explained_variance_of_tensors,
    gae,
    gae_by_doubling,
)

REWARDS = np.ones((4, 1))
VALUES = np.array([[2.0], [3], [4], [5]])
NEXT_VALUES = np.array([[3.0], [4], [5], [6]])
NEVER = np.zeros((4, 1), np.bool_)
AT_1 = np.array([[False], [True], [False], [False]])


def closed_form(
    terminated: np.ndarray,
    truncated: np.ndarray,
    next_values: np.ndarray = NEXT_VALUES,
    **options: float,
) -> np.ndarray:
    chosen = {"discount": 0.9, "gae_lambda": 0.8} | options
    return gae(REWARDS, VALUES, next_values, terminated, truncated, **chosen)[:, 0]


def test_no_end() -> None:
    assert closed_form(NEVER, NEVER) == pytest.approx([4.1521472, 3.40576, 2.508, 1.4], abs=1e-12)


def test_termination_neither_bootstraps_nor_carries() -> None:
    assert closed_form(AT_1, NEVER) == pytest.approx([0.26, -2, 2.508, 1.4], abs=1e-12)


def test_truncation_bootstraps_from_the_final_observation_and_cuts_the_trace() -> None:
    final = NEXT_VALUES.copy()
    final[1] = 7  # V(final), which is no row's: the next one, worth 4, starts another episode
    assert closed_form(NEVER, AT_1, final) == pytest.approx([4.796, 4.3, 2.508, 1.4], abs=1e-12)


def test_merging_truncation_with_termination_is_seen() -> None:
    assert closed_form(AT_1, NEVER)[0] < closed_form(NEVER, AT_1)[0] - 1


def test_lambda_1_is_the_discounted_return_minus_the_value() -> None:
    returns = [sum(0.9**k for k in range(4 - t)) + 0.9 ** (4 - t) * 6 for t in range(4)]
    assert closed_form(NEVER, NEVER, gae_lambda=1) == pytest.approx(
        np.array(returns) - VALUES[:, 0], abs=1e-12
    )


def test_lambda_0_is_the_temporal_difference() -> None:
    assert closed_form(NEVER, NEVER, gae_lambda=0) == pytest.approx(
        1 + 0.9 * NEXT_VALUES[:, 0] - VALUES[:, 0], abs=1e-12
    )


def test_a_rollout_may_be_one_row() -> None:
    row = np.array([[1.0, 2.0]]), np.array([[0.5, 1.0]]), np.array([[4.0, 8.0]])
    never, second = np.zeros((1, 2), np.bool_), np.array([[False, True]])
    found = gae(*row, second, never, discount=0.5, gae_lambda=0.9)
    assert found.tolist() == [[1 + 2 - 0.5, 2 - 1]]


def slow_gae(rewards, values, next_values, terminated, truncated, discount, gae_lambda):  # type: ignore[no-untyped-def]
    """Eq. 16 as a sum, from every row to the end of its episode."""
    length, count = rewards.shape
    advantages = np.zeros((length, count))
    for n in range(count):
        for t in range(length):
            weight = 1.0
            for k in range(t, length):
                bootstrap = 0.0 if terminated[k, n] else next_values[k, n]
                advantages[t, n] += weight * (rewards[k, n] + discount * bootstrap - values[k, n])
                if terminated[k, n] or truncated[k, n]:
                    break
                weight *= discount * gae_lambda
    return advantages


@pytest.mark.parametrize("seed", range(5))
def test_many_ends_against_a_double_loop(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rewards, values, next_values = generator.normal(size=(3, 60, 5))
    terminated, truncated = generator.random((2, 60, 5)) < 0.1
    next_values[:-1] = np.where(truncated[:-1], next_values[:-1], values[1:])
    found = gae(rewards, values, next_values, terminated, truncated, discount=0.97, gae_lambda=0.9)
    expected = slow_gae(rewards, values, next_values, terminated, truncated, 0.97, 0.9)
    assert (terminated & truncated).any()
    assert np.abs(found - expected).max() < 1e-14
    there = map(torch.from_numpy, (rewards, values, next_values, terminated, truncated))
    doubled = gae_by_doubling(*there, discount=0.97, gae_lambda=0.9)
    assert np.abs(doubled.numpy() - expected).max() < 1e-14


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9])
def test_rollouts_of_any_length_are_doubled(length: int) -> None:
    """Nothing ends, so that every row is a sum over all that follow."""
    ones, never = torch.ones(length, 1), torch.zeros(length, 1, dtype=torch.bool)
    found = gae_by_doubling(ones, 0 * ones, 0 * ones, never, never, discount=0.5, gae_lambda=1.0)
    expected = [2 - 0.5 ** (length - 1 - t) for t in range(length)]
    assert found[:, 0].tolist() == pytest.approx(expected)


def by_tensors(values: np.ndarray, returns: np.ndarray) -> float:
    return float(explained_variance_of_tensors(torch.from_numpy(values), torch.from_numpy(returns)))


@pytest.mark.parametrize("explained_variance", [explained_variance, by_tensors])
def test_explained_variance(explained_variance: Callable[..., float]) -> None:
    returns = np.array([1.0, 2, 3, 4])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.full(4, 9.0), returns) == pytest.approx(0)
    assert explained_variance(returns, np.ones(4)) == 0
    assert explained_variance(np.array([0.1, 0.1]), np.array([0.1, 0.5])) == pytest.approx(0)
    assert explained_variance(np.array([0.2, 0.4]), np.array([0.1, 0.5])) == pytest.approx(0.75)
