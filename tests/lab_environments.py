"""What a stranger's laboratory brings: environments with options of their own, and wrappers."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

Answer = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """A walk along `length` cells, right or left; each step costs `cost`, the last cell ends it.

    slippery: one step in five goes nowhere; rests: cells where a step costs nothing. What the
    options were is seen: in the observation, the return, and the picture.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        length: int = 4,
        cost: float = 1.0,
        slippery: bool = False,
        colour: str = "red",
        rests: list[int] | None = None,
        render_mode: str | None = None,
    ) -> None:
        assert rests is None or (type(rests) is list and {type(cell) for cell in rests} <= {int})
        self.rests = rests or []
        assert type(length) is int and type(cost) is float and type(slippery) is bool
        self.length, self.cost, self.slippery, self.colour = length, cost, slippery, colour
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)
        self.place = self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self._seen(), {}

    def step(self, action: np.int64) -> Answer:
        self.steps += 1
        slips = bool(self.np_random.random() < 0.2) and self.slippery
        if not slips:
            self.place = max(0, self.place + (1 if action == 1 else -1))
        ended = self.place >= self.length
        cost = 0.0 if self.place in self.rests else self.cost
        return self._seen(), -cost, ended, self.steps >= 50 and not ended, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        picture = np.zeros((8, 8 * (self.length + 1), 3), np.uint8)
        picture[:, 8 * self.place : 8 * self.place + 8, 2 * int(self.colour == "blue")] = 255
        return picture

    def _seen(self) -> np.ndarray:
        return np.array([min(1.0, self.place / self.length), self.cost / 10], np.float32)


class Copy(gymnasium.Env[Any, Any]):
    """One step an episode: two hidden numbers, of 3 and of 2, are shown, and the reward is the share
    of them that the action repeats; of five bits for multi-binary actions.

    seen, acts: the kinds of both spaces.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}
    SEEN: ClassVar[dict[str, spaces.Space[Any]]] = {
        "dict": spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (3,), np.float32)}),
        "tuple": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Discrete(2))),
        "multi-discrete": spaces.MultiDiscrete([3, 2]),
        "multi-binary": spaces.MultiBinary(5),
        "bool": spaces.Box(0, 1, (5,), np.bool_),
        "grid": spaces.Box(0, 255, (7, 7, 3), np.uint8),
        "planes": spaces.Box(0, 1, (10, 10, 12), np.bool_),
        "picture": spaces.Box(0, 1, (7, 7, 3), np.float32),
    }
    ACTS: ClassVar[dict[str, spaces.Space[Any]]] = {
        "discrete": spaces.Discrete(6),
        "multi-discrete": spaces.MultiDiscrete([3, 2], start=[1, 0]),
        "multi-binary": spaces.MultiBinary(5),
    }

    def __init__(
        self, seen: str = "dict", acts: str = "discrete", render_mode: str | None = None
    ) -> None:
        self.seen, self.acts, self.render_mode = seen, acts, render_mode
        self.observation_space, self.action_space = self.SEEN[seen], self.ACTS[acts]
        self.hidden = np.zeros(2, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.hidden = self.np_random.integers((3, 2))
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        if self.acts == "multi-binary":
            reward = float((action == self._bits()).mean())
        else:
            done = action - [1, 0] if self.acts == "multi-discrete" else np.array(divmod(action, 2))
            reward = float((done == self.hidden).mean())
        return self._shown(), reward, True, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        return np.full((8, 8, 3), self.hidden[0], np.uint8)

    def _bits(self) -> np.ndarray:
        return np.concatenate([np.eye(3)[self.hidden[0]], np.eye(2)[self.hidden[1]]])

    def _shown(self) -> Any:
        a, b = self.hidden.tolist()
        space: Any = self.observation_space
        if self.seen == "dict":
            return {"a": np.eye(3, dtype=np.float32)[a], "b": b}
        if self.seen == "tuple":
            return a + 1, b
        if self.seen == "multi-discrete":
            return self.hidden
        if self.seen in ("multi-binary", "bool"):
            return self._bits().astype(space.dtype)
        picture = np.zeros(space.shape, space.dtype)
        picture[2 * a, 3, b] = 1
        return picture


class Locks(gymnasium.Env[Any, Any]):
    """Five doors an episode; of six keys two are allowed, and one of them, shown, opens: reward 1.

    where: the mask is in the "info" or in the "observation"; "wrong": of another size; "late": only
    in steps; "never": it allows nothing. acts: one key, or "several" of 3 and 2. A forbidden key
    raises.
    """

    def __init__(self, where: str = "info", acts: str = "one") -> None:
        self.where, self.acts = where, acts
        box = spaces.Box(0, 1, (6,), np.float32)
        self.observation_space: spaces.Space[Any] = box
        if where == "observation":
            mask = spaces.Box(0, 1, (6,), np.int8)
            self.observation_space = spaces.Dict({"action_mask": mask, "observation": box})
        several = spaces.MultiDiscrete([3, 2])
        self.action_space: spaces.Space[Any] = several if acts == "several" else spaces.Discrete(6)
        self.steps = self.key = 0
        self.mask = np.zeros(6, np.int8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        observation, info = self._next_door()
        return observation, {} if self.where == "late" else info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = [action[0], 3 + action[1]] if self.acts == "several" else [action]
        if not self.mask[chosen].all() and self.where != "late":
            raise ValueError(f"key {action} is forbidden: {self.mask}")
        reward = float(self.key in chosen)
        self.steps += 1
        observation, info = self._next_door()
        if self.steps == 5:
            info = {"action_mask": np.zeros_like(self.mask)}
        return observation, reward, self.steps == 5, False, info

    def _next_door(self) -> tuple[Any, dict[str, Any]]:
        several = self.acts == "several"
        self.key, self.mask = int(self.np_random.integers(3)), np.zeros(6 - several, np.int8)
        other = self.np_random.integers(3, 5)
        self.mask[[self.key, other]] = 1
        if several:  # the first component has something to choose, too
            self.mask[(self.key + 1) % 3] = 1
        seen = np.eye(6, dtype=np.float32)[self.key]
        mask = {"wrong": np.ones(5), "never": np.zeros(6)}.get(self.where, self.mask)
        if self.where == "observation":
            return {"observation": seen, "action_mask": mask}, {}
        return seen, {"action_mask": mask}


class Slow(Corridor):
    """A step takes its time."""

    def step(self, action: np.int64) -> Answer:
        time.sleep(0.003)
        return super().step(action)


class OnlyHere(Corridor):
    """Cannot be made in another process."""

    def __init__(self) -> None:
        super().__init__()
        if multiprocessing.parent_process() is not None:
            raise SystemExit(3)


class Anything(Corridor):
    """Takes whatever it is given, and leaves the rest to another class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)


class Words(gymnasium.Space[str]):
    """As MiniGrid's space of missions: of gymnasium's own it is none."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "go"


class Spoken(gymnasium.Env[Any, Any]):
    """As MiniGrid's environments: an image, and what is to be done in words."""

    observation_space = gymnasium.spaces.Dict(
        {"image": gymnasium.spaces.Box(0, 9, (7, 7, 3), np.uint8), "mission": Words()}
    )
    action_space = gymnasium.spaces.Discrete(3)


class OnlySpoken(Spoken):
    """Says everything in words."""

    observation_space = gymnasium.spaces.Dict({"mission": Words()})


class Blind(gymnasium.Env[Any, Any]):
    """Draws nothing."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def render(self) -> Any:
        return None


class Crashing(Blind):
    """Its graphics driver crashes, unless it is told to draw by OSMesa."""

    def render(self) -> Any:
        if os.environ.get("MUJOCO_GL") != "osmesa":
            print("no context was made", flush=True)
            os.abort()
        return np.zeros((32, 32, 3), np.uint8)


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    """Twice the reward, whatever is below."""

    def reward(self, reward: Any) -> float:
        return float(reward) * 2


class Bonus(gymnasium.RewardWrapper[Any, Any]):
    """A wrapper that needs an argument."""

    def __init__(self, env: gymnasium.Env[Any, Any], bonus: float) -> None:
        super().__init__(env)
        self.bonus = bonus

    def reward(self, reward: Any) -> float:
        return float(reward) + self.bonus


def bonus_of_5(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return Bonus(env, 5.0)


def number(env: gymnasium.Env[Any, Any]) -> int:
    return 7


NUMBER = 7

gymnasium.register("LabCorridor-v0", entry_point="tests.lab_environments:Corridor")


def register_envs() -> None:
    """As MinAtar's: its ids are known only after this call."""
    gymnasium.register("LabLate-v0", entry_point="tests.lab_environments:Corridor")


def make_gymnasium() -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Makes several at once."""
    return gymnasium.make_vec("CartPole-v1", num_envs=2)


def make_something() -> list[int]:
    """Makes what is no environment."""
    return []
