"""Films of evaluated episodes, and whether a game gives pictures at all; knows no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.environments.atari import make_atari
from agents.environments.games import make_environment
from agents.environments.vectors import reset
from agents.evaluation.pictures import NoImages, fitted, picture
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.games import Game, twin
from config.imports import reason
from config.resolved import Resolved
from config.suites import suite_of

# pygame draws off-screen with this driver, so that no display is needed.
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

ATARI_FRAMES_PER_SECOND = 60
ATARI_FILM_SKIP = 2
"""Emulator frames in one frame of film: two, of which the emulator takes the brighter pixels, show
what flickers."""
ATARI_CAMERA = {
    "grayscale": False,
    "img_height": 210,
    "img_width": 160,
    "stack_num": 1,
    "frameskip": ATARI_FILM_SKIP,
}
DEFAULT_FRAMES_PER_SECOND = 30
LARGEST_FRAMES_PER_SECOND = 60
"""Nobody sees more. MuJoCo's walkers make 125 steps a second, and every picture of them takes 10 to 40 ms
without a GPU."""


def draw_once(game: Game, settings: EnvironmentSettings) -> None:
    """Draw the first frame of an episode. Raises `BadInput` with the reason if the game gives no
    pictures here.
    """
    if game.is_atari:
        return
    try:
        environment = _made_to_film(game, settings)
        try:
            environment.reset(seed=0)
            _rendered(environment)
        finally:
            environment.close()
    except (NoImages, BadInput) as error:
        why = str(error).removeprefix(f"game {game.name!r} cannot be made: ")
        raise BadInput(f"{game.name!r} gives no images: {why}") from error
    except Exception as error:
        raise BadInput(f"{game.name!r} gives no images: {reason(error)}") from error


def _made_to_film(game: Game, settings: EnvironmentSettings) -> gymnasium.Env[Any, Any]:
    """One environment that draws pictures. MuJoCo's are drawn without shadows and smoothed edges: by
    a processor that takes 9 ms a picture of HalfCheetah in place of 54.
    """
    environment = make_environment(game, settings, "rgb_array")
    visual: Any = getattr(getattr(environment.unwrapped, "model", None), "vis", None)
    if hasattr(visual, "quality"):
        visual.quality.shadowsize = 0
        visual.quality.offsamples = 0
    return environment


def _rendered(environment: gymnasium.Env[Any, Any]) -> np.ndarray:
    """The environment's picture now, uint8 [H, W, 3]. Raises `NoImages`."""
    try:
        return picture(environment.render())
    except NoImages:
        raise
    except (Exception, SystemExit) as error:
        raise NoImages(f"render() failed: {reason(error)}") from error


class Rate(NamedTuple):
    """How a film plays at the game's own speed: frames_per_second, of which each shows the state after
    `steps` further steps of the environment.
    """

    frames_per_second: float
    steps: int = 1


def film_rate(game: Game, settings: EnvironmentSettings) -> Rate:
    """The rate of a game's films: at most LARGEST_FRAMES_PER_SECOND."""
    if game.is_atari:
        return Rate(ATARI_FRAMES_PER_SECOND / ATARI_FILM_SKIP)
    if game.is_pooled:
        return _rate_elsewhere(twin(game), settings)
    environment = make_environment(game, settings)
    rate = float(environment.metadata.get("render_fps") or DEFAULT_FRAMES_PER_SECOND)
    suite = suite_of(game.id)
    if suite is not None and suite.name == "dm_control":
        # shimmy 2.0.1 gives the control timestep in milliseconds as the frames a second.
        rate = 1 / environment.get_wrapper_attr("dt")
    environment.close()
    steps = math.ceil(rate / LARGEST_FRAMES_PER_SECOND)
    return Rate(rate / steps, steps)


def _rate_elsewhere(game: Game, settings: EnvironmentSettings) -> Rate:
    """The rate of one of envpool's games, which do not say theirs. game: the same one elsewhere."""
    if game.is_atari:
        # envpool draws one frame a step.
        return Rate(ATARI_FRAMES_PER_SECOND / game.frames_per_step)
    try:
        return film_rate(game, replace(settings, env_options=""))
    except BadInput:
        # It is nowhere else.
        return Rate(DEFAULT_FRAMES_PER_SECOND)


class Replay:
    """An evaluated episode played again, in an environment that is filmed, from its seed and its
    actions. A frame is drawn after every `steps` steps, and of the last one.

    return_, length: of what `frames` has shown so far, in the game's own reward and in environment
    steps. irregular: the first frame that the environment drew in another size or not at all, in a
    sentence, or None. Raises `BadInput` for actions that the game does not have: it may crash on them.
    """

    def __init__(self, resolved: Resolved, seed: int, actions: np.ndarray, steps: int = 1) -> None:
        self._resolved = resolved
        self._seed = seed
        self._actions = actions
        self._steps = steps
        self.return_ = 0.0
        self.length = 0
        self.has_ended = False
        self.irregular: str | None = None

    def frames(self) -> Iterator[np.ndarray]:
        """Uint8 [H, W, 3] of one size, the reset's first; no further than the actions go. Raises
        `NoImages` if the first is no picture.
        """
        if self._resolved.game.is_atari:
            return self._frames_of_atari()
        return self._frames()

    def difference(self, return_: float, length: int) -> str | None:
        """None if the whole replay was the episode with this return and length, else what it shows
        instead.
        """
        is_cut = length >= self._resolved.environment.evaluation_steps
        if (self.return_, self.length) == (return_, length) and (self.has_ended or is_cut):
            return None
        end = "" if self.has_ended else ", not at its end"
        shown = f"return {self.return_!r} after {self.length} steps{end}"
        evaluated = f"evaluated: return {return_!r} after {length} steps"
        return f"{shown}; {evaluated}: the game is no function of its seed and actions"

    def _frames(self) -> Iterator[np.ndarray]:
        resolved = self._resolved
        environment = _made_to_film(resolved.game, resolved.environment)
        try:
            _check_actions(self._resolved.game, self._actions, environment.action_space)
            environment.reset(seed=self._seed)
            shown = _rendered(environment)
            yield shown
            for action in self._actions:
                _, reward, terminated, truncated, _ = environment.step(action)
                self._count(float(reward), bool(terminated or truncated))
                is_last = self.has_ended or self.length == len(self._actions)
                if is_last or self.length % self._steps == 0:
                    shown = self._next_frame(environment, shown)
                    yield shown
                if self.has_ended:
                    return
        finally:
            environment.close()

    def _next_frame(self, environment: gymnasium.Env[Any, Any], before: np.ndarray) -> np.ndarray:
        """The picture now, in the size of the one before, which stays where there is none."""
        height, width = before.shape[:2]
        try:
            drawn = _rendered(environment)
        except NoImages as error:
            self._remark(f"{error}: the picture before it stays")
            return before
        if drawn.shape != before.shape:
            size = f"{drawn.shape[1]} x {drawn.shape[0]}"
            self._remark(f"it has {size} pixels in place of {width} x {height}: it is fitted")
        return fitted(drawn, height, width)

    def _remark(self, what: str) -> None:
        if self.irregular is None:
            self.irregular = f"after step {self.length} {what}"

    def _frames_of_atari(self) -> Iterator[np.ndarray]:
        """Frames in colour. The emulator's steps are shorter than the policy's, so several of them
        take the same action.
        """
        camera = make_atari(self._resolved, 1, **ATARI_CAMERA)
        try:
            # ale-py may crash the process on an action that the game does not have.
            _check_actions(self._resolved.game, self._actions, camera.single_action_space)
            picture, _ = reset(camera, np.array([self._seed]))
            yield _enlarged(picture)
            for action in self._actions[:, None]:
                reward = 0.0
                has_ended = False
                # The policy's step is several of the film's, all with the same action.
                for _ in range(self._resolved.game.frames_per_step // ATARI_FILM_SKIP):
                    if not has_ended:
                        picture, part, terminated, truncated, _ = camera.step(action)
                        reward += float(part[0])
                        has_ended = bool(terminated[0] or truncated[0])
                        yield _enlarged(picture)
                self._count(reward, has_ended)
                if has_ended:
                    return
        finally:
            camera.close()

    def _count(self, reward: float, has_ended: bool) -> None:
        self.return_ += reward
        self.length += 1
        self.has_ended = has_ended


def _check_actions(game: Game, actions: np.ndarray, space: spaces.Space[Any]) -> None:
    if isinstance(space, spaces.Discrete):
        low = int(space.start)
        high = int(space.start + space.n) - 1
        fits = (
            actions.ndim == 1
            and actions.dtype.kind == "i"
            and bool(((low <= actions) & (actions <= high)).all())
        )
        allowed = f"whole numbers from {low} to {high}"
    elif isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        whole = actions.dtype.kind == "i" and actions.shape[1:] == space.shape
        fits = whole and all(space.contains(action) for action in actions)
        allowed = f"whole numbers in {space}"
    else:
        fits = actions.dtype.kind == "f" and actions.shape[1:] == space.shape
        allowed = f"floats of shape {space.shape}"
    if not fits:
        raise BadInput(f"these are no actions of {game.name!r}; allowed: {allowed}")


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """[1, 1, 210, 160, 3] -> [420, 320, 3], every pixel doubled."""
    return np.repeat(np.repeat(picture[0, 0], 2, axis=0), 2, axis=1)
