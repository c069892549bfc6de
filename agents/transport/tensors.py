"""Numpy arrays as raw bytes, and weights as chunks of one buffer.

Decoding an array copies nothing, and allocates nothing for bytes that a message claims but does not
hold.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from agents.distributed.protocol import Columns, Spec, Specs, Version
from agents.distributed.weights import Buffers
from agents.transport import learner_pb2 as wire

Reason = Literal["malformed", "columns", "type", "shape", "size", "value"]


class BadMessage(Exception):
    """A message is malformed. reason: the category under which it is counted; the text has the details."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


def pack(columns: Columns) -> list[wire.Tensor]:
    """Encode arrays of any shape, in row-major order."""
    return [
        wire.Tensor(name=name, dtype=_name(array.dtype), shape=array.shape, data=array.tobytes())
        for name, array in columns.items()
    ]


def unpack(tensors: Iterable[wire.Tensor], specs: Specs, most: int) -> Columns:
    """Read-only arrays [B, *spec.shape] of exactly the columns of `specs`, with one B of 1 to `most`
    for all of them.

    Raises `BadMessage`.
    """
    columns: Columns = {}
    count = 0
    for tensor in tensors:
        if tensor.name not in specs or tensor.name in columns:
            raise BadMessage("columns", f"column {tensor.name[:80]!r} is unknown or comes twice")
        columns[tensor.name] = array = unpack_one(tensor, specs[tensor.name], most)
        count = count or len(array)
        if len(array) != count:
            raise BadMessage("shape", f"{tensor.name}: {len(array)} rows where others have {count}")
    if len(columns) < len(specs):
        missing = ", ".join(sorted(specs.keys() - columns.keys()))
        raise BadMessage("columns", f"columns are missing: {missing}")
    return columns


def unpack_one(tensor: wire.Tensor, spec: Spec, most: int) -> np.ndarray:
    """A read-only array [B, *spec.shape], with B from 1 to `most`; raises `BadMessage`."""
    name = tensor.name
    if tensor.dtype != spec.dtype:
        raise BadMessage("type", f"{name} is {tensor.dtype[:20]!r}, not {spec.dtype!r}")
    # One number more than expected shows that there are too many; a message may claim a million of
    # them.
    shape = tuple(tensor.shape[: len(spec.shape) + 2])
    if shape[1:] != spec.shape or not shape or not 1 <= shape[0] <= most:
        expected = (f"1 to {most}", *spec.shape)
        raise BadMessage("shape", f"{name} is {list(shape)}, not [{', '.join(map(str, expected))}]")
    data: Any = tensor.data
    expected_bytes = shape[0] * size_bytes(spec)
    # The size is compared before an array is made, so that nothing is allocated for what a message
    # only claims.
    if len(data) != expected_bytes:
        raise BadMessage("size", f"{name} has {len(data)} bytes, not {expected_bytes}")
    array: np.ndarray = np.ndarray(shape, spec.dtype, buffer=data)
    # If anything is left without the bytes 0 and 1, some byte is no boolean.
    if spec.dtype == "bool" and data.translate(None, b"\0\1"):
        raise BadMessage("value", f"{name} has a byte that is no boolean: undefined in numpy")
    return array


# There are few specs, and every message asks for the sizes of all of them.
@functools.cache
def size_bytes(spec: Spec) -> int:
    """Bytes of one unroll's part of a column."""
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


# numpy builds the name anew at each call, which takes half the time of packing a small array.
@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name


Packed = tuple[Version, memoryview]
"""A version and its packed buffer, as `Receiver.packed_weights` returns them."""
CHUNK_BYTES = 2 * 2**20
"""Measured over a local socket: 40 MB take 5 % less time than in chunks of half or twice the size."""
SMALL_BYTES = 2**16
"""Weights of at most this size travel in one message with what announces them."""
PART = b"\x42"
"""The protobuf tag of field 8 (length-delimited), which holds the bytes in `Chunk` and in `Ack`; a
varint with their number follows.
"""
LONGEST_VARINT = 5
"""Bytes of the varint that holds a message's size."""


class Parts:
    """The messages that carry one version's weights, each encoded once and sent to every actor. Encoding
    them per actor took a sixth of the learner's time to send 40 MB. size: bytes of the buffer.

    Encoded by hand, because protobuf copies the buffer three times and into fresh memory (40 MB: 36 ms
    instead of 3).
    """

    def __init__(self, version: Version, packed: memoryview) -> None:
        self.version = version
        self.size = packed.nbytes
        self.packed = packed
        self._encoded = list[bytes]()
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the messages; safe for several threads, each with its own iterator."""
        return map(self._part, range(-(-self.size // CHUNK_BYTES)))

    def _part(self, number: int) -> bytes:
        with self._lock:
            # Each thread asks for the parts in order, so the next one is always the first that is
            # missing.
            if number == len(self._encoded):
                part = self.packed[number * CHUNK_BYTES :][:CHUNK_BYTES]
                self._encoded.append(b"".join((PART, _varint(part.nbytes), part)))
            return self._encoded[number]


def pack_chunks(parts: Parts) -> Iterator[bytes]:
    """Encode `Chunk`s: the first holds version and size, the others the buffer's parts."""
    head = wire.Chunk(version=wire.Version(**parts.version._asdict()), size=parts.size)
    yield head.SerializeToString()
    yield from parts


def unpack_part(message: bytes) -> memoryview:
    """Decode one part of a buffer without copying it. Raises `BadMessage`."""
    for digits in range(1, LONGEST_VARINT + 1):
        size = len(message) - 1 - digits
        prefix = PART + _varint(max(size, 0))
        if len(prefix) == 1 + digits and message.startswith(prefix):
            return memoryview(message)[len(prefix) :]
    raise BadMessage("malformed", "these bytes are no part of a buffer")


def join_parts(parts: Iterator[memoryview], size: int, buffers: Buffers) -> memoryview:
    """Join parts into a buffer of `size` bytes; raises `BadMessage` if they have another size."""
    packed = buffers.take(size)
    filled = 0
    while filled < size and (part := next(parts, None)) is not None:
        start = filled
        filled = filled + len(part)
        # Too many bytes are counted, for the message of the error, but not stored.
        if filled <= size:
            packed[start:filled] = np.frombuffer(part, np.uint8)
    if filled != size:
        raise BadMessage("size", f"weights of {filled} bytes, not {size}")
    return packed.data.toreadonly()


def _varint(number: int) -> bytes:
    """Encode as a protobuf varint: seven bits a byte, lowest first; the eighth bit marks continuation."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
