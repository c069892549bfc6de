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


class Recall(gymnasium.Env[np.ndarray, np.int64]):
    """The first observation shows which of two arms will pay, the last of `steps` pulls it; nothing
    in between says anything."""

    def __init__(self, steps: int = 8) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.steps, self.left, self.paying = steps, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.paying = self.steps, int(self.np_random.integers(2))
        return np.array([2 * self.paying - 1, 0], np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        ended = self.left == 0
        reward = float(ended and int(action) == self.paying)
        return np.array([0, self.left == 1], np.float32), reward, ended, False, {}


class Chain(gymnasium.Env[np.ndarray, np.int64]):
    """Three states, shown one-hot: action 1 goes on, from the last one to the end, which pays 1;
    action 0 goes back and pays 0.02. Cut after 7 steps. masked: action 0 is forbidden in state 1.
    """

    PAYS = ((0.02, 0.0), (0.02, 0.0), (0.02, 1.0))
    LEADS = ((0, 1), (0, 2), (1, 3))

    def __init__(self, masked: bool = False) -> None:
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.masked, self.state, self.steps = masked, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.steps = int(self.np_random.integers(3)), 0
        return self._answer()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert not self.masked or self.state != 1 or action == 1, "forbidden"
        reward, self.state = self.PAYS[self.state][action], self.LEADS[self.state][action]
        self.steps += 1
        ended = self.state == 3
        observation, info = self._answer()
        return observation, reward, ended, self.steps == 7 and not ended, info

    def _answer(self) -> tuple[np.ndarray, dict[str, Any]]:
        observation = np.eye(4, 3, dtype=np.float32)[self.state]
        allowed = np.array([self.state != 1, True], np.int8)
        return observation, {"action_mask": allowed} if self.masked else {}


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


class Wide(Square):
    """Three actions with bounds of their own: the reward is minus the squared distance to BEST, in
    units of the half ranges."""

    LOW, HIGH, BEST = (np.array(row, np.float32) for row in ((-1, 0, 2), (1, 10, 6), (0.3, 8, 5)))

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(self.LOW, self.HIGH)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        distance = (action - self.BEST) / ((self.HIGH - self.LOW) / 2)
        return np.zeros(1, np.float32), -float(distance @ distance), True, False, {}


class HalfBounded(Square):
    """One of its two actions has no largest value."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(
            np.array([0, 0], np.float32), np.array([1, np.inf], np.float32)
        )


class Endless(ConstantReward):
    """A constant reward for a continuous action."""

    def __init__(self, merged: bool = False) -> None:
        super().__init__(merged)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)  # type: ignore[assignment]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return super().step(np.int64(0))


class Unending(gymnasium.Env[np.ndarray, np.int64]):
    """No episode ends, whatever is done."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Table(Unending):
    """The observation is one of very many states."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Discrete(200_000)  # type: ignore[assignment]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.int64(0), {}  # type: ignore[return-value]


class Steering(gymnasium.Env[np.ndarray, np.ndarray]):
    """Images, and a continuous action that pays its own size."""

    def __init__(self, side: int = 40) -> None:
        self.observation_space = spaces.Box(0, 255, (side, side, 3), np.uint8)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        ended = bool(self.np_random.random() < 0.1)
        return self._look(), float(action[0]), ended, False, {}

    def _look(self) -> np.ndarray:
        shape = self.observation_space.shape
        return self.np_random.integers(0, 256, shape, np.uint8)


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


class Catch(gymnasium.Env[np.ndarray, np.int64]):
    """bsuite's (Osband et al. 2020): a ball falls through 10 rows of 5 cells; a paddle in the last
    row goes left, stays, or goes right; 1 if it is below the ball in the end, else -1."""

    ROWS, COLUMNS = 10, 5

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (self.ROWS * self.COLUMNS,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.row = self.column = self.paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.paddle = 0, self.COLUMNS // 2
        self.column = int(self.np_random.integers(self.COLUMNS))
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), self.COLUMNS - 1)
        self.row += 1
        ended = self.row == self.ROWS - 1
        reward = (1.0 if self.paddle == self.column else -1.0) if ended else 0.0
        return self._seen(), reward, ended, False, {}

    def _seen(self) -> np.ndarray:
        board = np.zeros((self.ROWS, self.COLUMNS), np.float32)
        board[self.row, self.column] = board[-1, self.paddle] = 1
        return board.ravel()
