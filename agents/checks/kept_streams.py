"""The streams of a trainer that is tried, kept in memory as the steps keep them in files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agents.checks.promises import Broken
from agents.interfaces import HasStreams

Rows = dict[str, np.ndarray]
PARTS = 3
"""Number of parts in which a stream is given back."""


class KeptStreams:
    """Keeps a trainer's streams in memory; empty for a trainer without streams."""

    def __init__(self) -> None:
        self._added: dict[str, list[Rows]] = {}
        self._unneeded: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The names of the streams to which something was added."""
        return list(self._added)

    def copy(self) -> KeptStreams:
        """A copy of what is kept now."""
        copied = KeptStreams()
        copied._added = {name: list(parts) for name, parts in self._added.items()}
        copied._unneeded = dict(self._unneeded)
        return copied

    def take(self, trainer: object) -> None:
        """After an epoch; raises `Broken` for rows that no stream can have."""
        if not isinstance(trainer, HasStreams):
            return
        for name, growth in trainer.grown().items():
            lengths = {len(column) for column in growth.rows.values()}
            if len(lengths) != 1:
                raise Broken(f"the stream {name!r} got columns of {sorted(lengths)} rows")
            parts = self._added.setdefault(name, [])
            columns = _columns(growth.rows)
            if parts and _columns(parts[0]) != columns:
                raise Broken(
                    f"the stream {name!r} has the columns {_columns(parts[0])}, it got {columns}"
                )
            # Rows are copied, because a trainer may give views of memory that it overwrites.
            parts.append({column: rows.copy() for column, rows in growth.rows.items()})
            if growth.keep is not None:
                unneeded = max(self._unneeded.get(name, 0), self._end(name) - growth.keep)
                self._unneeded[name] = unneeded

    def give(self, trainer: object) -> None:
        """Back to a trainer that goes on."""
        if isinstance(trainer, HasStreams):
            trainer.load_streams({name: _parts(self.rows(name)) for name in self._added})

    def difference(self, other: KeptStreams) -> str:
        """The first thing that differs, in words; empty if nothing does."""
        for name in self._added | other._added:
            if self._end(name) != other._end(name):
                return f"{self._end(name)} in the stream {name!r}, not {other._end(name)}"
            one = self.rows(name)
            another = other.rows(name)
            for column in one | another:
                if not np.array_equal(one.get(column, ()), another.get(column, ())):
                    return f"column {column!r} of the stream {name!r}"
        return ""

    def _end(self, name: str) -> int:
        """How many rows were ever added."""
        return sum(_length(part) for part in self._added.get(name, []))

    def rows(self, name: str) -> Rows:
        """The rows of a stream that a continued training needs."""
        parts = self._added.get(name, [])
        unneeded = self._unneeded.get(name, 0)
        rows: Rows = {}
        for column in parts[0] if parts else ():
            whole = np.concatenate([part[column] for part in parts])
            rows[column] = whole[unneeded:]
        return rows


def _columns(rows: Rows) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (str(column.dtype), column.shape[1:]) for name, column in rows.items()}


def _length(rows: Rows) -> int:
    return len(next(iter(rows.values())))


def _parts(rows: Rows) -> Iterator[Rows]:
    count = _length(rows)
    at_once = max(1, -(-count // PARTS))
    for start in range(0, count, at_once):
        yield {name: column[start : start + at_once].copy() for name, column in rows.items()}
