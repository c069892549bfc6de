"""Observation and action spaces of a policy, as a few plain numbers that fit into a checkpoint."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from config.errors import BadInput

FLOAT32 = "float32"
SMALLEST_IMAGE = 36
"""Pixels in each direction: the Nature CNN's three convolutions need as many."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One environment's spaces.

    observation_shape: (C, H, W) for images, in whatever order the environment has them; any other shape
    for numbers. image: pixels of uint8 for the Nature CNN. grid: a smaller image, of uint8 or bool.
    channels_last: the environment gives (H, W, C). actions: the number of discrete actions, counted from
    `first_action`, if `discrete`; otherwise the number A of components. choices [A]: how many actions each
    component has, counted from `first_actions`; two if `binary`. Components without choices are
    continuous: `low` and `high` are their bounds, infinite where there is none, and None if the space has
    no bound at all; `action_dtype` is the space's. masked: whether the environment says which actions it
    allows (`agents.environments.masks`).
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
    grid: bool = False
    choices: tuple[int, ...] = ()
    first_actions: tuple[int, ...] = ()
    binary: bool = False
    masked: bool = False
    action_dtype: str = FLOAT32

    @property
    def family(self) -> str:
        """One of `config.algorithms.descriptor.FAMILIES`."""
        if self.choices:
            return "multi-binary" if self.binary else "multi-discrete"
        return "discrete" if self.discrete else "continuous"

    @property
    def continuous(self) -> bool:
        """Whether actions are real numbers."""
        return self.family == "continuous"

    @functools.cached_property
    def bounded(self) -> bool:
        """Whether every continuous action has both its bounds."""
        if not self.low or not self.high:
            return False
        # Actions are float32: a bound that is beyond the range of this type is none.
        with np.errstate(over="ignore"):
            bounds = np.asarray((*self.low, *self.high), np.float32)
        return bool(np.isfinite(bounds).all())

    @property
    def policy_outputs(self) -> int:
        """Numbers that a network says of the actions: logits, or means."""
        return sum(self.choices) if self.choices else self.actions

    def best_actions(self, scores: np.ndarray) -> np.ndarray:
        """The discrete actions with the highest scores, the first of equal ones: [N], or [N, A] for
        several components. scores: [N, policy_outputs].
        """
        ends = np.cumsum(self.choices)[:-1]
        parts = np.split(scores, ends, axis=1)
        best = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        return best[:, 0] if self.discrete else best

    @functools.cached_property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.observation_shape)

    @property
    def environment_shape(self) -> tuple[int, ...]:
        """The shape of one observation as the environment gives it."""
        if not self.channels_last:
            return self.observation_shape
        channels, height, width = self.observation_shape
        return height, width, channels

    def environment_actions(self, actions: np.ndarray) -> np.ndarray:
        """The policy's actions, [N] or [N, A], as the environment takes them.

        Bounded continuous actions are learnt in units of the half range: -1 is `low`, 1 is `high`,
        beyond is clipped. If a bound is missing anywhere there is no range: they are learnt in
        their own units, and clipped at the bounds there are. Every action lies in the environment's
        space and has its dtype.
        """
        if self.discrete:
            return actions + self.first_action if self.first_action else actions
        if self.choices:
            counted: np.ndarray = actions + np.asarray(self.first_actions)
            return counted.reshape(-1, *self.action_shape)
        taken = actions
        if self.bounded:
            taken = self.in_range(np.clip(actions, -1, 1), *self.policy_bounds)
        with np.errstate(over="ignore"):
            taken = taken.astype(self.action_dtype, copy=False)
        if self.low is not None:
            # Last of all: rounding may have led a hair's breadth out of the space, and a bound may be
            # no number of the type in which the policy calculates.
            taken = np.clip(taken, *self.space_bounds)
        return taken.reshape(-1, *self.action_shape)

    @functools.cached_property
    def policy_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds [A] in the type in which the policy calculates."""
        return np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)

    @functools.cached_property
    def space_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds [A] in the space's own type. A missing one is the largest finite number, so that
        no action is infinite.
        """
        dtype = np.dtype(self.action_dtype)
        largest = np.finfo(dtype).max
        low, high = np.asarray(self.low, dtype), np.asarray(self.high, dtype)
        return np.maximum(low, -largest), np.minimum(high, largest)

    def in_range(self, units: Any, low: Any, high: Any) -> Any:
        """Numbers from -1 to 1 as numbers from low to high, arrays or tensors [..., A]."""
        if self.has_finite_range:
            return low + (units + 1) * (0.5 * (high - low))
        return 0.5 * low + 0.5 * high + units * (0.5 * high - 0.5 * low)

    @functools.cached_property
    def has_finite_range(self) -> bool:
        """Whether the distances between the bounds are finite numbers, of which otherwise only the
        halves are.
        """
        low, high = self.policy_bounds
        with np.errstate(over="ignore"):
            return bool(np.isfinite(high - low).all())

    def as_dict(self) -> dict[str, Any]:
        """JSON scalars and lists, for a checkpoint."""
        written = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }
        # Checkpoints of earlier versions do not have this entry.
        if self.action_dtype == FLOAT32:
            del written["action_dtype"]
        return written

    @staticmethod
    def from_dict(written: Mapping[str, Any]) -> Interface:
        """Read what `as_dict` wrote."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in written.items()
        }
        return Interface(**values)


def interface(game: str, observation: spaces.Space[Any], action: spaces.Space[Any]) -> Interface:
    """The interface of one environment's two spaces; raises `BadInput` when PPO cannot learn on
    them.
    """
    spaces_of = {"observations": observation, "actions": action}
    for what, space in spaces_of.items():
        if 0 in (space.shape or ()):
            raise BadInput(
                f"game {game!r} has {what} {_short(space)}; allowed: at least one number"
            )
    return Interface(**_observation(game, observation), **_action(game, action))


def _observation(game: str, space: spaces.Space[Any]) -> dict[str, Any]:
    if not isinstance(space, spaces.Box) or np.dtype(space.dtype).kind not in "fiub":
        raise BadInput(
            f"game {game!r} has observations {_short(space)}; allowed: Box of numbers, or what gymnasium can flatten into one"
        )
    shape = tuple(int(size) for size in space.shape)
    if space.dtype not in (np.uint8, np.bool_) or len(shape) != 3:
        return {"observation_shape": shape, "image": False, "channels_last": False}
    # Channels are fewer than pixels in a direction, or the one size that differs from the others.
    channels_last = shape[2] < shape[0] or shape[0] == shape[1] != shape[2]
    channels, height, width = shape
    if channels_last:
        height, width, channels = shape
    # A smaller one is a grid, whose cells are often kinds of things, and gets a network of its own.
    image = space.dtype == np.uint8 and min(height, width) >= SMALLEST_IMAGE
    return {
        "observation_shape": (channels, height, width),
        "image": image,
        "grid": not image,
        "channels_last": channels_last,
    }


def _action(game: str, space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        return {"actions": int(space.n), "discrete": True, "first_action": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return _several(space)
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        allowed = "Discrete, MultiDiscrete, MultiBinary, or Box of floats"
        raise BadInput(f"game {game!r} has actions {_short(space)}; allowed: {allowed}")
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
        "action_dtype": str(space.dtype),
        **bounds,
    }


def _several(space: spaces.MultiDiscrete | spaces.MultiBinary) -> dict[str, Any]:
    shape = tuple(map(int, space.shape))
    binary = isinstance(space, spaces.MultiBinary)
    size = math.prod(shape)
    choices = (2,) * size
    first = (0,) * size
    if isinstance(space, spaces.MultiDiscrete):
        choices = tuple(map(int, space.nvec.ravel()))
        first = tuple(map(int, space.start.ravel()))
    return {
        "actions": size, "discrete": False, "action_shape": shape, "choices": choices,
        "first_actions": first, "binary": binary,
    }  # fmt: skip


def _short(space: spaces.Space[Any]) -> str:
    text = str(space)
    return text if len(text) <= 80 else f"{text[:77]}..."
