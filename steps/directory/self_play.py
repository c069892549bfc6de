"""The files that the trainer and the workers of self-play exchange in the run's directory.

    positions/3-2-5f0c9a1e-00000017-9b1f6c2a0d4e7788.safetensors
              worker 3, attempt 2 and its random name, shard 17, the first digits of its SHA-256
    positions/taken.json      how many shards of each worker process the trainer has taken
    networks/<generation>/    the newest networks, and those that the schedule keeps

Workers write shards: whole games, each shard written once, visible at once and never changed. The
trainer takes the shards of one worker process in order and counts them in its checkpoints, so a kill
makes it count none twice. A shard that both kept checkpoints count is removed; its games are by then
in the trainer's stream (`steps.directory.segments`).

The trainer writes a network after every generation. Each is a directory like a checkpoint's: complete
and with checksums, or absent. Workers play with the newest network.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from steps.directory import checkpoints
from steps.directory.arrays import DamagedError, read_tensors
from steps.directory.files import read_bytes, remove, remove_temporaries, write_atomically
from steps.directory.layout import RunDirectory

if TYPE_CHECKING:
    import numpy as np

    from agents.interfaces import State

SHARD_NAME = re.compile(r"(?P<start>(?P<worker>\d{1,4})-\d{1,6}-[0-9a-f]{8})-(?P<number>\d{8})-(?P<sum>[0-9a-f]{16})\.safetensors")  # fmt: skip
SHARD_LIMIT_BYTES = 2**30
IDENTITY = "identity"
"""The column with the identity of the experiment that the games belong to."""


@dataclass(frozen=True, kw_only=True)
class ShardName:
    """The name of a shard. worker: its number. start: which of its processes. number: counts this
    process's shards from 0.
    """

    worker: int
    start: str
    number: int
    file: str


def shards(run: RunDirectory) -> list[ShardName]:
    """The existing shards: those of one start in order, and those of all starts by turns."""
    try:
        names = [path.name for path in run.positions.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [match for match in map(SHARD_NAME.fullmatch, names) if match is not None]
    listed = [
        ShardName(
            worker=int(match["worker"]), start=match["start"], number=int(match["number"]),
            file=match[0],
        )
        for match in found
    ]  # fmt: skip
    # By number first, so that no worker's games wait until all of another's are taken.
    return sorted(listed, key=lambda one: (one.number, one.start))


def write_shard(
    run: RunDirectory, start: str, number: int, columns: Mapping[str, np.ndarray], identity: str
) -> None:
    """Write a shard so that it appears as a whole. Raises `ExperimentError` if the disk is full."""
    import numpy as np
    from safetensors.numpy import save

    belongs = np.frombuffer(bytes.fromhex(identity), np.uint8)
    content = save({**columns, IDENTITY: belongs})
    total = hashlib.sha256(content).hexdigest()[:16]
    run.positions.mkdir(parents=True, exist_ok=True)
    write_atomically(run.positions / f"{start}-{number:08d}-{total}.safetensors", content)


def read_shard(run: RunDirectory, shard: ShardName, identity: str) -> dict[str, Any]:
    """The columns of a shard. Raises `DamagedError` if it is damaged or belongs to another
    experiment.
    """
    try:
        content = read_bytes(run.positions / shard.file, SHARD_LIMIT_BYTES)
    except (OSError, BadInput) as error:
        raise DamagedError(str(error)) from error
    if hashlib.sha256(content).hexdigest()[:16] not in shard.file:
        raise DamagedError("it is not what was written there")
    columns = read_tensors(content, shard.file)
    belongs = columns.pop(IDENTITY, None)
    if belongs is None or belongs.tobytes().hex() != identity:
        raise DamagedError("it belongs to another experiment")
    return columns


def write_taken(run: RunDirectory, taken: Mapping[str, int]) -> None:
    """Write how many shards of each start the trainer has taken."""
    run.positions.mkdir(parents=True, exist_ok=True)
    write_atomically(run.positions / "taken.json", json.dumps(dict(taken)).encode())


def taken_of(run: RunDirectory, start: str) -> int:
    """How many shards of a start the trainer has taken; 0 if that is not known."""
    try:
        return int(json.loads(read_bytes(run.positions / "taken.json")).get(start, 0))
    except (OSError, BadInput, ValueError, TypeError, AttributeError):
        return 0


def forget_shards(run: RunDirectory, taken: Mapping[str, int]) -> None:
    """Remove the shards before these numbers of each start."""
    for shard in shards(run):
        if shard.number < taken.get(shard.start, 0):
            (run.positions / shard.file).unlink(missing_ok=True)


def remove_temporary_taken(run: RunDirectory) -> None:
    """Remove what a dead trainer left half written. Called when the trainer starts."""
    remove_temporaries(run.positions, of="taken")


def remove_temporary_shards(run: RunDirectory, worker: int) -> None:
    """Remove what dead processes of a worker left half written. Called when the worker starts."""
    remove_temporaries(run.positions, of=f"{worker}-")


NEWEST_NETWORKS = 2
"""Number of newest networks that stay besides those that are kept, because somebody may be reading
one.
"""


def kept_generations(run: RunDirectory) -> list[int]:
    """The generations whose networks exist, ascending. 0 is the network before any learning."""
    return run.generations()


def read_generation(run: RunDirectory, generation: int) -> State:
    """The state that `agents.selfplay.policy.load` takes. Raises `BadInput` for a missing or
    damaged network.
    """
    try:
        return checkpoints.load(run.network(generation)).state
    except DamagedError as error:
        raise BadInput(f"{run.network(generation)} cannot be read: {error}") from error


def manifest_of(run: RunDirectory, generation: int) -> bytes | None:
    """A text that distinguishes two networks written under the same generation; None if there is
    none.
    """
    try:
        return read_bytes(run.network(generation) / checkpoints.MANIFEST)
    except (OSError, BadInput):
        return None


def write_generation(
    run: RunDirectory, generation: int, state: State, identity: Mapping[str, Any]
) -> None:
    """Write a network so that it appears as a whole. Raises `ExperimentError` if the disk is full."""
    packed = checkpoints.pack(
        step=generation, state=state, identity=identity, record={"epoch": generation}
    )
    checkpoints.write_directory(run.network(generation), packed)


def forget_networks(run: RunDirectory, newest: int, is_kept: Callable[[int], bool]) -> None:
    """Remove the networks that are not kept, except the newest few."""
    for generation in run.generations():
        if generation <= newest - NEWEST_NETWORKS and not is_kept(generation):
            remove(run.network(generation))


def discard_networks_after(run: RunDirectory, generation: int) -> None:
    """Remove networks that a dead attempt wrote after the checkpoint from which this one continues.
    Called by their only writer when it starts.
    """
    remove_temporaries(run.networks)
    for newer in [present for present in run.generations() if present > generation]:
        remove(run.network(newer))
