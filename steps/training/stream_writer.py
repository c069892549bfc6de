"""Writing streams: what a trainer adds in each epoch is collected, and becomes a segment as soon as
that is full.

So the memory that it takes is a few segments, and a checkpoint costs the rows after the last full
one, however long the stream is. Those, as long as they are few, are written again as the beginning
of a longer segment: frequent checkpoints would otherwise leave thousands of files, and a list of
them that grows into every checkpoint. So are all that a checkpoint found which no schedule asked for:
where a training was stopped is not to be seen in its segments. A segment that a checkpoint does not
list yet counts for nothing: the next attempt removes it.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from steps.directory import segments
from steps.directory.files import refuse_link, write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.segments import STREAMS, Segment, Stream

if TYPE_CHECKING:
    import numpy as np

    from agents.interfaces import Growth

    Rows = Mapping[str, np.ndarray]

Write = Callable[[], object]
"""A piece of work that ends when its bytes are on the disk."""
SEALED_BYTES = 2**20
"""Rows after the last full segment that have this size at a checkpoint become a segment of their
own and are not written again.
"""
LARGEST_BYTES = 16 * 2**20
"""About the size of a full segment, which is collected, packed, written and read as a whole."""


class StreamFiles:
    """The only writer of a run's streams. before: the streams of the checkpoint that the training
    continues from. scheduled: whether that checkpoint was a scheduled one. permitted: raises
    `WrongDirectory` if a newer writer has started. start: writes pieces of work in order, beside
    the training; see `Saver`.
    """

    def __init__(
        self,
        run: RunDirectory,
        before: Mapping[str, Stream],
        permitted: Callable[[], None],
        start: Callable[[Write], None],
        *,
        scheduled: bool = True,
    ) -> None:
        self._run = run
        self._permitted = permitted
        self._start = start
        self._scheduled = scheduled
        self._writers: dict[str, StreamWriter] = {}
        for name, stream in before.items():
            self._open(name, stream)

    def add(self, grown: Mapping[str, Growth]) -> None:
        """Copy what a trainer has added in an epoch, so that it may go on, and start to write full
        segments.
        """
        for name, growth in grown.items():
            if name not in self._writers:
                self._open(name, Stream(first=0, end=0, segments=()))
            for write in self._writers[name].add(growth.rows, growth.keep):
                self._start(functools.partial(self._write, write))

    def ended(self) -> Callable[[], dict[str, bytes]]:
        """For a checkpoint: write the rows after the last full segments, and return the file that
        lists all segments; none without a stream. To be called where `start` lets things be
        written.
        """
        return functools.partial(
            self._listed, {name: writer.ended() for name, writer in self._writers.items()}
        )

    def _listed(self, ended: Mapping[str, Callable[[], Stream]]) -> dict[str, bytes]:
        if not ended:
            return {}
        written = {name: write() for name, write in ended.items()}
        self._permitted()  # long segments may have taken long
        return {STREAMS: segments.packed(written)}

    def _write(self, write: Write) -> None:
        self._permitted()
        write()

    def _open(self, name: str, before: Stream) -> None:
        self._permitted()  # what nobody lists yet may be a later attempt's
        self._writers[name] = StreamWriter(self._run, name, before, scheduled=self._scheduled)


class StreamWriter:
    """One stream. `add` and `ended` copy and count in the training's loop; the work that they
    return writes the rows of that moment, in order, beside it. before: where the stream continues.
    scheduled: as in `StreamFiles`.
    """

    def __init__(
        self, run: RunDirectory, name: str, before: Stream, *, scheduled: bool = True
    ) -> None:
        segments.check_name(name)
        self._name = name
        self._folder = run.stream(name)
        refuse_link(self._folder, is_folder=True)
        segments.remove_unlisted(run, name)
        self._first = before.first
        self._begin = before.end
        self._end = before.end
        self._columns: dict[str, tuple[str, tuple[int, ...]]] | None = None
        self._row_bytes = 0
        self._tail: list[Rows] = []
        self._segments = list(before.segments)
        self._listed_names = {segment.name for segment in before.segments}
        if before.segments:
            last = before.segments[-1]
            rows = segments.read_segment(run, name, last)
            count = self._checked(rows)
            if count < self._full and (not scheduled or count * self._row_bytes < SEALED_BYTES):
                self._begin = last.first
                self._tail = [rows]

    def add(self, rows: Rows, keep: int | None) -> Iterator[Write]:
        """Add rows at the end; from now on only the last `keep` rows of all are needed. Each full
        segment is handed over before more is copied. Raises `ValueError` for rows that cannot
        belong to this stream.
        """
        count = self._checked(rows)
        taken = 0
        full = self._full
        while taken < count:
            part = min(count - taken, self._begin + full - self._end)
            self._tail.append(_copied(rows, taken, taken + part))
            taken += part
            self._end += part
            if self._end - self._begin == full:
                yield self._cut()
        if keep is not None:
            self._first = max(self._first, self._end - keep)

    def ended(self) -> Callable[[], Stream]:
        """Write the rows after the last full segment, and return what a checkpoint must list."""
        tail = list(self._tail)
        first = self._first
        begin = self._begin
        end = self._end
        if (end - begin) * self._row_bytes >= SEALED_BYTES:
            self._begin = end
            self._tail = []

        def write() -> Stream:
            if tail:
                self._write(begin, end, tail)
            self._forget_before(first)
            self._listed_names = {segment.name for segment in self._segments}
            return Stream(first=first, end=end, segments=tuple(self._segments))

        return write

    def _cut(self) -> Write:
        """Make a segment of the collected rows; the next one begins after them."""
        tail = self._tail
        first = self._first
        begin = self._begin
        end = self._end
        self._begin = end
        self._tail = []

        def write() -> None:
            self._write(begin, end, tail)
            self._forget_before(first)

        return write

    def _write(self, first: int, end: int, parts: Sequence[Rows]) -> None:
        """Write the segment of the rows from number `first` to `end`, exclusive."""
        rows = end - first
        if any((one.first, one.rows) == (first, rows) for one in self._segments):
            return  # nothing was added since the last checkpoint
        content = _content(parts)
        total = hashlib.sha256(content).hexdigest()
        name = f"{first:012d}-{total[:16]}.safetensors"
        write_atomically(self._folder / name, content)
        segment = Segment(name=name, first=first, rows=rows, bytes=len(content), sha256=total)
        # The small one before it, if there was one, begins at the same row.
        self._segments = [one for one in self._segments if one.first < first] + [segment]

    def _forget_before(self, first: int) -> None:
        """Drop the segments that end before row `first`. A segment that a checkpoint lists is
        removed with that checkpoint; any other is removed now.
        """
        gone = [one for one in self._segments if one.first + one.rows <= first]
        self._segments = [one for one in self._segments if one not in gone]
        for one in gone:
            if one.name not in self._listed_names:
                (self._folder / one.name).unlink(missing_ok=True)

    @property
    def _full(self) -> int:
        """Number of rows of a full segment."""
        return max(1, LARGEST_BYTES // max(1, self._row_bytes))

    def _checked(self, rows: Rows) -> int:
        columns = {name: (str(one.dtype), one.shape[1:]) for name, one in rows.items()}
        lengths = {len(column) for column in rows.values()}
        if len(lengths) != 1:
            raise ValueError(f"the stream {self._name!r} got columns of {sorted(lengths)} rows")
        if self._columns is None:
            self._columns = columns
            self._row_bytes = sum(
                column.dtype.itemsize * math.prod(column.shape[1:]) for column in rows.values()
            )
        elif columns != self._columns:
            raise ValueError(
                f"the stream {self._name!r} has the columns {self._columns}, it got {columns}"
            )
        return lengths.pop()


def _copied(rows: Rows, start: int, stop: int) -> Rows:
    import numpy as np

    return {name: np.array(column[start:stop], order="C") for name, column in rows.items()}


def _content(parts: Sequence[Rows]) -> bytes:
    import numpy as np
    from safetensors.numpy import save

    if len(parts) == 1:
        return save(dict(parts[0]))
    return save({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
