"""A game that breaks, for fault 10."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class BreaksAtStep50(gymnasium.Env[np.ndarray, int]):
    """Ends an episode every 20 steps and breaks at its 50th step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 50:
            raise RuntimeError("the game broke")
        return np.zeros(2, np.float32), 1.0, self.steps % 20 == 0, False, {}
