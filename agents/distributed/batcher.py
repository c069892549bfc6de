"""When central inference answers: what came from many streams is collected, and given to the one
thread that answers, as one batch, as soon as

    half of the live rows wait, or
    all live streams wait, or
    the oldest has waited half as long as the last inference took, and a millisecond at least.

A stream that has ended is not live, and neither is one that is held back by a full queue: nobody
waits for them. SEED (Espeholt et al. 2020, arXiv:1910.06591) fills batches of a fixed size, and
stands still for ever when an actor dies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
SHORTEST_WAIT_S = 1e-3


class _Waiting(NamedTuple, Generic[T]):
    stream: Hashable
    rows: int
    item: T


class Batcher(Generic[T]):
    """Filled by many threads and emptied by one. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._rows = dict[Hashable, int]()
        self._held = set[Hashable]()
        self._waiting = list[_Waiting[T]]()
        self._since = self._took_s = 0.0
        self._closed = False

    def enter(self, stream: Hashable, rows: int) -> None:
        """A stream begins, all of whose groups together have so many rows."""
        with self._changed:
            self._rows[stream] = rows

    def leave(self, stream: Hashable) -> None:
        """It has ended; what came from it is not answered any more."""
        with self._changed:
            self._rows.pop(stream, None)
            self._held.discard(stream)
            self._waiting = [one for one in self._waiting if one.stream != stream]
            self._changed.notify()

    def hold(self, stream: Hashable) -> None:
        """Nothing comes from it until it is let go, or adds something."""
        with self._changed:
            if stream in self._rows:
                self._held.add(stream)
            self._changed.notify()

    def add(self, stream: Hashable, rows: int, item: T) -> None:
        """What waits from now on, unless its stream has ended."""
        with self._changed:
            if stream not in self._rows:
                return
            self._held.discard(stream)
            if not self._waiting:
                self._since = self._clock()
            self._waiting.append(_Waiting(stream, rows, item))
            if len(self._waiting) == 1 or self._is_enough():
                self._changed.notify()

    def take(self) -> list[T]:
        """All that waits, as soon as it is to be answered; nothing once this is closed."""
        with self._changed:
            while not self._closed and not self._is_due():
                self._changed.wait(self._patience_s() if self._waiting else None)
            taken, self._waiting = self._waiting, []
            return [] if self._closed else [one.item for one in taken]

    def took(self, seconds: float) -> None:
        """For so long was what was taken last answered."""
        self._took_s = seconds

    def close(self) -> None:
        """Nothing is answered any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _is_due(self) -> bool:
        return bool(self._waiting) and (self._is_enough() or self._patience_s() <= 0)

    def _is_enough(self) -> bool:
        """Whether it is not worth waiting for more."""
        live = self._rows.keys() - self._held
        rows = sum(one.rows for one in self._waiting)
        if 2 * rows >= sum(self._rows[stream] for stream in live):
            return True
        return live <= {one.stream for one in self._waiting}

    def _patience_s(self) -> float:
        """For so long the oldest will still wait."""
        allowed_s = max(self._took_s / 2, SHORTEST_WAIT_S)
        return self._since + allowed_s - self._clock()
