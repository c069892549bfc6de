"""Whether a training's replay fits into the memory that the training gets: asked before it starts,
because a replay grows for hours, and a process that is killed for it says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from config.imports import imported
from config.memory import at_least, in_bytes, shown
from config.parameters import declared

if TYPE_CHECKING:
    import numpy as np

    from agents.environments.spaces import Interface
    from agents.interfaces import ReplayBytes
    from config.resolve import Resolved

BESIDES_BYTES = 2**29
"""What a training takes without its replay: torch, a small network, classic control (0.4 to 0.7 GiB
resident, of which a part are files that others use, too)."""


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
    asked, needed = resolved.experiment.training_memory, replay_bytes + BESIDES_BYTES
    if needed <= (in_bytes(asked) if memory_bytes is None else memory_bytes):
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
    """What the algorithm calls it."""
    names = declared(resolved.descriptor.hyperparameters)
    return next((name for name in names if name.startswith("replay_")), "replay")
