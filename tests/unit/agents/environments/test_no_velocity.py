"""CartPole and Pendulum without velocities: the games that they are, seen in part."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from agents.environments.game_check import check_game
from agents.environments.games import make_environment
from agents.evaluation.rendering import draw_once
from config.games import find_game
from config.resolve import resolve

SHOWN = {
    "cartpole": ("CartPole-v1", [0, 2], 500), "pendulum": ("Pendulum-v1", [0, 1], 200),
}  # fmt: skip
GAMES = pytest.mark.parametrize("name", SHOWN)


@GAMES
def test_the_same_episode_is_seen_without_its_velocities(name: str) -> None:
    gymnasium_id, shown, longest = SHOWN[name]
    resolved = resolve("ppo-lstm", {"game": f"{name}-no-velocity"})
    partial = make_environment(resolved.game, resolved.environment)
    whole = gymnasium.make(gymnasium_id)
    assert partial.action_space == whole.action_space
    assert isinstance(partial.observation_space, gymnasium.spaces.Box)
    assert isinstance(whole.observation_space, gymnasium.spaces.Box)
    assert np.array_equal(partial.observation_space.high, whole.observation_space.high[shown])
    assert np.array_equal(partial.observation_space.low, whole.observation_space.low[shown])
    partial.action_space.seed(1)
    seen, expected = partial.reset(seed=7)[0], whole.reset(seed=7)[0]
    for _ in range(longest):
        assert partial.observation_space.contains(seen)
        assert np.array_equal(seen, expected[shown])
        action = partial.action_space.sample()
        (seen, *rest), (expected, *others) = partial.step(action), whole.step(action)
        assert rest == others
        if rest[1] or rest[2]:
            break
    assert rest[1] or rest[2]


@GAMES
def test_it_is_a_game_like_others(name: str) -> None:
    resolved = resolve("ppo", {"game": f"{name}-no-velocity"})
    assert check_game(resolved).observation_shape == (2,)
    draw_once(resolved.game, resolved.environment)
    assert resolved.packages == {}, "it is our own"
    assert find_game(resolved.game.id).name == f"{name}-no-velocity"


def test_the_game_s_own_options_are_taken() -> None:
    moon = resolve("ppo", {"game": "pendulum-no-velocity", "env_options": "g=1.6"})
    environment = make_environment(moon.game, moon.environment)
    assert environment.unwrapped.g == 1.6  # type: ignore[attr-defined]
