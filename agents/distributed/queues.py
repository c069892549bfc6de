"""The learner's queues: unrolls arrive from many threads, and one thread learns from them.

`BatchQueue` collects batches (IMPALA). While the learner learns from one batch, the next one fills;
when that is full too, senders wait. This bounds how old experience is when it is learnt from.
`ReplayQueue` admits unrolls and updates in a fixed ratio (R2D2, SAC).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agents.distributed.protocol import Columns, Specs
from agents.interfaces import State
from config.algorithms.replay_ratio import ReplayRatio

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
                columns={
                    name: np.zeros((batch_size, *spec.shape), spec.dtype)
                    for name, spec in specs.items()
                },
                oldest=np.zeros(batch_size, np.int64),
            )
            # There is one batch more than may wait: the one that the learner learns from.
            for _ in range(WAITING + 1)
        )
        self._filling: Batch | None = None
        self._full = deque[Batch]()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, columns: Columns, oldest: int, wanted: Callable[[], bool]) -> Placed:
        """Unrolls [n, *spec.shape], which may end up in several batches.

        Blocks while there is no place, until the queue is closed; wanted: asked before each place
        is given, whether they are still to be had.
        """
        count = len(next(iter(columns.values())))
        first = 0
        unwanted = 0
        waited_s = 0.0
        while first < count:
            with self._changed:
                started_s = time.monotonic()
                self._changed.wait_for(lambda: self._closed or self._filling or self._empty)
                waited_s += time.monotonic() - started_s
                if self._closed:
                    break
                # This is asked after the wait, because weights may have become too old during it.
                if not wanted():
                    unwanted = count - first
                    break
                batch = self._filling = self._filling or self._empty.popleft()
                place = batch.reserved
                taken = min(count - first, self._size - place)
                batch.reserved += taken
                if batch.reserved == self._size:
                    self._filling = None
            # Rows are copied without the lock: their places are reserved, so several threads write
            # at once.
            for name, column in columns.items():
                batch.columns[name][place : place + taken] = column[first : first + taken]
            batch.oldest[place : place + taken] = oldest
            first += taken
            with self._changed:
                batch.written += taken
                # A batch is full only when every thread that reserved a place in it has written.
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
        """Wake everybody who waits here, and accept nothing any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Unrolls that wait for the learner."""
        with self._changed:
            filling = 0 if self._filling is None else self._filling.written
            return filling + self._size * len(self._full)


@dataclass(frozen=True)
class Arrived:
    """unrolls: columns [n, *spec.shape] of each message or part of one, in the order in which they
    came; may_update: whether one update is due, which counts as done when this is given back.
    """

    unrolls: list[Columns]
    may_update: bool


class ReplayQueue:
    """`agents.distributed.exchange.Queue`. taken: number of environment steps that the learner has
    taken over; updates: that it has done; most_updates: it does none beyond these.
    """

    def __init__(self, ratio: ReplayRatio, steps_of: Callable[[Columns], int]) -> None:
        """steps_of: the number of environment steps in unrolls, at most `ratio.unroll` in each."""
        self.ratio = ratio
        self._steps_of = steps_of
        self.taken = 0
        self.updates = 0
        self.most_updates = 0
        self._inserted = 0
        self._waiting = list[Columns]()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, columns: Columns, oldest: int, wanted: Callable[[], bool]) -> Placed:
        """Unrolls [n, *spec.shape], in parts: as many as the slack has room for, while it has some."""
        count = len(next(iter(columns.values())))
        first = 0
        unwanted = 0
        waited_s = 0.0
        while first < count:
            with self._changed:
                started_s = time.monotonic()
                self._changed.wait_for(lambda: self._closed or self._room())
                waited_s += time.monotonic() - started_s
                if self._closed:
                    break
                if not wanted():
                    unwanted = count - first
                    break
                part = min(count - first, self._room())
                unrolls = {name: column[first : first + part] for name, column in columns.items()}
                self._waiting.append(unrolls)
                self._inserted += self._steps_of(unrolls)
                self._changed.notify_all()
            first += part
        return Placed(first, unwanted, waited_s)

    def _room(self) -> int:
        """Unrolls by which the actors would still not be too far ahead, whatever these hold."""
        ratio = self.ratio
        # The largest number of inserted steps for which `ReplayRatio.balance` is at least −slack.
        steps = (ratio.slack + self.updates * ratio.batch) / ratio.ratio + ratio.starts
        return max(0, int((steps - self._inserted) // ratio.unroll))

    def _may_update(self) -> bool:
        ratio = self.ratio
        more = self.updates + 1
        if more > self.most_updates or self._inserted < ratio.starts:
            return False
        return ratio.balance(more, self._inserted) <= ratio.slack

    def take(self, timeout_s: float) -> Arrived | None:
        """The unrolls that have arrived. Waits for some, or until an update is due."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._may_update(), timeout_s)
            may_update = self._may_update()
            if not (self._waiting or may_update):
                return None
            unrolls = self._waiting
            self._waiting = []
            self.taken = self._inserted
            return Arrived(unrolls, may_update)

    def give_back(self, taken: Arrived) -> None:
        """Note that the update, if one was due, is done, so that actors may go on."""
        with self._changed:
            self.updates += taken.may_update
            self._changed.notify_all()

    def close(self) -> None:
        """Wake everybody who waits here, and accept nothing any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Unrolls that the learner has not taken over."""
        with self._changed:
            return sum(len(next(iter(columns.values()))) for columns in self._waiting)

    def state_dict(self) -> State:
        """The counts of what the learner has received and of its updates."""
        return {"taken": self.taken, "updates": self.updates}

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave, with empty queues."""
        self.taken = self._inserted = int(state["taken"])
        self.updates = int(state["updates"])
