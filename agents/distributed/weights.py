"""Weights as one buffer, made once per version, whoever asks: a header and the arrays' bytes.

8 bytes      the header's length, little-endian
header       JSON: of every array its type, shape and place
arrays       each from a multiple of 64 bytes on, little-endian, in C order
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.distributed.buffers import Buffers
from agents.distributed.interfaces import Columns, Version, Weights

ALIGNMENT = 64
LENGTH_BYTES = 8
TYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
"""That may travel, by numpy's names."""


class _Place(NamedTuple):
    """Of one array: its bytes, from the first array's on."""

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    first: int
    end: int


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
            _view(buffer, _place(described[name]), begin)[...] = array
        return buffer.data.toreadonly()


def unpack(version: Version, packed: memoryview) -> Weights:
    """What `Packer.pack` wrote; the arrays are read-only views of it. Raises `ValueError` with what
    is wrong.
    """
    seen = np.frombuffer(packed, np.uint8)
    length = int.from_bytes(seen[:LENGTH_BYTES].tobytes(), "little")
    if len(seen) < LENGTH_BYTES + length:
        raise ValueError(f"weights of {len(seen)} bytes have a header of {length}")
    places = _places(seen[LENGTH_BYTES : LENGTH_BYTES + length].tobytes())
    begin = _aligned(LENGTH_BYTES + length)
    arrays = {name: _view(seen, place, begin) for name, place in places.items()}
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


@functools.lru_cache(maxsize=2)
def _places(header: bytes) -> dict[str, _Place]:
    """Read once: it is the same for every version of a network's weights."""
    try:
        return {str(name): _place(described) for name, described in json.loads(header).items()}
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"weights have no such header: {error!r}") from error


def _place(described: list[Any]) -> _Place:
    """Where the header says that an array is."""
    name, shape, first = described[0], tuple(map(int, described[1])), int(described[2])
    if name not in TYPES or min((0, first, *shape)) < 0:
        raise ValueError(f"weights have an array of {name} {shape} at {first}")
    kind = np.dtype(name)
    return _Place(kind, shape, first, first + math.prod(shape) * kind.itemsize)


def _view(buffer: np.ndarray, place: _Place, begin: int) -> np.ndarray:
    """One array in a buffer whose first array begins there."""
    first, end = begin + place.first, begin + place.end
    if end > len(buffer):
        raise ValueError(f"weights of {len(buffer)} bytes have an array that ends at {end}")
    array: np.ndarray = buffer[first:end].view(place.kind).reshape(place.shape)
    return array


def _aligned(place: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-place // ALIGNMENT) * ALIGNMENT
