"""Films of a trained policy, and whether a game can be filmed at all; knows no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from agents.atari import make_atari
from agents.environments import episode_seed, reset
from agents.games import make_environment
from agents.interfaces import Policy
from config.errors import ExperimentError
from config.games import Game
from config.resolve import Resolved
from config.seeds import integer_seed

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no display is needed: pygame draws off-screen

ATARI_FRAMES_PER_SECOND = 60
ATARI_FILM_SKIP = 2
"""Emulator frames in one frame of film: two, of which the emulator takes the brighter pixels, show what flickers."""
DEFAULT_FRAMES_PER_SECOND = 30


def renders(game: Game) -> str | None:
    """None when the game gives images, else the reason in a few words; renders one frame to know."""
    if game.kind == "atari":
        return None
    try:
        environment = make_environment(game, "rgb_array")
        try:
            environment.reset(seed=0)
            frame = environment.render()
        finally:
            environment.close()
    except Exception as error:
        return " ".join(f"{game.name!r} gives no images: {type(error).__name__}: {error}".split())[:300]
    if isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8:
        return None
    return f"{game.name!r} gives no images: render() returned {type(frame).__name__}, not uint8 [height, width, 3]"


def frames_per_second(game: Game) -> float:
    """Of the film, so that it plays at the game's own speed."""
    if game.kind == "atari":
        return ATARI_FRAMES_PER_SECOND / ATARI_FILM_SKIP
    environment = make_environment(game)
    rate = float(environment.metadata.get("render_fps") or DEFAULT_FRAMES_PER_SECOND)
    environment.close()
    return rate


def film(policy: Policy, resolved: Resolved, run: int, episode: int, sample: bool) -> Iterator[np.ndarray]:
    """The frames of one episode, uint8 [H, W, 3], from the same seed as the same episode of the evaluation."""
    policy.seed(integer_seed(resolved.experiment.seed, run, "evaluation actions", episode))
    seed = episode_seed(resolved, run, episode)
    film_one = _film_atari if resolved.game.kind == "atari" else _film
    return film_one(policy, resolved, seed, sample)


def _film(policy: Policy, resolved: Resolved, seed: int, sample: bool) -> Iterator[np.ndarray]:
    environment = make_environment(resolved.game, "rgb_array")
    try:
        observation, _ = environment.reset(seed=seed)
        ended = False
        yield _frame(environment.render())
        while not ended:
            action = policy.act(np.asarray(observation)[None], sample=sample)[0]
            observation, _, terminated, truncated, _ = environment.step(action)
            ended = bool(terminated or truncated)
            yield _frame(environment.render())
    finally:
        environment.close()


def _film_atari(policy: Policy, resolved: Resolved, seed: int, sample: bool) -> Iterator[np.ndarray]:
    """Two emulators in lockstep, one that the policy sees, one that is filmed in colour: same seed, same actions, same game."""
    player = make_atari(resolved, 1)
    camera = make_atari(resolved, 1, grayscale=False, img_height=210, img_width=160, stack_num=1, frameskip=ATARI_FILM_SKIP)
    try:
        observation, _ = reset(player, np.array([seed]))
        picture, _ = reset(camera, np.array([seed]))
        yield _enlarged(picture)
        ended = False
        while not ended:
            action = policy.act(observation, sample=sample)
            observation, reward, terminated, truncated, _ = player.step(action)
            ended = bool(terminated[0] or truncated[0])
            filmed, camera_ended = 0.0, False
            for _ in range(resolved.game.frames_per_step // ATARI_FILM_SKIP):
                if not camera_ended:
                    picture, part, camera_terminated, camera_truncated, _ = camera.step(action)
                    filmed, camera_ended = filmed + float(part[0]), bool(camera_terminated[0] or camera_truncated[0])
                    yield _enlarged(picture)
            if filmed != float(reward[0]) or camera_ended != ended:
                raise ExperimentError(f"the film of {resolved.game.name!r} left the game that the policy plays")
    finally:
        player.close()
        camera.close()


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """[1, 1, 210, 160, 3] -> [420, 320, 3], every pixel doubled."""
    return np.repeat(np.repeat(picture[0, 0], 2, axis=0), 2, axis=1)


def _frame(rendered: Any) -> np.ndarray:
    return np.asarray(rendered, np.uint8)
