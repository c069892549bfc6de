"""Fresh, seeded episodes of a trained policy, and the film of one.

Nothing of the training's tricks is left here: episodes end where the game ends, rewards are the game's own. Episode i has the
same seed in evaluation and in film.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agents.atari import make_atari
from agents.environments import episode_seed, reset
from agents.games import make_environment
from agents.interfaces import Policy
from agents.rendering import film, frames_per_second
from config.errors import Diverged
from config.games import LARGEST_RETURN
from config.resolve import Resolved
from config.seeds import integer_seed

__all__ = ["Episode", "evaluate", "film", "frames_per_second"]

LARGEST_GROUP = 32
"""Episodes that are played side by side."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode: its number and seed, its return in the game's own reward, its length in environment steps."""

    episode: int
    seed: int
    return_: float
    length: int


def evaluate(policy: Policy, resolved: Resolved, run: int, episodes: int, sample: bool) -> Iterator[Episode]:
    """Play `episodes` episodes and yield them in order; sample: sampled actions instead of the most probable ones.

    Raises `Diverged` for a reward, an observation or a return that is not finite: no statistics could use it.
    """
    play = _play_atari if resolved.game.kind == "atari" else _play
    for first in range(0, episodes, LARGEST_GROUP):
        numbers = range(first, min(first + LARGEST_GROUP, episodes))
        policy.seed(integer_seed(resolved.experiment.seed, run, "evaluation actions", first))
        seeds = [episode_seed(resolved, run, number) for number in numbers]
        try:
            returns, lengths = play(policy, resolved, seeds, sample)
        except NotFinite as error:
            number = numbers[error.place]
            raise Diverged(f"episode {number} (seed {seeds[error.place]}) gave {error} at step {error.step}") from None
        for index, number in enumerate(numbers):
            if not abs(returns[index]) <= LARGEST_RETURN:
                raise Diverged(f"episode {number} (seed {seeds[index]}) has the return {returns[index]:g}, beyond {LARGEST_RETURN:g}")
            yield Episode(episode=number, seed=seeds[index], return_=float(returns[index]), length=int(lengths[index]))


class NotFinite(Exception):
    """place: of the environment among those that play; step: of its episode, 0 for the reset."""

    def __init__(self, field: str, value: object, place: int, step: int) -> None:
        super().__init__(f"the {field} {value}, which is not finite,")
        self.place, self.step = place, step


def _play(policy: Policy, resolved: Resolved, seeds: list[int], sample: bool) -> tuple[np.ndarray, np.ndarray]:
    """One episode from each seed; the environments that have ended leave the batch. Returns (returns, lengths) [N]."""
    environments = [make_environment(resolved.game) for _ in seeds]
    observations = [environment.reset(seed=seed)[0] for environment, seed in zip(environments, seeds, strict=True)]
    returns, lengths = [0.0] * len(seeds), [0] * len(seeds)
    for n, observation in enumerate(observations):
        _check_observation(observation, n, 0)
    playing = list(range(len(seeds)))
    while playing:
        actions = policy.act(np.stack([observations[n] for n in playing]), sample=sample)
        still = []
        for n, action in zip(playing, actions, strict=True):
            observations[n], reward, terminated, truncated, _ = environments[n].step(action)
            returns[n] += float(reward)
            lengths[n] += 1
            if not math.isfinite(reward):
                raise NotFinite("reward", float(reward), n, lengths[n])
            _check_observation(observations[n], n, lengths[n])
            if not (terminated or truncated):
                still.append(n)
        playing = still
    for environment in environments:
        environment.close()
    return np.array(returns), np.array(lengths)


def _check_observation(observation: np.ndarray, place: int, step: int) -> None:
    values = np.asarray(observation)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise NotFinite("observation", values[~np.isfinite(values)][0], place, step)


def _play_atari(policy: Policy, resolved: Resolved, seeds: list[int], sample: bool) -> tuple[np.ndarray, np.ndarray]:
    """The same on ale-py's native vector environment, where all go on until the last first episode has ended."""
    environments = make_atari(resolved, len(seeds))
    observations, _ = reset(environments, np.asarray(seeds))
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    playing = np.ones(len(seeds), np.bool_)
    while playing.any():
        observations, rewards, terminated, truncated, _ = environments.step(policy.act(observations, sample=sample))
        returns += rewards * playing
        lengths += playing
        playing &= ~(terminated | truncated)
    environments.close()
    return returns, lengths
