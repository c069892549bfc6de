"""Weights as one buffer, made once per version, whoever asks: a header and the arrays' bytes.

8 bytes      the header's length, little-endian
header       JSON: of every array its type, shape and place
arrays       each from a multiple of 64 bytes on, little-endian, in C order
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.distributed.buffers import Buffers
from agents.distributed.interfaces import Columns, Version, Weights

ALIGNMENT = 64
LENGTH_BYTES = 8
TYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
"""That may travel, by numpy's names."""


class Packer:
    """Writes the arrays of weights; one thread at a time."""

    def __init__(self) -> None:
        self._buffers = Buffers()

    def pack(self, arrays: Columns) -> memoryview:
        """All of it, read-only; it stays as it is for as long as this view, or a part of it, is
        held.
        """
        described, end = dict[str, Any](), 0
        for name, array in arrays.items():
            described[name] = [array.dtype.newbyteorder("<").str, list(array.shape), end]
            end = _aligned(end + array.nbytes)
        header = json.dumps(described).encode()
        begin = _aligned(LENGTH_BYTES + len(header))
        buffer = self._buffers.take(begin + end)
        buffer[:LENGTH_BYTES] = np.frombuffer(
            len(header).to_bytes(LENGTH_BYTES, "little"), np.uint8
        )
        buffer[LENGTH_BYTES : LENGTH_BYTES + len(header)] = np.frombuffer(header, np.uint8)
        for name, array in arrays.items():
            _view(buffer, described[name], begin)[...] = array
        return buffer.data.toreadonly()


def unpack(version: Version, packed: memoryview) -> Weights:
    """What `Packer.pack` wrote; the arrays are read-only views of it. Raises `ValueError` with what
    is wrong.
    """
    seen = np.frombuffer(packed, np.uint8)
    length = int.from_bytes(seen[:LENGTH_BYTES].tobytes(), "little")
    if len(seen) < LENGTH_BYTES + length:
        raise ValueError(f"weights of {len(seen)} bytes have a header of {length}")
    try:
        header = json.loads(seen[LENGTH_BYTES : LENGTH_BYTES + length].tobytes())
        begin = _aligned(LENGTH_BYTES + length)
        arrays = {str(name): _view(seen, described, begin) for name, described in header.items()}
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"weights have no such header: {error!r}") from error
    return Weights(version=version, arrays=arrays)


def prefixed(arrays: Mapping[str, Any], prefix: str) -> Columns:
    """With names that begin so: of several that travel together."""
    return {prefix + name: np.asarray(array) for name, array in arrays.items()}


def named(arrays: Columns, prefix: str) -> Columns:
    """Those whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _view(buffer: np.ndarray, described: list[Any], begin: int) -> np.ndarray:
    """One array in a buffer, where the header says that it is."""
    name, shape, place = described[0], tuple(map(int, described[1])), int(described[2])
    if name not in TYPES or min((0, place, *shape)) < 0:
        raise ValueError(f"weights have an array of {name} {shape} at {place}")
    kind = np.dtype(name)
    first, size = begin + place, math.prod(shape) * kind.itemsize
    if first + size > len(buffer):
        raise ValueError(
            f"weights of {len(buffer)} bytes have an array that ends at {first + size}"
        )
    array: np.ndarray = buffer[first : first + size].view(kind).reshape(shape)
    return array


def _aligned(place: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-place // ALIGNMENT) * ALIGNMENT
