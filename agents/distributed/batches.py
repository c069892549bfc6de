"""The learner's queue: batches of unrolls, allocated once, filled by many threads and emptied by one.

While the learner learns from one batch, the next is filled; when that is full, whoever brings more
waits. So the queue bounds how old experience is when it is learnt from.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agents.distributed.interfaces import Columns, Specs

WAITING = 1
"""Batches that may wait for the learner, the one being filled among them."""


@dataclass
class Batch:
    """B unrolls: columns [B, *spec.shape]; oldest int64 [B]: number of the update whose weights
    acted first in each.
    """

    columns: Columns
    oldest: np.ndarray
    reserved: int = 0
    written: int = 0


@dataclass(frozen=True)
class Placed:
    """count: of a message's unrolls found a place; unwanted: how many were no longer wanted when it
    was their turn; waited_s: for how long they stood in the queue's door.
    """

    count: int
    unwanted: int
    waited_s: float


class BatchQueue:
    """Blocks at both ends."""

    def __init__(self, specs: Specs, batch_size: int) -> None:
        self._size = batch_size
        self._empty = deque(
            Batch(
                {name: np.zeros((batch_size, *spec.shape), spec.dtype) for name, spec in specs.items()},
                np.zeros(batch_size, np.int64),
            )
            for _ in range(WAITING + 1)
        )  # fmt: skip
        self._filling: Batch | None = None
        self._full = deque[Batch]()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, columns: Columns, oldest: int, wanted: Callable[[], bool]) -> Placed:
        """Unrolls [n, *spec.shape], which may end up in several batches.

        Blocks while there is no place, until the queue is closed; wanted: asked before each place
        is given, whether they are still to be had.
        """
        count, first, unwanted, waited_s = len(next(iter(columns.values()))), 0, 0, 0.0
        while first < count:
            with self._changed:
                started_s = time.monotonic()
                self._changed.wait_for(lambda: self._closed or self._filling or self._empty)
                waited_s += time.monotonic() - started_s
                if self._closed:
                    break
                if not wanted():
                    unwanted = count - first
                    break
                batch = self._filling = self._filling or self._empty.popleft()
                place = batch.reserved
                taken = min(count - first, self._size - place)
                batch.reserved += taken
                if batch.reserved == self._size:
                    self._filling = None
            for name, column in columns.items():
                batch.columns[name][place : place + taken] = column[first : first + taken]
            batch.oldest[place : place + taken] = oldest
            first += taken
            with self._changed:
                batch.written += taken
                if batch.written == self._size:
                    self._full.append(batch)
                    self._changed.notify_all()
        return Placed(first, unwanted, waited_s)

    def take(self, timeout_s: float) -> Batch | None:
        """The next full batch, which is the caller's until it is given back."""
        with self._changed:
            self._changed.wait_for(lambda: self._full, timeout_s)
            return self._full.popleft() if self._full else None

    def give_back(self, batch: Batch) -> None:
        """It is filled anew."""
        with self._changed:
            batch.reserved = batch.written = 0
            self._empty.append(batch)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing waits here any more, and nothing is taken in."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Unrolls that wait for the learner."""
        with self._changed:
            filling = 0 if self._filling is None else self._filling.written
            return filling + self._size * len(self._full)
