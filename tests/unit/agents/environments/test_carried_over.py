"""What an episode shows depends on its seed and its actions, whatever was played before."""

from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium
import numpy as np
import pytest

from agents.checks.environment_checks import EnvironmentChecks
from agents.checks.promises import tried
from agents.environments.games import make_environment
from agents.environments.training import TrainingEnvironments
from config.games import find_game, games_of, own_presets
from config.resolve import resolve
from config.suites import BOX2D_ID, SUITES

HAS_BOX2D = importlib.util.find_spec("Box2D") is not None  # it has no wheel for Python 3.14
NAMES = (
    *own_presets(),
    *(name for suite in SUITES[1:] if not suite.missing() for name in games_of(suite)),
    "BipedalWalkerHardcore-v3",
    *(["minatar.gym:MinAtar/Seaquest-v1"] if importlib.util.find_spec("minatar") else []),
)
"""Some games have presets of their own and belong to a suite."""
GAMES = [
    name
    for name in dict.fromkeys(NAMES)
    if not (find_game(name).is_atari or find_game(name).is_board)
    and (HAS_BOX2D or not BOX2D_ID.fullmatch(find_game(name).id))
]
"""Atari's and the board games are tested on their own: one is not seeded at every end, the others have no
chance.
"""
SLOW = {"carracing": 2}
"""How many environments where it is not 8."""
NEED_MINATAR = pytest.mark.skipif(
    importlib.util.find_spec("minatar") is None, reason="MinAtar is missing"
)


@pytest.mark.parametrize("name", GAMES)
def test_a_checkpoint_brings_back_episodes_after_others(name: str) -> None:
    count = SLOW.get(name, 8)
    resolved = resolve(
        "ppo",
        {
            "game": name, "num_envs": str(count), "vectorisation": "sync",
            "env_options": "max_episode_steps=20",
        },
    )  # fmt: skip
    environments = TrainingEnvironments(resolved, 0)
    generator = np.random.default_rng(0)
    for _ in range(50):
        actions = environments.interface.actions
        if environments.interface.continuous:
            environments.step(generator.normal(size=(count, actions)).astype(np.float32))
        else:
            environments.step(generator.integers(actions, size=count))
    state = environments.state_dict()
    assert (state["seedings"] > 1).all()
    environments.close()
    replayed = TrainingEnvironments(resolved, 0)
    assert not replayed.load_state_dict(state).any()
    replayed.close()


def short(environment: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(environment, 3)


@NEED_MINATAR
def test_what_is_made_anew_is_made_alike_in_the_same_wrappers() -> None:
    resolved = resolve(
        "ppo",
        {
            "game": "minatar-breakout",
            "wrappers": f"{__name__}:short",
            "env_options": "sticky_action_prob=0.5,max_episode_steps=2",
        },
    )
    environment = make_environment(resolved.game, resolved.environment, "rgb_array")
    environment.reset(seed=1)
    first = environment.unwrapped
    actions = environment.action_space
    environment.reset(seed=2)
    second: Any = environment.unwrapped
    assert second is not first and environment.action_space is actions
    assert (second.game.sticky_action_prob, second.render_mode) == (0.5, "rgb_array")
    assert [environment.step(0)[3] for _ in range(3)] == [False, True, True]
    environment.reset()
    assert environment.unwrapped is second, "without a seed its generator goes on"
    environment.close()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "bipedalwalker", marks=pytest.mark.skipif(not HAS_BOX2D, reason="Box2D is missing")
        ),
        pytest.param("minatar-breakout", marks=NEED_MINATAR),
    ],
)
def test_the_checks_of_an_environment_find_nothing(name: str) -> None:
    findings = list(tried(EnvironmentChecks(resolve("ppo", {"game": name})).all()))
    assert [one for one in findings if not one.kept] == []
    assert len(findings) == 5


def own_function() -> gymnasium.Env[Any, Any]:
    environment: Any = gymnasium.make("BipedalWalker-v3")
    environment.unwrapped.mark = 7
    return environment  # type: ignore[no-any-return]


@pytest.mark.skipif(not HAS_BOX2D, reason="Box2D is missing")
def test_a_person_s_own_function_keeps_what_it_has_set() -> None:
    resolved = resolve("ppo", {"game": f"{__name__}:own_function"})
    environment: Any = make_environment(resolved.game, resolved.environment)
    for seed in range(3):
        environment.reset(seed=seed)
    assert environment.unwrapped.mark == 7
    environment.close()
