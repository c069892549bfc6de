"""Arrays in safetensors files, and the nested state that they are taken out of.

numpy and safetensors are imported only where arrays are really read or written, so that other steps
can look at files without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TENSORS = "tensors.safetensors"
HEADER_LIMIT_BYTES = 8 * 2**20
TENSOR_KEY = "$tensor"


class DamagedError(Exception):
    """What was read is not what was written; of checkpoints, the one before may be."""


def without_tensors(node: Any, path: str, tensors: dict[str, Any]) -> Any:
    """The tree with `{"$tensor": name}` in place of every array; the arrays go into `tensors`."""
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
    """What `without_tensors` was given."""
    if isinstance(node, dict):
        if set(node) == {TENSOR_KEY}:
            return tensors[node[TENSOR_KEY]]
        return {key: with_tensors(value, tensors) for key, value in node.items()}
    return node


def read_tensors(content: bytes, name: str = TENSORS) -> dict[str, Any]:
    """Tensors with a header of bounded size: the library checks shapes and offsets against the size
    of the file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_safetensors

    header_bytes = int.from_bytes(content[:8], "little")
    if header_bytes > min(HEADER_LIMIT_BYTES, len(content)):
        raise DamagedError(f"{name} claims a header of {header_bytes} bytes")
    try:
        return {key: array.copy() for key, array in from_safetensors(content).items()}
    except (SafetensorError, KeyError) as error:
        raise DamagedError(f"{name}: {error}") from error
