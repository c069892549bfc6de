"""What a policy sees and does: observation and action spaces as a few plain numbers that fit into a
checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from config.errors import BadInput

SMALLEST_IMAGE = 36
"""Pixels in each direction: the Nature CNN's three convolutions need as many."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One environment's spaces.

    observation_shape: (C, H, W) for images, whatever the environment's own order, else any shape of
    numbers; image: uint8 pixels for the Nature CNN; channels_last: the environment gives (H, W, C);
    actions: number of discrete actions (`discrete`), counted from `first_action`, or of continuous
    components, with `low` and `high` where the space has a bound anywhere, infinite where it has
    none.
    """

    observation_shape: tuple[int, ...]
    image: bool
    channels_last: bool
    actions: int
    discrete: bool
    first_action: int = 0
    action_shape: tuple[int, ...] = ()
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.observation_shape)

    @property
    def environment_shape(self) -> tuple[int, ...]:
        """Of one observation as the environment gives it."""
        if not self.channels_last:
            return self.observation_shape
        channels, height, width = self.observation_shape
        return height, width, channels

    def environment_actions(self, actions: np.ndarray) -> np.ndarray:
        """The policy's actions, [N] or [N, A], as the environment takes them.

        Bounded continuous actions are learnt in units of the half range: -1 is `low`, 1 is `high`,
        beyond is clipped. If a bound is missing anywhere there is no range: they are learnt in
        their own units, and clipped at the bounds there are.
        """
        if self.discrete:
            return actions + self.first_action if self.first_action else actions
        if self.low is None or self.high is None:
            return actions.reshape(-1, *self.action_shape)
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        taken: np.ndarray
        if np.isfinite(low).all() and np.isfinite(high).all():
            taken = low + (np.clip(actions, -1, 1) + 1) * (0.5 * (high - low))
        else:
            taken = np.clip(actions, low, high)
        return taken.reshape(-1, *self.action_shape)

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint: JSON scalars and lists."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @staticmethod
    def from_dict(written: Mapping[str, Any]) -> Interface:
        """What `as_dict` wrote."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in written.items()
        }
        return Interface(**values)


def interface(game: str, observation: spaces.Space[Any], action: spaces.Space[Any]) -> Interface:
    """The interface of one environment's two spaces; raises `BadInput` when PPO cannot learn on
    them.
    """
    return Interface(**_observation(game, observation), **_action(game, action))


def _observation(game: str, space: spaces.Space[Any]) -> dict[str, Any]:
    if not isinstance(space, spaces.Box) or not (
        np.issubdtype(space.dtype, np.floating) or np.issubdtype(space.dtype, np.integer)
    ):
        raise BadInput(
            f"game {game!r} has observations {_short(space)}; allowed: Box of numbers, or what gymnasium can flatten into one"
        )
    shape = tuple(int(size) for size in space.shape)
    if space.dtype != np.uint8 or len(shape) != 3:
        return {"observation_shape": shape, "image": False, "channels_last": False}
    channels_last = shape[2] < shape[0]
    channels, height, width = (shape[2], *shape[:2]) if channels_last else shape
    if min(height, width) < SMALLEST_IMAGE:
        raise BadInput(
            f"game {game!r} has images of {height} x {width}; allowed: at least {SMALLEST_IMAGE} x {SMALLEST_IMAGE}"
        )
    return {
        "observation_shape": (channels, height, width),
        "image": True,
        "channels_last": channels_last,
    }


def _action(game: str, space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        return {"actions": int(space.n), "discrete": True, "first_action": int(space.start)}
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise BadInput(
            f"game {game!r} has actions {_short(space)}; allowed: Discrete, or Box of floats"
        )
    bounds: dict[str, Any] = {}
    if bool(np.isfinite(space.low).any() or np.isfinite(space.high).any()):
        bounds = {
            "low": tuple(map(float, space.low.ravel())),
            "high": tuple(map(float, space.high.ravel())),
        }
    return {
        "actions": math.prod(space.shape),
        "discrete": False,
        "action_shape": tuple(map(int, space.shape)),
        **bounds,
    }


def _short(space: spaces.Space[Any]) -> str:
    text = str(space)
    return text if len(text) <= 80 else f"{text[:77]}..."
