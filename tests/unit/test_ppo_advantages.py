"""GAE against closed forms and against a slow double loop over episodes (reference: algorithms.md, section 2)."""

from __future__ import annotations

import numpy as np
import pytest

from agents.advantages import explained_variance, gae

REWARDS = np.ones((4, 1))
VALUES = np.array([[2.0], [3], [4], [5], [6]])
NEVER = np.zeros((4, 1), np.bool_)
AT_1 = np.array([[False], [True], [False], [False]])


def closed_form(terminated: np.ndarray, truncated: np.ndarray, values: np.ndarray = VALUES, **options: float) -> np.ndarray:
    chosen = {"discount": 0.9, "gae_lambda": 0.8} | options
    return gae(REWARDS, values, terminated, truncated, ~NEVER, **chosen)[:, 0]


def test_no_end() -> None:
    assert closed_form(NEVER, NEVER) == pytest.approx([4.1521472, 3.40576, 2.508, 1.4], abs=1e-12)


def test_termination_neither_bootstraps_nor_carries() -> None:
    assert closed_form(AT_1, NEVER) == pytest.approx([0.26, -2, 2.508, 1.4], abs=1e-12)


def test_truncation_bootstraps_from_the_final_observation_and_cuts_the_trace() -> None:
    final = VALUES.copy()
    final[2] = 7  # NEXT_STEP: the next row holds the final observation
    assert closed_form(NEVER, AT_1, final)[:2] == pytest.approx([4.796, 4.3], abs=1e-12)


def test_merging_truncation_with_termination_is_seen() -> None:
    assert closed_form(AT_1, NEVER)[0] < closed_form(NEVER, AT_1)[0] - 1


def test_lambda_1_is_the_discounted_return_minus_the_value() -> None:
    returns = [sum(0.9**k for k in range(4 - t)) + 0.9 ** (4 - t) * 6 for t in range(4)]
    assert closed_form(NEVER, NEVER, gae_lambda=1) == pytest.approx(np.array(returns) - VALUES[:4, 0], abs=1e-12)


def test_lambda_0_is_the_temporal_difference() -> None:
    assert closed_form(NEVER, NEVER, gae_lambda=0) == pytest.approx(1 + 0.9 * VALUES[1:, 0] - VALUES[:-1, 0], abs=1e-12)


def slow_gae(rewards, values, terminated, truncated, valid, discount, gae_lambda):  # type: ignore[no-untyped-def]
    """Eq. 16 as a sum, from every row to the end of its episode."""
    length, count = rewards.shape
    advantages = np.zeros((length, count))
    for n in range(count):
        for t in range(length):
            if not valid[t, n]:
                continue
            weight = 1.0
            for k in range(t, length):
                bootstrap = 0.0 if terminated[k, n] else values[k + 1, n]
                advantages[t, n] += weight * (rewards[k, n] + discount * bootstrap - values[k, n])
                if terminated[k, n] or truncated[k, n]:
                    break
                weight *= discount * gae_lambda
    return advantages


@pytest.mark.parametrize("seed", range(5))
def test_dummy_rows_against_a_double_loop(seed: int) -> None:
    generator = np.random.default_rng(seed)
    length, count = 60, 5
    values = generator.normal(size=(length + 1, count))
    rewards, terminated, truncated, valid = np.zeros((length, count)), *(np.zeros((length, count), np.bool_) for _ in range(3))
    alive = generator.random(count) < 0.8  # a rollout may begin with a dummy row
    for t in range(length):
        valid[t] = alive
        terminated[t] = alive & (generator.random(count) < 0.1)
        truncated[t] = alive & ~terminated[t] & (generator.random(count) < 0.1)
        rewards[t] = alive * generator.normal(size=count)
        alive = ~(terminated[t] | truncated[t])
    found = gae(rewards, values, terminated, truncated, valid, discount=0.97, gae_lambda=0.9)
    expected = slow_gae(rewards, values, terminated, truncated, valid, 0.97, 0.9)
    assert (~valid).any()
    assert np.abs(found - expected).max() < 1e-14
    assert (found[~valid] == 0).all()


def test_explained_variance() -> None:
    returns = np.array([1.0, 2, 3, 4])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.full(4, 9.0), returns) == pytest.approx(0)
    assert explained_variance(returns, np.ones(4)) == 0
