"""The events in a file of TensorBoard, read without TensorFlow and in bounded memory.

A record is its length (8 bytes), a checksum of that (4), an event, and a checksum of the event (4).
TensorBoard's own reader takes whatever length a record states into memory, verifies pictures with a
checksum in Python, and opens a FIFO. Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import BadInput
from steps.directory.files import open_regular

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

HEADER, FOOTER_BYTES = struct.Struct("<QI"), 4
LARGEST_FILE_BYTES = 2**32
LARGEST_EVENT_BYTES = 2**16
"""Larger events hold pictures, films or histograms, and are passed over."""


def events(path: Path, wanted: Callable[[str], bool]) -> Iterator[Event]:
    """The whole events of a file; a record that is cut at its end is still being written. wanted: by
    tag, the events that are used. Raises `BadInput` for a damaged file, which it names, and the usual
    `OSError`s.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    try:
        for record, checksum in _records(path):
            event = Event.FromString(record)
            # Only of these: a checksum takes 20 µs in Python, and most events are of other tags.
            if any(wanted(one.tag) for one in event.summary.value):
                _verify(record, checksum, path)
            yield event
    except DecodeError:
        raise BadInput(f"{path} is damaged, or no event file: a record is no event") from None


def _records(path: Path) -> Iterator[tuple[bytes, int]]:
    """The records of events, with their checksums."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE_BYTES:
            raise BadInput(f"{path} has {size} bytes; at most {LARGEST_FILE_BYTES} are read")
        while len(header := file.read(HEADER.size)) == HEADER.size:
            length = _length(header, path)
            if file.tell() + length + FOOTER_BYTES > size:
                return
            if length > LARGEST_EVENT_BYTES:
                file.seek(length + FOOTER_BYTES, io.SEEK_CUR)
                continue
            record = file.read(length)
            footer = file.read(FOOTER_BYTES)
            if len(footer) == FOOTER_BYTES:
                yield record, int.from_bytes(footer, "little")


def _length(header: bytes, path: Path) -> int:
    length, checksum = HEADER.unpack(header)
    _verify(header[:8], checksum, path)
    found: int = length
    return found


def _verify(content: bytes, checksum: int, path: Path) -> None:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    if masked_crc32c(content) != checksum:
        raise BadInput(f"{path} is damaged, or no event file: a checksum is wrong")
