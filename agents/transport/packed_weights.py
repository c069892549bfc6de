"""Weights as they travel: the packed buffer of `agents.distributed.weights` in parts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from agents.distributed.buffers import Buffers
from agents.distributed.interfaces import Version
from agents.transport import learner_pb2 as wire
from agents.transport.tensors import BadMessage

Packed = tuple[Version, memoryview]
"""Weights, as `Receiver.packed_weights` gives them."""
CHUNK_BYTES = 2 * 2**20
"""Over a local socket 40 MB take a twentieth less time than in chunks of half or twice the size."""
SMALL_BYTES = 2**16
"""Weights of at most this size travel in one message with what announces them."""
PART = b"\x42"
"""How protobuf begins the bytes of field 8, which is theirs in `Chunk` and in `Ack`; their number
follows.
"""
LONGEST_VARINT = 5
"""Bytes, of a message's size."""


class Parts:
    """One version's messages, each encoded once, by whoever comes to it first: a copy of its own for
    every actor was a sixth of what the learner did to send 40 MB. size: of the buffer, in bytes.

    They are encoded by hand: that copies the buffer once, protobuf three times and into memory that
    was never touched before (40 MB: 3 ms instead of 36).
    """

    def __init__(self, version: Version, packed: memoryview) -> None:
        self.version, self.size, self.packed = version, packed.nbytes, packed
        self._encoded = list[bytes]()
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[bytes]:
        """For many threads at once, each at a place of its own."""
        return map(self._part, range(-(-self.size // CHUNK_BYTES)))

    def _part(self, number: int) -> bytes:
        with self._lock:
            if number == len(self._encoded):
                part = self.packed[number * CHUNK_BYTES :][:CHUNK_BYTES]
                self._encoded.append(b"".join((PART, _varint(part.nbytes), part)))
            return self._encoded[number]


def pack_chunks(parts: Parts) -> Iterator[bytes]:
    """`Chunk`s: one that says what follows, then the buffer in parts."""
    head = wire.Chunk(version=wire.Version(**parts.version._asdict()), size=parts.size)
    yield head.SerializeToString()
    yield from parts


def unpack_part(message: bytes) -> memoryview:
    """Of a buffer, without a copy. Raises `BadMessage`."""
    for digits in range(1, LONGEST_VARINT + 1):
        size = len(message) - 1 - digits
        prefix = PART + _varint(max(size, 0))
        if len(prefix) == 1 + digits and message.startswith(prefix):
            return memoryview(message)[len(prefix) :]
    raise BadMessage("malformed", "these bytes are no part of a buffer")


def join_parts(parts: Iterator[memoryview], size: int, buffers: Buffers) -> memoryview:
    """As many parts as a buffer of this size, in bytes, has; raises `BadMessage` for others."""
    packed, filled = buffers.take(size), 0
    while filled < size and (part := next(parts, None)) is not None:
        start, filled = filled, filled + len(part)
        if filled <= size:
            packed[start:filled] = np.frombuffer(part, np.uint8)
    if filled != size:
        raise BadMessage("size", f"weights of {filled} bytes, not {size}")
    return packed.data.toreadonly()


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
