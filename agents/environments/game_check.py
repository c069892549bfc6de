"""Check a game before a training begins: its spaces, whether the algorithm can play it, and whether
the replay fits into memory.

A replay grows for hours, and a process that the system kills for its memory prints no reason; so the
size is checked at the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from config.imports import imported
from config.memory import at_least, in_bytes, shown
from config.parameters import declared

if TYPE_CHECKING:
    from agents.interfaces import ReplayBytes
    from config.resolve import Resolved

import numpy as np

from agents.environments.vectors import make_environments
from agents.spaces import Interface, interface
from config.algorithms import ALGORITHMS
from config.games import check_installed
from config.resolve import check_family

BESIDES_BYTES = 2**29
"""Memory of a training without its replay: torch, a small network, classic control (0.4 to 0.7 GiB
resident, part of which are files that other processes share).
"""


def check_replay(
    resolved: Resolved, spaces: Interface, dtype: np.dtype[Any], memory_bytes: int | None
) -> None:
    """Refuse a replay that is too large; raises `BadInput`. dtype: of observations; memory_bytes:
    what the training has, None where it has not begun: what `training_memory` asks for.
    """
    path = resolved.descriptor.replay_bytes
    if not path:
        return
    count: ReplayBytes = imported(path, f"the replay's size of {resolved.algorithm!r}")
    replay_bytes = count(resolved, spaces, dtype)
    asked = resolved.experiment.training_memory
    needed = replay_bytes + BESIDES_BYTES
    available = in_bytes(asked) if memory_bytes is None else memory_bytes
    if needed <= available:
        return
    takes = (
        f"the replay of {resolved.algorithm} on {resolved.game.name} takes {shown(replay_bytes)}, "
        f"the rest of its training about {shown(BESIDES_BYTES)}"
    )
    if memory_bytes is None:
        raise BadInput(
            f"parameter 'training_memory' cannot be {asked}: {takes}; "
            f"allowed: at least {at_least(needed)}, or a smaller {_size_of_replay(resolved)}"
        )
    raise BadInput(
        f"{takes}, and there are {shown(memory_bytes)} of memory here (training_memory={asked}); "
        f"allowed: a machine that has {at_least(needed)} with as much training_memory, or a smaller {_size_of_replay(resolved)}"
    )


def _size_of_replay(resolved: Resolved) -> str:
    """The name of the hyperparameter for the replay's size."""
    names = declared(resolved.descriptor.hyperparameters)
    return next((name for name in names if name.startswith("replay_")), "replay")


def check_game(resolved: Resolved, memory_bytes: int | None = None) -> Interface:
    """Make the game once and look at its spaces; raises `BadInput` naming what is not supported, what
    the algorithm cannot play, or what it cannot remember: see `check_replay` for memory_bytes.
    """
    check_installed(resolved.game)
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
    check_replay(resolved, spaces, dtype, memory_bytes)
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
