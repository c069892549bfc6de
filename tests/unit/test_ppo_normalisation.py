"""Running statistics against numpy over everything at once; frozen unless told to learn."""

from __future__ import annotations

import numpy as np
import pytest

from agents.normalisation import CLIP, ObservationNormaliser, RewardNormaliser, RunningStatistics


def test_blocks_give_the_statistics_of_the_whole() -> None:
    rows = np.random.default_rng(0).normal(5, 3, (1000, 4))
    statistics = RunningStatistics((4,))
    for block in np.split(rows, [1, 10, 10, 400]):
        statistics.update(block)
    assert statistics.mean == pytest.approx(rows.mean(0), abs=1e-12)
    assert statistics.variance == pytest.approx(rows.var(0), abs=1e-12)
    assert statistics.count == 1000


def test_observations_are_centred_scaled_and_cut() -> None:
    normaliser = ObservationNormaliser((2,))
    rows = np.random.default_rng(0).normal([100, -3], [10, 0.1], (5000, 2)).astype(np.float32)
    before = normaliser(rows[:1])
    assert np.array_equal(before, np.clip(rows[:1], -CLIP, CLIP))
    normaliser.update(rows)
    normalised = normaliser(rows)
    assert normalised.dtype == np.float32
    assert normalised.mean(0) == pytest.approx([0, 0], abs=1e-3) and normalised.std(
        0
    ) == pytest.approx([1, 1], abs=1e-3)
    assert normaliser(np.array([[1e9, -1e9]], np.float32)).tolist() == [[CLIP, -CLIP]]


def test_normalising_never_learns() -> None:
    normaliser = ObservationNormaliser((2,))
    normaliser.update(np.random.default_rng(0).normal(size=(10, 2)))
    before = {name: np.copy(value) for name, value in normaliser.state_dict().items()}
    normaliser(np.full((100, 2), 50.0, np.float32))
    assert all(
        np.array_equal(before[name], value) for name, value in normaliser.state_dict().items()
    )
    other = ObservationNormaliser((2,))
    other.load_state_dict(normaliser.state_dict())
    assert np.array_equal(
        other(np.ones((1, 2), np.float32)), normaliser(np.ones((1, 2), np.float32))
    )


def test_rewards_are_scaled_by_the_deviation_of_the_discounted_return() -> None:
    generator = np.random.default_rng(0)
    rewards, ended = (
        generator.normal(3, 1, (50, 2)).astype(np.float32),
        generator.random((50, 2)) < 0.1,
    )
    valid = np.vstack((np.ones((1, 2), np.bool_), ~ended[:-1]))
    rewards *= valid
    returns, current = [], np.zeros(2)
    for t in range(50):
        current = 0.9 * current + rewards[t]
        returns += [current[n] for n in range(2) if valid[t, n]]
        current = np.where(ended[t], 0, current)
    expected = rewards / np.std(returns)
    normaliser = RewardNormaliser(2, 0.9)
    assert normaliser(rewards, ended, valid) == pytest.approx(expected, rel=1e-5)
    assert normaliser.state_dict()["discounted_return"] == pytest.approx(current)
