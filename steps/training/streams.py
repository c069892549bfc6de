"""Writing streams: what a trainer has added since the last checkpoint becomes a segment of its own.

A checkpoint costs what is new, however long the stream is. Only the last segment, as long as it is
small, is written again as the beginning of a longer one: frequent checkpoints would otherwise leave
thousands of files, and a list of them that grows into every checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from steps.directory import streams
from steps.directory.files import write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.storage import refuse_link
from steps.directory.streams import STREAMS, Segment, Stream

if TYPE_CHECKING:
    import numpy as np

    from agents.interfaces import Growth

    Rows = Mapping[str, np.ndarray]

SEALED_BYTES = 2**20
"""A segment of this size is left as it is."""
LARGEST_BYTES = 64 * 2**20
"""What comes at once is divided into segments of about this size: one is read as a whole."""


class StreamFiles:
    """The one writer of a run's streams. before: those of the checkpoint that the training goes on
    from; permitted: raises `WrongDirectory` when a newer writer has started.
    """

    def __init__(
        self, run: RunDirectory, before: Mapping[str, Stream], permitted: Callable[[], None]
    ) -> None:
        self._run, self._permitted = run, permitted
        self._writers: dict[str, StreamWriter] = {}
        for name, stream in before.items():
            self._open(name, stream)

    def add(self, grown: Mapping[str, Growth]) -> None:
        """Copy what a trainer has added, so that it may go on."""
        for name, growth in grown.items():
            if name not in self._writers:
                self._open(name, Stream(first=0, end=0, segments=()))
            self._writers[name].add(growth.rows, growth.keep)

    def write(self) -> dict[str, bytes]:
        """Bring it to the disk; the file that a checkpoint lists it in, none without a stream."""
        if not self._writers:
            return {}
        written = {name: writer.write() for name, writer in self._writers.items()}
        self._permitted()  # long segments may have taken long
        return {STREAMS: streams.packed(written)}

    def _open(self, name: str, before: Stream) -> None:
        self._permitted()  # what nobody lists yet may be a later attempt's
        self._writers[name] = StreamWriter(self._run, name, before)


class _Packed(NamedTuple):
    first: int
    rows: int
    content: bytes


class StreamWriter:
    """One stream: `add` copies, `write` waits for the disk. before: where it goes on."""

    def __init__(self, run: RunDirectory, name: str, before: Stream) -> None:
        streams.check_name(name)
        self._name, self._folder = name, run.stream(name)
        refuse_link(self._folder, is_folder=True)
        streams.remove_unlisted(run, name)
        self._first, self._end, self._segments = before.first, before.end, list(before.segments)
        self._packed: list[_Packed] = []
        self._columns: dict[str, tuple[object, ...]] | None = None
        self._unsealed: Rows = {}
        if self._segments:
            last = streams.read_segment(run, name, self._segments[-1])
            self._columns = _columns(last)
            self._unsealed = last if _size_bytes(last) < SEALED_BYTES else {}

    def add(self, rows: Rows, keep: int | None) -> None:
        """Add rows at the end, and need no more than the last `keep` of all from now on. Raises
        `ValueError` for rows that cannot belong to this stream.
        """
        count = self._checked(rows)
        if count:
            first = self._end - _length(self._unsealed)
            self._end += count
            for part in _divided(_joined(self._unsealed, rows)):
                self._packed.append(_Packed(first, _length(part), _content(part)))
                first += _length(part)
            small = _size_bytes(part) < SEALED_BYTES
            self._unsealed = {name: column.copy() for name, column in part.items()} if small else {}
        if keep is not None:
            self._first = max(self._first, self._end - keep)

    def write(self) -> Stream:
        """Write the new segments; what a checkpoint must list."""
        for first, rows, content in self._packed:
            total = hashlib.sha256(content).hexdigest()
            segment = Segment(
                name=f"{first:012d}-{total[:16]}.safetensors",
                first=first,
                rows=rows,
                bytes=len(content),
                sha256=total,
            )
            write_atomically(self._folder / segment.name, content)
            # The small one before it, if there was one, begins at the same row.
            self._segments = [one for one in self._segments if one.first < first] + [segment]
        self._packed = []
        self._segments = [one for one in self._segments if one.first + one.rows > self._first]
        return Stream(first=self._first, end=self._end, segments=tuple(self._segments))

    def _checked(self, rows: Rows) -> int:
        columns, lengths = _columns(rows), {len(column) for column in rows.values()}
        if len(lengths) != 1:
            raise ValueError(f"the stream {self._name!r} got columns of {sorted(lengths)} rows")
        if self._columns is not None and columns != self._columns:
            raise ValueError(
                f"the stream {self._name!r} has the columns {self._columns}, it got {columns}"
            )
        self._columns = columns
        return lengths.pop()


def _columns(rows: Rows) -> dict[str, tuple[object, ...]]:
    """Column -> type and shape of one row."""
    return {name: (str(column.dtype), *column.shape[1:]) for name, column in rows.items()}


def _joined(before: Rows, rows: Rows) -> Rows:
    import numpy as np

    if not before:
        return rows
    return {name: np.concatenate([before[name], column]) for name, column in rows.items()}


def _divided(rows: Rows) -> Iterator[Rows]:
    count = _length(rows)
    row_bytes = max(1, _size_bytes(rows) // count)
    at_once = max(1, LARGEST_BYTES // row_bytes)
    for start in range(0, count, at_once):
        yield {name: column[start : start + at_once] for name, column in rows.items()}


def _content(rows: Rows) -> bytes:
    import numpy as np
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(column) for name, column in rows.items()})


def _length(rows: Rows) -> int:
    return len(next(iter(rows.values()))) if rows else 0


def _size_bytes(rows: Rows) -> int:
    return sum(column.nbytes for column in rows.values())
