"""Atari games by ale-py's native vector environment: how they are made, and what is particular to
them; knows no torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from agents.environments.games import make_or_refuse
from config.resolved import Resolved

FIRE = 1
"""The index of FIRE, both in the full action set and among the own actions of every game that has
it."""


def make_atari(
    resolved: Resolved, count: int, threads: int | None = None, **options: Any
) -> VectorEnv[Any, Any, Any]:
    """ale-py's native vector environment: 84 x 84 grey, the last 4 frames [4, 84, 84], rewards
    never clipped. threads: on which it emulates; without it as many as torch's.
    """
    from ale_py.vector_env import AtariVectorEnv

    settings = resolved.environment
    arguments = {
        "repeat_action_probability": settings.sticky_actions,
        "full_action_space": settings.full_action_set,
        "noop_max": settings.noop_max,
        "num_threads": min(threads or resolved.experiment.threads, count),
        # ale-py clips by default. Returns are recorded in the game's own rewards, so the learner
        # clips.
        "reward_clipping": False,
    }
    # Later entries win: the game's own options, those of the user, and those of the caller.
    arguments |= {**resolved.game.options, **settings.options, **options}
    environments: VectorEnv[Any, Any, Any] = make_or_refuse(
        resolved.game, lambda: AtariVectorEnv(resolved.game.name, count, **arguments)
    )
    return environments


def needs_fire(resolved: Resolved) -> bool:
    """Whether FIRE starts this game, after a reset and after every lost life: the game's own
    actions have it.

    Without it a policy can stand there until the time limit; baselines, Stable-Baselines3 and
    CleanRL press it, too.
    """
    if not resolved.game.is_atari or not resolved.environment.fire_after_life_loss:
        return False
    import ale_py

    environments: Any = make_atari(resolved, 1, full_action_space=False)
    try:
        return ale_py.Action.FIRE in environments.ale.get_action_set()
    finally:
        environments.close()


def life_lost(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Lives before and after a step, [N] -> bool [N]; some games show 0 a while before they end:
    that end counts, and once.
    """
    lost: np.ndarray = (after > 0) & (after < before)
    return lost
