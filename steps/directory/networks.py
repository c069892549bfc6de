"""The networks of self-play: `networks/<generation>/`, what plays now and what is kept of before.

Each is a directory like a checkpoint's, complete and with checksums, or not there. The trainer writes
one after every generation, and leaves those of its schedule; workers play by the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from steps.directory import checkpoints
from steps.directory.files import read_bytes, remove, remove_temporaries
from steps.directory.layout import RunDirectory
from steps.directory.tensors import DamagedError

if TYPE_CHECKING:
    from agents.interfaces import State

NEWEST = 2
"""So many of the newest stay besides those that are kept: somebody may be reading one."""


def kept_generations(run: RunDirectory) -> list[int]:
    """The generations whose networks are there, ascending; 0 is the one before any learning."""
    return run.generations()


def read_generation(run: RunDirectory, generation: int) -> State:
    """The state that `agents.selfplay.policy.load` takes; raises `BadInput` for one that is not there
    or damaged.
    """
    try:
        return checkpoints.load(run.network(generation)).state
    except DamagedError as error:
        raise BadInput(f"{run.network(generation)} cannot be read: {error}") from error


def name_of(run: RunDirectory, generation: int) -> bytes | None:
    """What differs between two networks that were called so, one after the other; None where there is
    none.
    """
    try:
        return read_bytes(run.network(generation) / checkpoints.MANIFEST)
    except (OSError, BadInput):
        return None


def write_generation(
    run: RunDirectory, generation: int, state: State, identity: Mapping[str, Any]
) -> None:
    """Make it appear; raises `ExperimentError` when the disk is full."""
    packed = checkpoints.pack(
        step=generation, state=state, identity=identity, record={"epoch": generation}
    )
    checkpoints.write_directory(run.network(generation), packed)


def forget(run: RunDirectory, newest: int, is_kept: Callable[[int], bool]) -> None:
    """Remove what is not kept, but the newest few."""
    for generation in run.generations():
        if generation <= newest - NEWEST and not is_kept(generation):
            remove(run.network(generation))


def discard_after(run: RunDirectory, generation: int) -> None:
    """Remove what a dead attempt wrote after the checkpoint that this one goes on from; called by the
    one writer at its start.
    """
    remove_temporaries(run.networks)
    for newer in [present for present in run.generations() if present > generation]:
        remove(run.network(newer))
