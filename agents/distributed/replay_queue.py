"""The way of unrolls into a learner's replay, at the speed that the replay ratio allows: the actors'
threads put them here, the learner takes them over before it learns.

Neither side waits for the other while it is within the slack (`config.algorithms.replay_ratio`);
whoever would leave it waits: the learner for experience, an actor for its acknowledgement. What has
come in counts at once, but only what the learner has taken over is in its replay, and in the state of
a checkpoint: the rest is lost with this learner, like all that is under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from agents.distributed.batches import Placed
from agents.distributed.interfaces import Columns
from agents.interfaces import State
from config.algorithms.replay_ratio import ReplayRatio


@dataclass(frozen=True)
class Arrived:
    """unrolls: columns [n, *spec.shape] of each message or part of one, in the order in which they
    came; may_update: whether one update is due, which counts as done when this is given back.
    """

    unrolls: list[Columns]
    may_update: bool


class ReplayQueue:
    """`agents.distributed.exchange.Queue`. taken: rows that the learner has taken over; updates: that
    it has done; most_updates: it does none beyond these.
    """

    def __init__(self, ratio: ReplayRatio) -> None:
        self.ratio, self.taken, self.updates, self.most_updates = ratio, 0, 0, 0
        self._inserted = 0
        self._waiting = list[Columns]()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, columns: Columns, oldest: int, wanted: Callable[[], bool]) -> Placed:
        """Unrolls [n, *spec.shape], in parts: as many as the slack has room for, while it has some."""
        count, first, unwanted, waited_s = len(next(iter(columns.values()))), 0, 0, 0.0
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
                self._waiting.append(
                    {name: column[first : first + part] for name, column in columns.items()}
                )
                self._inserted += part * self.ratio.unroll
                self._changed.notify_all()
            first += part
        return Placed(first, unwanted, waited_s)

    def _room(self) -> int:
        """Unrolls by which the actors would still not be too far ahead."""
        ratio = self.ratio
        rows = (ratio.slack + self.updates * ratio.batch) / ratio.ratio + ratio.starts
        return max(0, int((rows - self._inserted) // ratio.unroll))

    def _may_update(self) -> bool:
        ratio, more = self.ratio, self.updates + 1
        if more > self.most_updates or self._inserted < ratio.starts:
            return False
        return ratio.balance(more, self._inserted) <= ratio.slack

    def take(self, timeout_s: float) -> Arrived | None:
        """Whatever has come in; waits for that or until an update is due."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._may_update(), timeout_s)
            may_update = self._may_update()
            if not (self._waiting or may_update):
                return None
            unrolls, self._waiting = self._waiting, []
            self.taken = self._inserted
            return Arrived(unrolls, may_update)

    def give_back(self, taken: Arrived) -> None:
        """Its update is done, if one was due: actors may go on."""
        with self._changed:
            self.updates += taken.may_update
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing waits here any more, and nothing is taken in."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Unrolls that the learner has not taken over."""
        with self._changed:
            return (self._inserted - self.taken) // self.ratio.unroll

    def state_dict(self) -> State:
        """What the learner has taken over, and done with it."""
        return {"taken": self.taken, "updates": self.updates}

    def load_state_dict(self, state: State) -> None:
        """What `state_dict` gave; nothing waits."""
        self.taken = self._inserted = int(state["taken"])
        self.updates = int(state["updates"])
