"""A slow reference of the replay: a list of everything that ever happened in random environments.

A `World` plays N environments of its own making and tells a `Replay` what the training's
environments would tell it; `transition` then walks through its list, step by step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.environments.training import Transition
from agents.experience.replay import Replay, ReplaySettings
from agents.spaces import Interface

ACTIONS = 5
FRAMES = 3
"""In a stack."""


@dataclass
class Step:
    """What happened in one environment; after: the observation that the action led to, and what is
    allowed there, in an ended episode its last one; lost: nobody knows.
    """

    observation: np.ndarray
    allowed: np.ndarray
    forced: bool
    action: int
    reward: float
    terminated: bool
    truncated: bool
    life_lost: bool
    after: np.ndarray
    allowed_after: np.ndarray
    lost: bool = False


@dataclass
class Expected:
    """One transition as the list has it."""

    observation: np.ndarray
    action: int
    reward: float
    discount: float
    after: np.ndarray
    allowed_after: np.ndarray
    valid: bool


class World:
    """N environments that are told apart by every number they show. groups: how they step
    together; endings: probabilities of a termination, a truncation and a lost life.
    """

    def __init__(
        self,
        count: int,
        *,
        stacked: bool = False,
        masked: bool = False,
        halves: bool = False,
        endings: tuple[float, float, float] = (0.1, 0.1, 0.1),
        seed: int = 0,
    ) -> None:
        self.count, self.stacked, self.masked, self.endings = count, stacked, masked, endings
        self.generator = np.random.default_rng(seed)
        middle = -(-count // 2)
        self.groups = [slice(0, middle), slice(middle, count)] if halves else [slice(0, count)]
        self.history: list[list[Step]] = [[] for _ in range(count)]
        self.shown = 0
        self.now = [self._first() for _ in range(count)]
        self.allowed = self.generator.random((count, ACTIONS)) < 0.6
        self.forced = self.generator.random(count) < 0.2

    def spaces(self) -> Interface:
        shape = self.now[0].shape
        return Interface(
            observation_shape=shape, image=self.stacked, channels_last=False, actions=ACTIONS,
            discrete=True, masked=self.masked,
        )  # fmt: skip

    def replay(self, *, slots: int, n_step: int, clip: bool = False) -> Replay:
        settings = ReplaySettings(
            capacity=slots * self.count + self.count - 1, n_step=n_step, discount=0.9,
            stacked=self.stacked, clip_rewards=clip,
        )  # fmt: skip
        return Replay(self.spaces(), np.stack(self.now), settings)

    def step(self, *replays: Replay) -> None:
        """One step of all environments, told to these replays."""
        actions = self.generator.integers(ACTIONS, size=self.count).astype(np.uint8)
        masks = self.allowed.copy() if self.masked else None
        for replay in replays:
            replay.see(np.stack(self.now), actions, self.forced, masks)
        steps = [self._stepped(n, int(actions[n])) for n in range(self.count)]
        for rows in self.groups:
            for replay in replays:
                replay.answer(rows, self._answer(steps[rows]))
        for n, step in enumerate(steps):
            self.history[n].append(step)
            ended = step.terminated or step.truncated
            self.now[n] = self._first() if ended else step.after
            self.allowed[n] = self._mask() if ended else step.allowed_after
        self.forced = self.generator.random(self.count) < 0.2

    def lose(self, environments: np.ndarray, *replays: Replay) -> None:
        """Their episodes in flight are lost, and others begin."""
        for replay in replays:
            replay.lose(environments)
        for n in np.flatnonzero(environments):
            last = self.history[n][-1]
            ended = last.terminated or last.truncated or last.life_lost
            last.lost = not ended
            self.now[n], self.allowed[n] = self._first(), self._mask()

    def _stepped(self, n: int, action: int) -> Step:
        terminated, truncated, life_lost = self.generator.random(3) < self.endings
        return Step(
            self.now[n], self.allowed[n].copy(), bool(self.forced[n]), action,
            float(np.float32(self.generator.normal() * 2)),
            bool(terminated), bool(truncated), bool(life_lost), self._next(n), self._mask(),
        )  # fmt: skip

    def _answer(self, steps: list[Step]) -> Transition:
        terminated, truncated, lost = (
            np.array([getattr(step, name) for step in steps])
            for name in ("terminated", "truncated", "life_lost")
        )
        (ended,) = np.nonzero(terminated | truncated)
        final_masks = (
            np.array([steps[place].allowed_after for place in ended]) if len(ended) else None
        )
        return Transition(
            np.stack([step.after for step in steps]),
            np.array([step.reward for step in steps]),
            terminated, truncated, lost if self.endings[2] else None, ended,
            final_masks if self.masked else None,
        )  # fmt: skip

    def _frame(self) -> np.ndarray:
        """Like no other one."""
        self.shown += 1
        if self.stacked:
            return np.array([[self.shown % 251, self.shown // 251]], np.uint8)
        return np.array([self.shown, -self.shown], np.float32)

    def _first(self) -> np.ndarray:
        """A whole stack is new where an episode begins."""
        if not self.stacked:
            return self._frame()
        return np.stack([self._frame() for _ in range(FRAMES)])

    def _next(self, n: int) -> np.ndarray:
        if not self.stacked:
            return self._frame()
        return np.concatenate([self.now[n][1:], self._frame()[None]])

    def _mask(self) -> np.ndarray:
        return self.generator.random(ACTIONS) < 0.6


def transition(world: World, t: int, n: int, settings: ReplaySettings) -> Expected:
    """n_step of them from step t of environment n on, by the definition."""
    first = world.history[n][t]
    total, weight, valid = 0.0, 1.0, not first.forced
    for step in world.history[n][t : t + settings.n_step]:
        total += weight * (min(1, max(-1, step.reward)) if settings.clip_rewards else step.reward)
        weight *= settings.discount
        valid = valid and not step.lost
        if step.terminated or step.life_lost:
            weight = 0.0
        if step.terminated or step.life_lost or step.truncated or step.lost:
            break
    return Expected(
        first.observation, first.action, total, weight, step.after, step.allowed_after, valid
    )
