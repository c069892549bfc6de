"""Stands in for the package envpool: the same calls, and the same rules of seeds, resets and ends, for
games of a few lines."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
from gymnasium import spaces

LIMIT = 12
Config = namedtuple("Config", "num_envs env_seed num_threads max_num_players far render_mode")
PLAYERS = {"Drift-v1": 1, "Masked-v1": 1, "Duel-v1": 2}
made: list[Drifts] = []
"""Every object of `make`, in order."""


class Drift:
    """A number moves at random and by the action; an episode ends at `far`, or is cut after LIMIT
    steps. Another one begins where the generator goes on."""

    def __init__(self, seed: int, far: float = 4.0) -> None:
        self.generator = np.random.default_rng(seed)
        self.far = far

    def reset(self) -> None:
        self.place = self.generator.uniform(-1, 1)
        self.elapsed = 0
        self.terminated = self.truncated = False

    def step(self, action: int) -> float:
        self.place += (2 * action - 1) * self.generator.uniform(0, 2)
        self.elapsed += 1
        self.truncated = self.elapsed >= LIMIT
        self.terminated = abs(self.place) > self.far and not self.truncated
        return float(self.place)

    @property
    def observation(self) -> np.ndarray:
        return np.array([self.place, self.elapsed], np.float32)


class Spec:
    def __init__(self, game: str, **options: Any) -> None:
        defaults = {
            "num_envs": 1, "env_seed": [0], "num_threads": 0, "max_num_players": PLAYERS[game],
            "far": 4.0, "render_mode": None,
        }  # fmt: skip
        self.config = Config(**(defaults | options))
        seen: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        if game == "Masked-v1":
            seen = spaces.Dict({"action_mask": spaces.MultiBinary(2), "seen": seen})
        self.gymnasium_observation_space = self.observation_space = seen
        self.gymnasium_action_space = self.action_space = spaces.Discrete(2)


class Drifts(Spec):
    """An ended environment is reset by the next step, whatever the action, for no reward."""

    def __init__(self, game: str, **options: Any) -> None:
        super().__init__(game, **options)
        self.game = game
        self.closed = False
        assert len(self.config.env_seed) == self.config.num_envs
        self.each = [Drift(seed, self.config.far) for seed in self.config.env_seed]
        self.answers: Any = None

    def reset(self, env_id: np.ndarray) -> tuple[Any, dict[str, Any]]:
        for n in env_id:
            self.each[n].reset()
        return self._seen(env_id), {"env_id": env_id}

    def send(self, actions: np.ndarray, env_id: np.ndarray) -> None:
        rewards = np.zeros(len(env_id), np.float32)
        for row, n in enumerate(env_id):
            one = self.each[n]
            if one.terminated or one.truncated:
                one.reset()
            else:
                rewards[row] = one.step(int(actions[row]))
        ends = [(self.each[n].terminated, self.each[n].truncated) for n in env_id]
        terminated, truncated = np.array(ends, np.bool_).T
        self.answers = self._seen(env_id), rewards, terminated, truncated, {"env_id": env_id}

    def recv(self) -> Any:
        return self.answers

    def render(self, env_id: int) -> np.ndarray:
        assert self.config.render_mode == "rgb_array"
        return np.full((1, 40, 60, 3), 9 * self.each[env_id].elapsed, np.uint8)

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def _seen(self, env_id: np.ndarray) -> Any:
        seen = np.stack([self.each[n].observation for n in env_id])
        if self.game != "Masked-v1":
            return seen
        forced = np.array([[one.elapsed % 2 == 0, True] for one in (self.each[n] for n in env_id)])
        return {"action_mask": forced, "seen": seen}


def list_all_envs() -> list[str]:
    return list(PLAYERS)


def make_spec(game: str, **options: Any) -> Spec:
    return Spec(game, **options)


def make(game: str, *, env_type: str, **options: Any) -> Drifts:
    assert env_type == "gymnasium"
    made.append(Drifts(game, **options))
    return made[-1]
