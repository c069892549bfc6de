"""The contract tests of a user's own environment."""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

import gymnasium
import numpy as np

from agents.checks.promises import Broken, Check
from agents.environments.game_check import check_game
from agents.environments.games import make_environment
from agents.environments.masks import KEY, allowed_action
from agents.spaces import Interface
from config.resolved import Resolved

LONGEST_EPISODE = 100_000
SPEED_S = 1.0
ENOUGH_STEPS = 1000
MOST_EPISODES = 20
"""Of the episodes that are repeated; two at least, and no further one after `ENOUGH_STEPS`."""

NO_GENERATOR = "Expects the random number generator to have been generated"
"""How gymnasium's checker says that `reset` seeds no `np_random`. MinAtar's games do not; whether their
chance repeats is a check of its own.
"""


class EnvironmentChecks:
    """The contract tests of a user's own environment."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.spaces: Interface | None = None

    def all(self) -> dict[str, Check]:
        """The checks by the rule that each tries."""
        return {
            "its spaces can be learnt on": self.supported,
            "gymnasium's own checker": self.gymnasium_checker,
            "an episode ends": self.ends,
            "the same seed and actions are the same episode": self.repeats,
            "speed": self.speed,
        }

    def supported(self) -> str:
        """The environment passes the check that `prepare` makes."""
        self.spaces = check_game(self.resolved)
        kind = "images" if self.spaces.image else "numbers"
        return f"{kind} {self.spaces.observation_shape}, {self.spaces.actions} actions"

    def gymnasium_checker(self) -> str:
        """`gymnasium.utils.env_checker`: spaces, reset, step, seeds."""
        from gymnasium.utils.env_checker import check_env

        environment = self._made()
        if KEY in environment.reset(seed=0)[1]:
            environment.close()
            return "not asked, for it takes actions that a mask forbids"
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always")
            try:
                check_env(environment.unwrapped, skip_render_check=True)
            except AssertionError as error:
                if NO_GENERATOR not in str(error):
                    raise
                return (
                    "passed up to np_random, which reset(seed=…) does not seed: an environment without chance, or "
                    "with a generator of its own"
                )
            finally:
                environment.close()
        return "; ".join(dict.fromkeys(_plain(str(one.message)) for one in noticed)) or "passed"

    def ends(self) -> str:
        """With random actions; one that never does cannot be evaluated."""
        environment = self._made()
        environment.action_space.seed(0)
        _, info = environment.reset(seed=0)
        for length in range(1, LONGEST_EPISODE + 1):
            action = allowed_action(environment.action_space, info)
            _, _, terminated, truncated, info = environment.step(action)
            if terminated or truncated:
                environment.close()
                return f"a random one after {length:,} steps"
        raise Broken(
            f"{LONGEST_EPISODE:,} random steps and no end: wrap it in gymnasium.wrappers.TimeLimit"
        )

    def repeats(self) -> str:
        """A fresh instance repeats any episode of another one from its seed and actions, which is how
        checkpoints bring back episodes in flight. There is one instance at a time.
        """
        one = self._made()
        episodes = list[list[tuple[Any, ...]]]()
        steps = 0
        while len(episodes) < MOST_EPISODES and (len(episodes) < 2 or steps < ENOUGH_STEPS):
            episodes.append(self._episode(one, len(episodes)))
            steps += len(episodes[-1]) - 1
        one.close()
        for seed, played in enumerate(episodes):
            fresh = self._made()
            difference = _difference(played, self._episode(fresh, seed))
            fresh.close()
            if difference and seed == 0:
                raise Broken(f"{difference}: take randomness from self.np_random, seeded by reset")
            if difference:
                raise Broken(
                    f"{difference} after other episodes: reset must leave nothing of them behind"
                )
        return f"{len(episodes)} episodes of together {steps:,} steps, equal"

    def _made(self) -> gymnasium.Env[Any, Any]:
        return make_environment(self.resolved.game, self.resolved.environment)

    @staticmethod
    def _episode(environment: gymnasium.Env[Any, Any], seed: int) -> list[tuple[Any, ...]]:
        """Rows of observation, reward and end of one episode with random actions, both by the seed."""
        environment.action_space.seed(seed)
        first, info = environment.reset(seed=seed)
        rows: list[tuple[Any, ...]] = [(np.array(first),)]
        ended = False
        while not ended and len(rows) <= LONGEST_EPISODE:
            action = allowed_action(environment.action_space, info)
            observation, reward, terminated, truncated, info = environment.step(action)
            rows.append((np.array(observation), float(reward), terminated, truncated))
            ended = terminated or truncated
        return rows

    def speed(self) -> str:
        """Measure the speed of one environment with random actions."""
        environment = self._made()
        _, info = environment.reset(seed=0)
        started_s = time.perf_counter()
        steps = 0
        while time.perf_counter() - started_s < SPEED_S:
            action = allowed_action(environment.action_space, info)
            _, _, terminated, truncated, info = environment.step(action)
            steps += 1
            if terminated or truncated:
                _, info = environment.reset()
        environment.close()
        return f"{steps / (time.perf_counter() - started_s):,.0f} steps/s of one environment"


def _difference(played: list[tuple[Any, ...]], again: list[tuple[Any, ...]]) -> str:
    """Where an episode that was played again differs; empty if nowhere."""
    # They may differ in length, which is reported below if no step differs before.
    for row, (one, other) in enumerate(zip(played, again, strict=False)):
        if not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
            return f"it differs at step {row}"
    if len(played) != len(again):
        return f"it has {len(played) - 1} and {len(again) - 1} steps"
    return ""


def _plain(text: str) -> str:
    """Gymnasium colours its warnings."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).removeprefix("WARN: ").split())
