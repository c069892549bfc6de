"""A game that is another one where the variable ODD of its process says so: what one of several actors
does that are told the same."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium import spaces

from tests.own_games import ConstantReward


class Odd(ConstantReward):
    """ODD: `nan`, a reward at step 7; `shape`, one more number is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = os.environ.get("ODD", "")
        if self.odd == "shape":
            self.observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        _, info = super().reset(seed=seed)
        return self._seen(), info

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = super().step(action)
        if self.odd == "nan" and self.steps == 7:
            reward = float("nan")
        return self._seen(), reward, terminated, truncated, info

    def _seen(self) -> np.ndarray:
        return np.zeros(self.observation_space.shape or (), np.float32)
