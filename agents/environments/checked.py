"""Holds one environment to the promises of `gymnasium.Env` that a training relies on.

A promise that is broken becomes one line that names it, what was seen, and what to change. What
gymnasium leaves open is made uniform: a reward of shape (1,) is its number, an observation has the
space's dtype, and of `info`, which may hold anything, only `action_mask` is passed on. What it does to
torch's settings is put back. Imports no torch.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.environments.global_state import put_back, torch_settings
from agents.environments.masks import KEY
from config.environment import EnvironmentSettings
from config.errors import BadInput, ExperimentError, on_one_line
from config.games import Game
from config.imports import is_import_path, reason

DEEPEST_FRAMES = 10
"""Of a traceback so many frames are printed, those next to the error."""


def is_strange(game: Game, settings: EnvironmentSettings) -> bool:
    """Whether a game is not one of those that are tested here: a person's own, one of another package,
    or one in wrappers. Only these are held to their promises, because it costs time in every step.
    """
    is_known = bool(game.family) and not is_import_path(game.id)
    return not is_known or bool(settings.wrapper_paths)


class EnvironmentFailed(ExperimentError):
    """A method of an environment raised, or tried to end the process. The step is tried again."""


class CheckedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wraps one environment. name: the game's, for messages."""

    def __init__(self, environment: gymnasium.Env[Any, Any], name: str) -> None:
        super().__init__(environment)
        self._name = name
        self._steps = 0
        space = environment.observation_space
        self._box = space if isinstance(space, spaces.Box) else None
        self._dtype = space.dtype
        self._shape = space.shape

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`. Raises `BadInput` for a broken promise and `EnvironmentFailed`
        for an error of the environment.
        """
        self._steps = 0
        before = torch_settings()
        try:
            returned: Any = self.env.reset(**arguments)
        except (Exception, SystemExit) as error:
            if isinstance(error, TypeError) and "seed" in str(error):
                raise self._broken(
                    "reset() takes seed and options",
                    reason(error),
                    "define reset(self, *, seed=None, options=None)",
                ) from error
            raise self._failed("reset", error) from error
        finally:
            put_back(before)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise self._broken(
                "reset() returns (observation, info)",
                f"it returned {_kind(returned)}",
                "return a pair, as gymnasium has it since version 0.26",
            )
        observation, info = returned
        return self._observed(observation), _mask_alone(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`. Raises as `reset` does."""
        self._steps += 1
        before = torch_settings()
        try:
            returned: Any = self.env.step(action)
        except (Exception, SystemExit) as error:
            raise self._failed("step", error) from error
        finally:
            put_back(before)
        if not isinstance(returned, tuple) or len(returned) != 5:
            raise self._broken(
                "step() returns (observation, reward, terminated, truncated, info)",
                f"it returned {_kind(returned)}",
                "return five values, as gymnasium has it since version 0.26",
            )
        observation, reward, terminated, truncated, info = returned
        return (
            self._observed(observation),
            self._number(reward),
            bool(terminated),
            bool(truncated),
            _mask_alone(info),
        )

    def _failed(self, method: str, error: BaseException) -> ExperimentError:
        """The error in one line. Where in the person's own code it was raised is printed, too. One of
        this project's own errors says all that there is to say.
        """
        if isinstance(error, ExperimentError):
            return error
        traceback.print_exception(error, limit=-DEEPEST_FRAMES)
        what = reason(error)
        if isinstance(error, SystemExit):
            what = f"it ended the process, exit({error.code!r})"
        return EnvironmentFailed(
            f"{method}() of game {self._name!r} failed in step {self._steps} of an episode: {what}"
        )

    def _broken(self, promise: str, seen: str, remedy: str) -> BadInput:
        return BadInput(
            f"game {self._name!r} breaks a promise, {promise}: {on_one_line(seen)}; {remedy}"
        )

    def _observed(self, observation: Any) -> Any:
        """The observation, with the dtype of its space."""
        box = self._box
        if box is None:
            return observation
        # The way of nearly every step: all that is kept costs a microsecond.
        is_array = type(observation) is np.ndarray
        if is_array and observation.dtype == self._dtype and observation.shape == self._shape:
            return observation
        try:
            seen = np.asarray(observation)
            if seen.dtype != box.dtype:
                seen = seen.astype(box.dtype, casting="unsafe")
        except (TypeError, ValueError) as error:
            raise self._broken(
                f"observations are numbers of {box.dtype}",
                f"one is {_kind(observation)} ({error})",
                "return arrays of the observation_space",
            ) from None
        if seen.shape != box.shape:
            raise self._broken(
                f"observations have the shape {box.shape} of observation_space",
                f"one has the shape {seen.shape} after step {self._steps}",
                "change the space or the observation",
            )
        return seen

    def _number(self, reward: Any) -> float:
        if isinstance(reward, float):
            return float(reward)
        try:
            if reward is not None and np.size(reward) == 1:
                return float(np.asarray(reward, np.float64).reshape(()))
        except (TypeError, ValueError):
            pass
        raise self._broken(
            "a reward is one number",
            f"it was {_kind(reward)} in step {self._steps}",
            "return a float",
        )


def _mask_alone(info: Any) -> dict[str, Any]:
    """The info without what is only for people: vectors of environments cannot hold what differs in
    type or shape between two of them.
    """
    if isinstance(info, Mapping) and info.get(KEY) is not None:
        return {KEY: info[KEY]}
    return {}


def _kind(value: Any) -> str:
    """A value's type and size, in a few words."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} values"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"{type(value).__name__} {on_one_line(repr(value))[:60]}"
