"""Fresh, seeded episodes of a trained policy, with the actions that show each of them again.

Nothing of the training's tricks is left here: episodes end where the game ends, rewards are the
game's own. An episode depends on its number alone, never on how many others are played or beside
which: seed, sampled actions, and its place in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from agents.environments.atari import FIRE, life_lost, make_atari, needs_fire
from agents.environments.games import make_environment
from agents.environments.masks import KEY, check_some_action, mask
from agents.environments.training import EVALUATION, episode_seed
from agents.environments.vectors import reset
from agents.interfaces import AnyPolicy, RecurrentPolicy
from config.errors import Diverged
from config.games import LARGEST_RETURN
from config.resolved import Resolved
from config.seeds import integer_seed

LARGEST_GROUP = 32
"""Episodes that are played side by side, and rows of every batch that the network sees: batches of
other sizes are computed in another order, and their answers differ by 6e-8."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode: its number and seed; return_ in the game's own reward; length in environment
    steps.

    actions: [length] or [length, A], exactly as the environment received them, including a forced
    FIRE. cut: whether it would have gone on after `evaluation_steps`.
    """

    episode: int
    seed: int
    return_: float
    length: int
    actions: np.ndarray = field(compare=False, repr=False)
    cut: bool = False


Watch = Callable[[int, int], None]
"""Is told after each step of a group of episodes how many steps they have taken, and how many of them
have not ended."""


def evaluate(
    policy: AnyPolicy,
    resolved: Resolved,
    run: int,
    episodes: int,
    sample: bool,
    watch: Watch = lambda steps, playing: None,
    *,
    purpose: str = EVALUATION,
) -> Iterator[Episode]:
    """Play `episodes` episodes and yield them in order; sample: sampled actions instead of the most
    probable ones. purpose: of the seeds; episodes of two purposes have nothing in common.

    Raises `Diverged` for a reward, an observation or a return that is not finite: no statistics
    could use it.
    """
    play = _play_atari if resolved.game.is_atari else _play
    at_once = _environments_at_once(resolved)
    for first in range(0, episodes, at_once):
        # The last group is filled up to the same size: batches of another size give answers that
        # differ by 6e-8, and an episode must depend on its number alone.
        rows = range(first, first + LARGEST_GROUP)
        of_actions = [
            integer_seed(resolved.experiment.seed, run, f"{purpose} actions", number)
            for number in rows
        ]
        policy.seed(of_actions)
        numbers = rows[: min(at_once, episodes - first)]
        seeds = [episode_seed(resolved, run, number, purpose) for number in numbers]
        try:
            played = play(Acting(policy, LARGEST_GROUP), resolved, seeds, sample, watch)
        except NotFinite as error:
            number = numbers[error.place]
            raise Diverged(
                f"episode {number} (seed {seeds[error.place]}) gave {error} at step {error.step}"
            ) from None
        for number, seed, (return_, taken, cut) in zip(numbers, seeds, played, strict=True):
            # This form of the condition refuses NaN, too.
            if not abs(return_) <= LARGEST_RETURN:
                raise Diverged(
                    f"episode {number} (seed {seed}) has the return {return_:g}, beyond {LARGEST_RETURN:g}"
                )
            yield Episode(
                episode=number,
                seed=seed,
                return_=float(return_),
                length=len(taken),
                actions=taken,
                cut=cut,
            )


def _environments_at_once(resolved: Resolved) -> int:
    """How many environments an evaluation makes at a time. A simulator of a person's own of which only
    one may run at a time is trained with num_envs=1, and then plays alone here, too.
    """
    is_own = not resolved.game.family and not resolved.game.is_pooled
    return 1 if is_own and resolved.environment.count == 1 else LARGEST_GROUP


class NotFinite(Exception):
    """place: of the environment among those that play; step: of its episode, 0 for the reset."""

    def __init__(self, field: str, value: object, place: int, step: int) -> None:
        super().__init__(f"the {field} {value}, which is not finite,")
        self.place = place
        self.step = step


class Played(NamedTuple):
    """One episode from each seed: the return, the actions [length] or [length, A], and whether it was
    cut at `evaluation_steps`.
    """

    return_: float
    actions: np.ndarray
    cut: bool


def _play(
    acting: Acting, resolved: Resolved, seeds: list[int], sample: bool, watch: Watch
) -> list[Played]:
    """Play one episode from each seed. An environment that has ended stands still until the others
    have.
    """
    longest = resolved.environment.evaluation_steps
    # Every episode has an environment of its own, seeded by its number.
    environments = [make_environment(resolved.game, resolved.environment) for _ in seeds]
    begun = [
        environment.reset(seed=seed) for environment, seed in zip(environments, seeds, strict=True)
    ]
    observations = [one[0] for one in begun]
    infos = [one[1] for one in begun]
    returns = [0.0] * len(seeds)
    lengths = [0] * len(seeds)
    taken = list[np.ndarray]()
    for n, observation in enumerate(observations):
        _check_observation(observation, n, 0)
    playing = list(range(len(seeds)))
    while playing and len(taken) < longest:
        masks = _masks(acting.policy, resolved, infos, playing)
        # Episodes that have ended stay in the batch with their last observation, so that its size
        # never changes.
        actions = acting.act(_filled(np.stack(observations)), sample=sample, masks=masks)
        taken.append(actions[: len(seeds)].copy())
        still = []
        for n in playing:
            lengths[n] += 1
            answer = environments[n].step(actions[n])
            observations[n], reward, terminated, truncated, infos[n] = answer
            returns[n] += float(reward)
            if not math.isfinite(reward):
                raise NotFinite("reward", float(reward), n, lengths[n])
            _check_observation(observations[n], n, lengths[n])
            if not (terminated or truncated):
                still.append(n)
        playing = still
        watch(len(taken), len(playing))
    for environment in environments:
        environment.close()
    return _played(returns, lengths, taken, playing)


def _played(
    returns: Sequence[float],
    lengths: Sequence[int],
    taken: list[np.ndarray],
    cut: Sequence[int],
) -> list[Played]:
    """Divide the actions of all steps, each [N] or [N, A], among the episodes. cut: the places of those
    that have not ended.
    """
    together = np.stack(taken)
    return [
        Played(return_, together[:length, n].copy(), n in cut)
        for n, (return_, length) in enumerate(zip(returns, lengths, strict=True))
    ]


def _masks(
    policy: AnyPolicy,
    resolved: Resolved,
    infos: list[dict[str, Any]],
    playing: list[int],
) -> np.ndarray | None:
    """The masks [LARGEST_GROUP, P] of a policy, where the environments say which actions they
    allow.
    """
    if not any(KEY in info for info in infos) or policy.spaces.continuous:
        return None
    spaces = policy.spaces
    allowed = np.ones((len(infos), policy.spaces.policy_outputs), np.bool_)
    for n in playing:
        found = mask(infos[n], spaces, resolved.game.name)
        allowed[n] = True if found is None else found
    check_some_action(allowed, spaces.choices or (spaces.actions,), "an evaluation")
    return _filled(allowed)


def _check_observation(observation: np.ndarray, place: int, step: int) -> None:
    values = np.asarray(observation)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise NotFinite("observation", values[~np.isfinite(values)][0], place, step)


def _filled(observations: np.ndarray) -> np.ndarray:
    """The first row fills a group that is not full: [N, ...] -> [LARGEST_GROUP, ...]."""
    missing = np.repeat(observations[:1], LARGEST_GROUP - len(observations), axis=0)
    return np.concatenate([observations, missing])


def _play_atari(
    acting: Acting, resolved: Resolved, seeds: list[int], sample: bool, watch: Watch
) -> list[Played]:
    """The same on ale-py's native vector environment; all go on until the last first episode has
    ended.

    Where the game needs it, the first action of every life is FIRE, whatever the policy chose.
    """
    longest = resolved.environment.evaluation_steps
    fires = needs_fire(resolved)
    environments = make_atari(resolved, len(seeds))
    observations, info = reset(environments, np.asarray(seeds))
    lives = np.array(info["lives"])
    # A life begins here: FIRE starts the game.
    is_new = np.ones(len(seeds), np.bool_)
    returns = np.zeros(len(seeds))
    lengths = np.zeros(len(seeds), np.int64)
    playing = np.ones(len(seeds), np.bool_)
    taken = list[np.ndarray]()
    while playing.any() and len(taken) < longest:
        actions = acting.act(_filled(observations), sample=sample)[: len(seeds)]
        if fires:
            actions = np.where(is_new, FIRE, actions)
        taken.append(actions)
        observations, rewards, terminated, truncated, info = environments.step(taken[-1])
        is_new = life_lost(lives, info["lives"])
        lives = np.array(info["lives"])
        # ale-py starts a new episode where one has ended: it is played, and counts for nothing.
        returns += rewards * playing
        lengths += playing
        playing &= ~(terminated | truncated)
        watch(len(taken), int(playing.sum()))
    environments.close()
    # Each environment counts up to the end of its first episode.
    return _played(returns.tolist(), lengths.tolist(), taken, np.flatnonzero(playing).tolist())


class Acting:
    """Plays one episode in each of `count` rows, from their first observations on."""

    def __init__(self, policy: AnyPolicy, count: int) -> None:
        self.policy = policy
        self._begins = np.ones(count, np.bool_)
        self._state = policy.first_state(count) if isinstance(policy, RecurrentPolicy) else ()

    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """As `Policy.act`, for the next observation of every row."""
        allowed = {} if masks is None else {"masks": masks}
        if not isinstance(self.policy, RecurrentPolicy):
            return self.policy.act(observations, sample=sample, **allowed)
        actions, self._state = self.policy.act(
            observations, self._state, self._begins, sample=sample, **allowed
        )
        self._begins = np.zeros_like(self._begins)
        return actions
