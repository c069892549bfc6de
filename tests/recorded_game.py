"""An environment that remembers every call: `-p game=tests.recorded_game:Recorded`."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces


class Row(NamedTuple):
    """One step of one environment; `valid` is False for the call that only reset it."""

    observation: np.ndarray
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    valid: bool


class Recorded(gymnasium.Env[np.ndarray, Any]):
    """A random walk whose reward depends on the action, with ends and truncations. seen: where the next row starts."""

    made: ClassVar[list[Recorded]] = []

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        free = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = free if continuous else spaces.Discrete(3)
        self.rows = list[Row]()
        self.seen, self.ended = np.zeros(3, np.float32), False
        self.made.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if self.ended:
            self.rows.append(Row(self.seen, None, 0.0, False, False, False))
        self.ended = False
        self.seen = self.np_random.normal(1, 2, 3).astype(np.float32)
        return self.seen, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(np.sum(action)) + float(self.np_random.normal(0, 2))
        draw = self.np_random.random()
        terminated, truncated = bool(draw < 0.1), bool(0.1 <= draw < 0.2)
        self.rows.append(Row(self.seen, copy.copy(action), reward, terminated, truncated, True))
        self.seen = (self.seen + self.np_random.normal(0, 1, 3)).astype(np.float32)
        self.ended = terminated or truncated
        return self.seen, reward, terminated, truncated, {}
