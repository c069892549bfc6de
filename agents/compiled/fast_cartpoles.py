"""Rollouts of a PPO training's native CartPoles as machine code (`agents.compiled.cartpoles`)."""

from __future__ import annotations

import logging
from typing import Protocol

import numpy as np
import torch

from agents.compiled.cartpoles import Columns, Physics, Poles, Seeds, roll
from agents.compiled.dense import Floats
from agents.compiled.passes import Layout, Scratch
from agents.environments.normalisation import CLIP, ObservationNormaliser
from agents.environments.training import TrainingEnvironments
from agents.environments.vectors import CartPoles
from agents.experience.rollouts import Rollout
from agents.networks.action_distributions import Actions
from config.resolved import Resolved
from config.seeds import progression

log = logging.getLogger(__name__)

STEPS_TO_COMPARE = 100
"""Of a random policy, whose episodes last 22 on average."""


class Collecting(Protocol):
    """What a training has that collects rollouts."""

    resolved: Resolved
    run: int
    environments: TrainingEnvironments
    rollout: Rollout
    actions: Actions
    action_noise: torch.Generator
    observation_normaliser: ObservationNormaliser | None


def compiled_cartpoles(
    trainer: Collecting, layout: Layout, parameters: Floats, scratch: Scratch
) -> CompiledCartPoles | None:
    """None for other environments, and, with a line in the log, where sine and cosine of this processor's
    machine code are not those that numpy computes.
    """
    if trainer.environments.cartpoles is None:
        return None
    made = CompiledCartPoles(trainer, layout, parameters, scratch)
    if not made.steps_as_gymnasium():
        log.warning("compiled CartPoles do not step as gymnasium's: these go on")
        return None
    return made


class CompiledCartPoles:
    """Steps the environments of a training, with its network's parameters as they are."""

    def __init__(
        self, trainer: Collecting, layout: Layout, parameters: Floats, scratch: Scratch
    ) -> None:
        self._trainer = trainer
        self._layout = layout
        self._parameters = parameters
        self._scratch = scratch
        rewards = trainer.rollout.rewards
        self._final_values = np.zeros(rewards.shape, np.float32)
        self._last_ends = np.zeros(rewards.shape[1], np.int64)

    def fill_rollout(self) -> None:
        """Fill the training's rollout, as `agents.experience.rollouts.collect` does."""
        trainer = self._trainer
        rollout = trainer.rollout
        environments = trainer.environments
        rollout.valid[:] = True
        noise = trainer.actions.noise(tuple(rollout.rewards.shape), trainer.action_noise)
        given = rollout.observations
        columns = Columns(
            rollout.encoded.numpy(), np.zeros((0, 0, 0), np.float32) if given is None else given,
            rollout.policy.numpy(), rollout.values.numpy(), rollout.actions.numpy(),
            rollout.rewards, rollout.terminated.view(np.uint8), rollout.truncated.view(np.uint8),
            self._final_values, self._last_ends,
        )  # fmt: skip
        mean: Floats = np.zeros(0, np.float32)
        inverse_deviation = mean
        clip = 0.0
        if trainer.observation_normaliser is not None:
            mean = trainer.observation_normaliser.mean
            inverse_deviation = trainer.observation_normaliser.inverse_deviation
            clip = CLIP
        self._roll(environments, mean, inverse_deviation, clip, noise.numpy(), columns)
        environments.take_over(columns.actions, self._last_ends)
        cut = rollout.truncated & ~rollout.terminated
        rollout.final_values = {
            (int(t), int(n)): float(self._final_values[t, n]) for t, n in np.argwhere(cut)
        }

    def _roll(
        self, environments: TrainingEnvironments, mean: Floats, inverse_deviation: Floats,
        clip: float, noise: np.ndarray, columns: Columns,
    ) -> None:  # fmt: skip
        made = environments.cartpoles
        assert made is not None and made.state is not None  # noqa: S101 - a training has begun
        experiment = self._trainer.resolved.experiment
        start, stride, first = progression(experiment.seed, self._trainer.run)
        # gymnasium replaces its arrays at each step: they are looked up anew.
        poles = Poles(np.ascontiguousarray(made.state), made.steps, environments.seedings)
        roll(
            self._layout, self._parameters, self._scratch, poles, _physics(made),
            Seeds(int(start), int(stride), first), mean, inverse_deviation, clip, noise, columns,
        )  # fmt: skip
        made.state = poles.state

    def steps_as_gymnasium(self) -> bool:
        """Whether a rollout of new environments, and the same actions one step after the other, lead to the
        same observations, rewards and ends, and to the same next episodes.
        """
        trainer = self._trainer
        ours = TrainingEnvironments(trainer.resolved, trainer.run)
        theirs = TrainingEnvironments(trainer.resolved, trainer.run)
        shape = (STEPS_TO_COMPARE, ours.count)
        noise = trainer.actions.noise(shape, torch.Generator().manual_seed(1)).numpy()
        seen = np.zeros((STEPS_TO_COMPARE + 1, ours.count, 4), np.float32)
        rewards, finals = np.zeros((2, *shape), np.float32)
        terminated, truncated = np.zeros((2, *shape), np.uint8)
        actions = np.zeros(shape, np.int64)
        nothing = np.zeros((0, 0, 0), np.float32)
        empty = np.zeros(0, np.float32)
        columns = Columns(
            seen, nothing, np.zeros((*shape, 2), np.float32), np.zeros(seen.shape[:2], np.float32),
            actions, rewards, terminated, truncated, finals, np.zeros(ours.count, np.int64),
        )  # fmt: skip
        self._roll(ours, empty, empty, 0.0, noise, columns)
        equal = True
        for t in range(STEPS_TO_COMPARE):
            equal = equal and np.array_equal(theirs.observation, seen[t])
            (answer,) = theirs.step(actions[t])
            equal = equal and np.array_equal(answer.reward, rewards[t])
            equal = equal and np.array_equal(answer.terminated, terminated[t])
            equal = equal and np.array_equal(answer.truncated, truncated[t])
        equal = equal and np.array_equal(theirs.observation, seen[-1])
        equal = equal and np.array_equal(theirs.seedings, ours.seedings)
        ours.close()
        theirs.close()
        return equal


def _physics(made: CartPoles) -> Physics:
    numbers = {name: float(getattr(made, name)) for name in Physics._fields[:-2]}
    return Physics(
        **numbers,
        max_episode_steps=int(made.max_episode_steps),
        sutton_barto_reward=bool(made._sutton_barto_reward),
    )
