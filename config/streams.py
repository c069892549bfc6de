"""Makes standard input, output and error usable, whatever the caller has done to them.

A closed descriptor (`>&-`) is opened on the null device: otherwise the next file that is opened
would get its number, and every print would go into that file. If a reader leaves (`| head`, a
closed terminal), further output is dropped and the work goes on.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Collection
from typing import Any

DESCRIPTORS = {"stdin": 0, "stdout": 1, "stderr": 2}


def prepare_streams(forgiving: Collection[str] = ("stdout", "stderr")) -> None:
    """Make the three streams usable. forgiving: those that may lose their reader without an error."""
    for name, descriptor in DESCRIPTORS.items():
        _open(descriptor)
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _text(descriptor))
        elif name in forgiving and _is_own(stream, descriptor):
            stream.flush()
            setattr(sys, name, _text(descriptor, stream))


class _Forgiving(io.FileIO):
    """A stream that drops output once its reader has left."""

    def write(self, chunk: Any) -> int:
        try:
            return super().write(chunk)
        except OSError:
            return len(chunk)


def _open(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # A new descriptor has the lowest free number. Those below are open, so it is this one.
        os.open(os.devnull, os.O_RDWR)


def _is_own(stream: Any, descriptor: int) -> bool:
    """Whether this is Python's own stream and not a replacement."""
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == descriptor
    except (OSError, ValueError):
        return False


def _text(descriptor: int, before: io.TextIOWrapper | None = None) -> io.TextIOWrapper:
    """A text stream that writes `?` for characters outside the encoding, with the same buffering as
    before.
    """
    if descriptor == 0:
        return open(descriptor, encoding="utf-8", closefd=False)
    raw = io.BufferedWriter(_Forgiving(descriptor, "w", closefd=False))
    if before is None:
        return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)
    return io.TextIOWrapper(
        raw,
        before.encoding,
        "replace",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
