"""Tries an environment as training will use it: whatever is wrong with it must not cost a GPU pod.

`steps.directory.elsewhere` does so in a process of its own.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np

from agents.environments.checked import is_strange
from agents.environments.training import TrainingEnvironments
from config.errors import BadInput
from config.resolved import Resolved

STEPS = 200


def needs_a_trial(resolved: Resolved) -> bool:
    """Whether the environment is a stranger's. A board game's rules are tried by `check_playable`."""
    return not resolved.game.is_board and is_strange(resolved.game, resolved.environment)


def try_environment(resolved: Resolved) -> None:
    """Reset with the seeds of two runs, and step until an episode has ended, at most STEPS times, in
    two environments where training has several. Raises `BadInput` for a promise that is broken, and
    what the environment raises.
    """
    settings = resolved.environment.with_count(min(2, resolved.environment.count))
    few = replace(resolved, environment=settings)
    generator = np.random.default_rng(0)
    with contextlib.closing(TrainingEnvironments(few, 1)):
        pass
    with contextlib.closing(TrainingEnvironments(few, 0)) as environments:
        for step in range(STEPS):
            answers = environments.step(_random_actions(environments, generator))
            rewards = np.concatenate([answer.reward for answer in answers])
            if not np.isfinite(rewards).all():
                raise BadInput(
                    f"game {resolved.game.name!r} breaks a promise, rewards are finite numbers: "
                    f"{rewards.tolist()} in step {step + 1}; return finite floats"
                )
            if not np.isfinite(environments.observation).all():
                raise BadInput(
                    f"game {resolved.game.name!r} breaks a promise, observations are finite numbers: "
                    f"one after step {step + 1} is not; return numbers, or bound them by a wrapper"
                )
            if any(len(answer.ended) for answer in answers):
                break


def _random_actions(
    environments: TrainingEnvironments, generator: np.random.Generator
) -> np.ndarray:
    """Actions of a policy that knows nothing, [N] or [N, A], among those that are allowed."""
    spaces = environments.interface
    count = environments.count
    if spaces.continuous:
        return generator.normal(size=(count, spaces.actions)).astype(np.float32)
    scores = generator.random((count, spaces.policy_outputs))
    if environments.masks is not None:
        scores = np.where(environments.masks, scores, -1.0)
    return spaces.best_actions(scores)
