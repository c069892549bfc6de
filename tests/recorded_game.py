"""An environment that remembers every call: `-p game=tests.recorded_game:Recorded`."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

LIFE = 2.5
"""A reward above it costs a life: as good a rule as any."""


class Row(NamedTuple):
    """One step of one environment; next_observation: what it answered. begins: an episode, or a
    life after a lost one."""

    observation: np.ndarray
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    next_observation: np.ndarray
    begins: bool


class Recorded(gymnasium.Env[np.ndarray, Any]):
    """A random walk whose reward depends on the action, with ends, truncations, and lives that the
    info tells."""

    made: ClassVar[list[Recorded]] = []

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        free = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = free if continuous else spaces.Discrete(3)
        self.rows = list[Row]()
        self.seen, self.begins, self.lives = np.zeros(3, np.float32), True, 1000
        self.made.append(self)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.begins, self.lives = True, 1000
        self.seen = self.np_random.normal(1, 2, 3).astype(np.float32)
        return self.seen, {"lives": self.lives}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(np.sum(action)) + float(self.np_random.normal(0, 2))
        draw = self.np_random.random()
        terminated, truncated = bool(draw < 0.1), bool(0.1 <= draw < 0.2)
        following = (self.seen + self.np_random.normal(0, 1, 3)).astype(np.float32)
        self.rows.append(
            Row(self.seen, copy.copy(action), reward, terminated, truncated, following, self.begins)
        )
        self.seen, self.begins = following, reward > LIFE
        self.lives -= self.begins
        return self.seen, reward, terminated, truncated, {"lives": self.lives}
