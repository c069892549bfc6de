"""How many of an episode's steps a film shows."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from agents.evaluation import rendering
from agents.evaluation.rendering import Rate, Replay, film_rate
from config.resolve import resolve
from tests.own_games import ConstantReward

ACTIONS = np.array([0, 1] * 10)
"""CartPole stands for these twenty steps from every start."""


@pytest.mark.parametrize(
    ("game", "rate"),
    [
        ("cartpole", Rate(50)),
        ("halfcheetah", Rate(20)),
        ("hopper", Rate(125 / 3, 3)),
        ("envpool:Hopper-v5", Rate(125 / 3, 3)),
        ("envpool:Pong-v5", Rate(15)),
        ("envpool:MetaWorld/DoorOpen-v3", Rate(30)),
    ],
)
def test_a_film_has_at_most_60_frames_a_second(game: str, rate: Rate) -> None:
    resolved = resolve("ppo", {"game": game})
    assert film_rate(resolved.game, resolved.environment) == rate


class OfShimmy(ConstantReward):
    """As shimmy makes cheetah-run, whose control timestep is 10 ms, and walker-walk (25 ms)."""

    def __init__(self, timestep_s: float) -> None:
        super().__init__()
        self.dt = timestep_s
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 1000 * timestep_s}


@pytest.mark.parametrize(("timestep_s", "rate"), [(0.01, Rate(50, 2)), (0.025, Rate(40))])
def test_a_film_of_dm_control_plays_at_its_own_speed(
    timestep_s: float, rate: Rate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        rendering, "make_environment", lambda *_: TimeLimit(OfShimmy(timestep_s), 1000)
    )
    resolved = resolve("ppo", {"game": "cheetah-run"})
    found = film_rate(resolved.game, resolved.environment)
    assert found.steps == rate.steps
    assert found.frames_per_second == pytest.approx(rate.frames_per_second)


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
