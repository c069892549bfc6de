"""Running statistics against numpy over everything at once; frozen unless told to learn."""

from __future__ import annotations

import numpy as np
import pytest

from agents.environments.normalisation import (
    CLIP,
    ObservationNormaliser,
    RewardNormaliser,
    RunningStatistics,
    make_observation_normaliser,
)
from agents.spaces import Interface
from config.resolve import resolve


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


def test_numbers_beyond_ten_deviations_are_cut() -> None:
    """10 and 1e-8 are openai/baselines': a constant observation of deviation 0 has scale 1e4."""
    normaliser = ObservationNormaliser((1,))
    normaliser.update(np.full((5, 1), 3.0))
    moved = np.array([[3.0], [3 + 2**-13], [4.0], [2.0]], np.float32)
    assert normaliser(moved)[:, 0] == pytest.approx([0, 2**-13 * 1e4, 10, -10], rel=1e-4)
    rewards, never = np.array([[2e-4], [1.0], [-1.0]]), np.zeros((3, 1), np.bool_)
    scaled = RewardNormaliser(1, 0.0)(rewards, never, np.array([[True], [False], [False]]))
    assert scaled[:, 0] == pytest.approx([2, 10, -10], rel=1e-6)


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


def test_a_reward_normaliser_goes_on_where_its_state_was_taken() -> None:
    rewards = np.random.default_rng(0).normal(size=(6, 3))
    never, valid = np.zeros((6, 3), np.bool_), np.ones((6, 3), np.bool_)
    first, second = RewardNormaliser(3, 0.9), RewardNormaliser(3, 0.9)
    first(rewards, never, valid)
    state = first.state_dict()
    copies = {name: np.copy(value) for name, value in state.items()}
    second.load_state_dict(state)
    assert np.array_equal(second(rewards, never, valid), first(rewards, never, valid))
    assert all(np.array_equal(state[name], value) for name, value in copies.items())


def test_what_was_in_flight_in_a_lost_environment_is_forgotten() -> None:
    normaliser = RewardNormaliser(3, 0.5)
    normaliser(np.array([[1.0, 2.0, 4.0]]), np.zeros((1, 3), np.bool_), np.ones((1, 3), np.bool_))
    normaliser.forget(np.array([False, True, False]))
    assert normaliser.state_dict()["discounted_return"].tolist() == [1, 0, 4]


@pytest.mark.parametrize(
    ("image", "asked", "normalised"),
    [(False, "true", True), (False, "false", False), (True, "true", False)],
)
def test_what_is_asked_for_is_normalised_but_no_images(
    image: bool, asked: str, normalised: bool
) -> None:
    spaces = Interface(
        observation_shape=(3,), image=image, channels_last=False, actions=2, discrete=True
    )
    resolved = resolve("ppo", {"game": "cartpole", "normalise_observations": asked})
    assert (make_observation_normaliser(resolved, spaces) is not None) == normalised
