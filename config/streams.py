"""Standard input, output and error of a command, whatever its caller has done to them.

A descriptor that was closed (`>&-`) is open to nothing from now on: else the next file that is
opened gets its number, and every print goes into that file. A reader that has left (`| head`, a
closed terminal) misses what follows, and the work goes on and ends as it would have.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Collection
from typing import Any

DESCRIPTORS = {"stdin": 0, "stdout": 1, "stderr": 2}


def prepare_streams(forgiving: Collection[str] = ("stdout", "stderr")) -> None:
    """Make the three usable; forgiving: those that may lose their reader without an error."""
    for name, descriptor in DESCRIPTORS.items():
        _open(descriptor)
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _text(descriptor))
        elif name in forgiving and _is_own(stream, descriptor):
            stream.flush()
            setattr(sys, name, _text(descriptor, stream))


class _Forgiving(io.FileIO):
    """Writes as long as somebody reads."""

    def write(self, chunk: Any) -> int:
        try:
            return super().write(chunk)
        except OSError:
            return len(chunk)


def _open(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(
            os.devnull, os.O_RDWR
        )  # gets the lowest free number: this one, as those below are open


def _is_own(stream: Any, descriptor: int) -> bool:
    """Whether it is Python's own stream, and not what somebody has put in its place."""
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == descriptor
    except (OSError, ValueError):
        return False


def _text(descriptor: int, before: io.TextIOWrapper | None = None) -> io.TextIOWrapper:
    """What the encoding does not know becomes a `?`; buffered as before."""
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
