"""Check a game before a training begins: its spaces, whether the algorithm can play it, and whether
its experience fits into memory.

A replay grows for hours, and a process that the system kills for its memory prints no reason; so the
size is checked at the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from config.imports import imported
from config.memory import at_least, in_bytes, shown
from config.parameters import cannot_be, declared

if TYPE_CHECKING:
    from agents.interfaces import ExperienceBytes
    from config.resolved import Resolved

import numpy as np

from agents.environments.vectors import make_environments
from agents.spaces import Interface, interface
from config.algorithms import ALGORITHMS
from config.rules import check_family
from config.suites import check_installed

BESIDES_BYTES = 2**29
"""Memory of a training without its replay: torch, a small network, classic control (0.4 to 0.7 GiB
resident, part of which are files that other processes share).
"""


def check_memory(
    resolved: Resolved, spaces: Interface, dtype: np.dtype[Any], memory_bytes: int | None
) -> None:
    """Refuse a replay or a rollout that is too large; raises `BadInput`. dtype: of observations;
    memory_bytes: what the training has, None where it has not begun: what `training_memory` asks for.
    """
    descriptor = resolved.descriptor
    path = descriptor.replay_bytes or descriptor.rollout_bytes
    if not path:
        return
    kind = "replay" if descriptor.replay_bytes else "rollout"
    count: ExperienceBytes = imported(path, f"the {kind}'s size of {resolved.algorithm!r}")
    taken_bytes = count(resolved, spaces, dtype)
    if kind == "rollout" and taken_bytes < BESIDES_BYTES:
        # Then it decides nothing, and the rest is an estimate, on which no training is refused.
        return
    asked = resolved.experiment.training_memory
    needed = taken_bytes + BESIDES_BYTES
    available = in_bytes(asked) if memory_bytes is None else memory_bytes
    if needed <= available:
        return
    takes = (
        f"the {kind} of {resolved.algorithm} on {resolved.game.name} takes {shown(taken_bytes)}, "
        f"the rest of its training about {shown(BESIDES_BYTES)}"
    )
    smaller = f"a smaller {_that_sizes(kind, resolved)}"
    if memory_bytes is None:
        raise cannot_be(
            "training_memory",
            asked,
            because=takes,
            allowed=f"at least {at_least(needed)}, or {smaller}",
        )
    raise BadInput(
        f"{takes}, and there are {shown(memory_bytes)} of memory here (training_memory={asked}); "
        f"allowed: a machine that has {at_least(needed)} with as much training_memory, or {smaller}"
    )


def _that_sizes(kind: str, resolved: Resolved) -> str:
    """The name of the hyperparameter for the size of the replay or the rollout."""
    names = declared(resolved.descriptor.hyperparameters)
    prefixes = ("replay_",) if kind == "replay" else ("rollout_", "batch_size")
    return next((name for name in names if name.startswith(prefixes)), kind)


def check_game(resolved: Resolved, memory_bytes: int | None = None) -> Interface:
    """Make the game once and look at its spaces; raises `BadInput` naming what is not supported, what
    the algorithm cannot play, or what it cannot remember: see `check_memory` for memory_bytes.
    """
    check_installed(resolved.game.name, resolved.game.id)
    environments = make_environments(resolved, 1)
    try:
        spaces = interface(
            resolved.game.name,
            environments.single_observation_space,
            environments.single_action_space,
        )
        dtype = np.dtype(environments.single_observation_space.dtype)
    finally:
        environments.close()
    _check_algorithm(resolved, spaces)
    check_memory(resolved, spaces, dtype, memory_bytes)
    return spaces


def _check_algorithm(resolved: Resolved, spaces: Interface) -> None:
    """Refuse, with one line of `BadInput`, an algorithm that cannot play this game, and one of a
    person's own whose code is not there; and a network that breaks its promises.
    """
    check_family(resolved, spaces.family)
    algorithm = resolved.descriptor
    if algorithm.bounded_actions and spaces.continuous and not spaces.bounded:
        raise BadInput(
            f"{resolved.algorithm} cannot play {resolved.game.name}: an action of the game has no "
            f"bounds; {algorithm.name} plays games whose actions have a least and a largest value"
        )
    if resolved.algorithm not in ALGORITHMS:
        imported(algorithm.trainer, f"the trainer of {resolved.algorithm!r}")
        imported(algorithm.policy, f"the policy of {resolved.algorithm!r}")
    if resolved.network is not None:
        # Imported here, because checks of other games need no torch.
        from agents.networks.own import encoded_shape, make_torso

        make_torso(resolved.network, encoded_shape(spaces), may_remember=algorithm.remembers)
