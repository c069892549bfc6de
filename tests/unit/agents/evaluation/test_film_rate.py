"""How many of an episode's steps a film shows."""

from __future__ import annotations

import numpy as np
import pytest

from agents.evaluation.rendering import Rate, Replay, film_rate
from config.resolve import resolve

ACTIONS = np.array([0, 1] * 10)
"""CartPole stands for these twenty steps from every start."""


@pytest.mark.parametrize(
    ("game", "rate"),
    [("cartpole", Rate(50)), ("halfcheetah", Rate(20)), ("hopper", Rate(125 / 3, 3))],
)
def test_a_film_has_at_most_60_frames_a_second(game: str, rate: Rate) -> None:
    resolved = resolve("ppo", {"game": game})
    assert film_rate(resolved.game, resolved.environment) == rate


@pytest.mark.parametrize(("steps", "shown"), [(1, range(21)), (3, [0, 3, 6, 9, 12, 15, 18, 20])])
def test_a_film_shows_the_first_and_the_last_state(steps: int, shown: range | list[int]) -> None:
    every, some = (replay(one) for one in (1, steps))
    expected = [frame for number, frame in enumerate(every.frames()) if number in shown]
    found = list(some.frames())
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)
    assert (some.length, some.return_) == (20, 20.0), "every step is made, shown or not"


def replay(steps: int) -> Replay:
    return Replay(resolve("ppo", {}), 7, ACTIONS, steps)
