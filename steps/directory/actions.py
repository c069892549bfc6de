"""The actions of the evaluated episodes that are filmed, exactly as the environment got them.

evaluation-actions.safetensors holds one array for each episode, `episode-0` [length] or [length,
A], and the checksum of all. It is written before evaluation.csv: whoever sees the table finds the
actions of its first episodes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import BadInput
from steps.directory.files import read_bytes, write_atomically
from steps.directory.tensors import DamagedError, read_tensors

if TYPE_CHECKING:
    import numpy as np

LIMIT_BYTES = 2**30
CHECKSUM = "sha256"


def write_actions(path: Path, episodes: Sequence[np.ndarray]) -> None:
    """Replace the file; episodes: the actions of episode 0, 1, …"""
    from safetensors.numpy import save

    tensors = {_name(number): actions for number, actions in enumerate(episodes)}
    write_atomically(path, save(tensors, metadata={CHECKSUM: _checksum(tensors)}))


def read_actions(path: Path, episodes: int) -> list[np.ndarray]:
    """The actions of the first `episodes` episodes.

    Raises `BadInput` for anything else than what was written, and the usual `OSError`s.
    """
    content = read_bytes(path, LIMIT_BYTES)
    try:
        tensors = read_tensors(content)
        if _noted_checksum(content) != _checksum(tensors):
            raise DamagedError("it does not have the checksum that was noted in it")
    except (DamagedError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged ({error}): evaluate makes it") from error
    for number in range(episodes):
        if _name(number) not in tensors:
            held = f"the actions of {len(tensors)} episodes"
            raise BadInput(f"{path} has {held}, not of episode {number}: evaluate makes it")
    return [tensors[_name(number)] for number in range(episodes)]


def _name(number: int) -> str:
    return f"episode-{number}"


def _noted_checksum(content: bytes) -> str:
    header_bytes = int.from_bytes(content[:8], "little")
    return str(json.loads(content[8 : 8 + header_bytes])["__metadata__"][CHECKSUM])


def _checksum(tensors: Mapping[str, np.ndarray]) -> str:
    """Of every name, type, shape and bit."""
    whole = hashlib.sha256()
    for name, array in sorted(tensors.items()):
        whole.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return whole.hexdigest()
