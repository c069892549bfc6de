"""Arrays in safetensors files: those of checkpoints and segments, and the actions of filmed episodes.

numpy and safetensors are imported only where arrays are read or written, so that other steps can
list and check files without loading them.

evaluation-actions.safetensors holds the actions of each filmed episode, exactly as the environment
received them: an array `episode-<n>` of shape [length] or [length, A], and a checksum of all arrays.
It is written before evaluation.csv, so a reader that finds the table also finds these actions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from steps.directory.files import read_bytes, write_atomically

if TYPE_CHECKING:
    import numpy as np

TENSORS = "tensors.safetensors"
HEADER_LIMIT_BYTES = 8 * 2**20
TENSOR_KEY = "$tensor"


class DamagedError(Exception):
    """A file does not contain what was written. For a checkpoint, an older one may still be intact."""


def without_tensors(node: Any, path: str, tensors: dict[str, Any]) -> Any:
    """Replace every array in the tree by `{"$tensor": name}` and put the arrays into `tensors`."""
    import numpy as np

    if isinstance(node, np.ndarray):
        tensors[path] = node
        return {TENSOR_KEY: path}
    if isinstance(node, Mapping):
        for key in node:
            if not isinstance(key, str) or key == TENSOR_KEY:
                raise TypeError(f"state has the key {key!r} at {path!r}; keys are text")
        return {
            key: without_tensors(value, f"{path}/{key}" if path else key, tensors)
            for key, value in node.items()
        }
    if isinstance(node, np.generic):
        return node.item()
    return node


def with_tensors(node: Any, tensors: Mapping[str, Any]) -> Any:
    """Undo `without_tensors`."""
    if isinstance(node, dict):
        if set(node) == {TENSOR_KEY}:
            return tensors[node[TENSOR_KEY]]
        return {key: with_tensors(value, tensors) for key, value in node.items()}
    return node


def read_tensors(content: bytes, name: str = TENSORS) -> dict[str, Any]:
    """Read tensors whose header has a bounded size. The library checks shapes and offsets against
    the size of the file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_safetensors

    # A damaged header could claim any size: it is refused before the library parses it.
    header_bytes = int.from_bytes(content[:8], "little")
    if header_bytes > min(HEADER_LIMIT_BYTES, len(content)):
        raise DamagedError(f"{name} claims a header of {header_bytes} bytes")
    try:
        # Copied, because the library's arrays are views into `content`, which they would keep alive.
        return {key: array.copy() for key, array in from_safetensors(content).items()}
    except (SafetensorError, KeyError) as error:
        raise DamagedError(f"{name}: {error}") from error


ACTIONS_LIMIT_BYTES = 2**30
CHECKSUM = "sha256"


def write_actions(path: Path, episodes: Sequence[np.ndarray]) -> None:
    """Replace the file. episodes: the actions of episode 0, 1, …"""
    from safetensors.numpy import save

    tensors = {_episode_name(number): actions for number, actions in enumerate(episodes)}
    write_atomically(path, save(tensors, metadata={CHECKSUM: _arrays_checksum(tensors)}))


def read_actions(path: Path, episodes: int) -> list[np.ndarray]:
    """The actions of the first `episodes` episodes.

    Raises `BadInput` for a damaged file, and the usual `OSError`s.
    """
    content = read_bytes(path, ACTIONS_LIMIT_BYTES)
    try:
        tensors = read_tensors(content)
        if _noted_checksum(content) != _arrays_checksum(tensors):
            raise DamagedError("it does not have the checksum that was noted in it")
    except (DamagedError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged ({error}): evaluate makes it") from error
    for number in range(episodes):
        if _episode_name(number) not in tensors:
            held = f"the actions of {len(tensors)} episodes"
            raise BadInput(f"{path} has {held}, not of episode {number}: evaluate makes it")
    return [tensors[_episode_name(number)] for number in range(episodes)]


def _episode_name(number: int) -> str:
    return f"episode-{number}"


def _noted_checksum(content: bytes) -> str:
    header_bytes = int.from_bytes(content[:8], "little")
    return str(json.loads(content[8 : 8 + header_bytes])["__metadata__"][CHECKSUM])


def _arrays_checksum(tensors: Mapping[str, np.ndarray]) -> str:
    """A checksum over every name, type, shape and bit."""
    whole = hashlib.sha256()
    for name, array in sorted(tensors.items()):
        whole.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return whole.hexdigest()
