"""What workers of self-play have played: `positions/`, shards of whole games, each written once.

    positions/3-2-5f0c9a1e-00000017-9b1f6c2a0d4e7788.safetensors
              worker 3, its start 2 with a name of its own, shard 17 of that, the start of its checksum
    positions/taken.json      how many shards of each start the trainer has taken, written by it alone

A shard appears at once and is never changed. The trainer takes those of one start in order, and counts
them in its checkpoints: so none is counted twice, whatever is killed. Shards that both kept checkpoints
count are removed; what was in them is in the trainer's stream (`steps.directory.streams`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from steps.directory.files import read_bytes, remove_temporaries, write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.tensors import DamagedError, read_tensors

if TYPE_CHECKING:
    import numpy as np

NAME = re.compile(r"(?P<start>(?P<worker>\d{1,4})-\d{1,6}-[0-9a-f]{8})-(?P<number>\d{8})-(?P<sum>[0-9a-f]{16})\.safetensors")  # fmt: skip
LARGEST_BYTES = 2**30
IDENTITY = "identity"
"""The column that says which experiment the games belong to."""


@dataclass(frozen=True, kw_only=True)
class ShardName:
    """worker: its number; start: which of its processes; number: from 0, of that."""

    worker: int
    start: str
    number: int
    file: str


def shards(run: RunDirectory) -> list[ShardName]:
    """Those that are there, of each start in order, and of all starts by turns."""
    try:
        names = [path.name for path in run.positions.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [match for match in map(NAME.fullmatch, names) if match is not None]
    listed = [
        ShardName(
            worker=int(match["worker"]), start=match["start"], number=int(match["number"]),
            file=match[0],
        )
        for match in found
    ]  # fmt: skip
    return sorted(listed, key=lambda one: (one.number, one.start))


def write_shard(
    run: RunDirectory, start: str, number: int, columns: Mapping[str, np.ndarray], identity: str
) -> None:
    """Let a shard appear; raises `ExperimentError` when the disk is full."""
    import numpy as np
    from safetensors.numpy import save

    belongs = np.frombuffer(bytes.fromhex(identity), np.uint8)
    content = save({**columns, IDENTITY: belongs})
    total = hashlib.sha256(content).hexdigest()[:16]
    run.positions.mkdir(parents=True, exist_ok=True)
    write_atomically(run.positions / f"{start}-{number:08d}-{total}.safetensors", content)


def read_shard(run: RunDirectory, shard: ShardName, identity: str) -> dict[str, Any]:
    """Its columns; raises `DamagedError` for what is not what was written, or belongs to another
    experiment.
    """
    try:
        content = read_bytes(run.positions / shard.file, LARGEST_BYTES)
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
    """How many shards of each start need not be waited for any more."""
    run.positions.mkdir(parents=True, exist_ok=True)
    write_atomically(run.positions / "taken.json", json.dumps(dict(taken)).encode())


def taken_of(run: RunDirectory, start: str) -> int:
    """How many shards of a start the trainer has taken; 0 where nobody knows."""
    try:
        return int(json.loads(read_bytes(run.positions / "taken.json")).get(start, 0))
    except (OSError, BadInput, ValueError, TypeError, AttributeError):
        return 0


def forget(run: RunDirectory, taken: Mapping[str, int]) -> None:
    """Remove the shards before these numbers of each start."""
    for shard in shards(run):
        if shard.number < taken.get(shard.start, 0):
            (run.positions / shard.file).unlink(missing_ok=True)


def remove_unsaid(run: RunDirectory) -> None:
    """Remove what a dead trainer has half written; called at its start."""
    remove_temporaries(run.positions, of="taken")


def clean(run: RunDirectory, worker: int) -> None:
    """Remove what dead processes of a worker have half written; called at its start."""
    remove_temporaries(run.positions, of=f"{worker}-")
