"""Small environments with known answers: what a user's own game looks like, `-p
game=tests.own_games:ConstantReward`."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces


class Bandit(gymnasium.Env[np.ndarray, np.int64]):
    """Two arms, one step an episode: arm 1 pays 1, arm 0 nothing."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), float(action), True, False, {}


class ConstantReward(Bandit):
    """Reward 1 for ever, cut by a time limit of 10: V is 1 / (1 - discount) if truncation
    bootstraps. `merged` calls it an end."""

    def __init__(self, merged: bool = False) -> None:
        super().__init__()
        self.merged, self.steps = merged, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ended = self.steps == 10
        return np.zeros(1, np.float32), 1.0, ended and self.merged, ended and not self.merged, {}


class Broken(ConstantReward):
    """Gives a NaN at step 7, in `field`; `sum`: rewards that are finite one by one."""

    def __init__(self, field: str = "reward") -> None:
        super().__init__()
        self.field = field

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.field == "sum":
            reward = 1e308
        elif self.steps == 7 and self.field == "reward":
            reward = float("nan")
        elif self.steps == 7:
            observation = np.full(1, np.nan, np.float32)
        return observation, reward, terminated, truncated, info


class Forgetful(ConstantReward):
    """No function of its seed and actions: its observations count the resets of the whole
    process."""

    resets = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        type(self).resets += 1
        super().reset(seed=seed)
        return np.full(1, np.tanh(self.resets / 100), np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        _, *rest = super().step(action)
        return np.full(1, np.tanh(self.resets / 100), np.float32), *rest


class Square(gymnasium.Env[np.ndarray, np.ndarray]):
    """One step an episode, a continuous action in [2, 6]: the reward is -(a - 5)²."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Box(2, 6, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), -float((action[0] - 5) ** 2), True, False, {}


class Picture(gymnasium.Env[np.ndarray, np.int64]):
    """Images as a user may give them, [height, width, channels], which no 4 divides."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 255, (50, 41, 3), np.uint8)
        self.action_space = spaces.Discrete(3, start=1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self.render(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert action in (1, 2, 3)
        return self.render(), float(action == 2), bool(self.np_random.random() < 0.1), False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        return self.np_random.integers(0, 256, (50, 41, 3), np.uint8)


class Global(Picture):
    """Draws from the process's own generators, when it is made and in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = random.random() + np.random.random() + float(torch.rand(()))

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        drawn = random.random() + np.random.random() + float(torch.rand(()))
        return observation, reward + drawn + self.offset, *rest


class Text(Bandit):
    """Actions that no policy here can choose."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))


gymnasium.register("Registered-v0", entry_point=ConstantReward)
