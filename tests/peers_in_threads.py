"""Learners that learn together in threads of this process: what they add up, they add up here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.distributed.protocol import PeersLost


class Sums:
    """Where all of them meet. A meeting to which all have come is one, also when somebody is lost
    before the last has left it.
    """

    def __init__(self, count: int) -> None:
        self.count, self._changed, self._lost = count, threading.Condition(), False
        self._meetings = list[dict[int, Tensor]]()
        self._attended = [0] * count

    def lose(self) -> None:
        """One is gone, and whoever waits for it, or will, notices."""
        with self._changed:
            self._lost = True
            self._changed.notify_all()

    def of_all(self, number: int, values: Tensor) -> Tensor:
        """What they bring to this one's next meeting, added up."""
        with self._changed:
            if self._attended[number] == len(self._meetings):
                self._meetings.append({})
            meeting = self._meetings[self._attended[number]]
            self._attended[number] += 1
            meeting[number] = values.clone()
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(meeting) == self.count or self._lost, 60)
            if len(meeting) < self.count:
                raise PeersLost("another one has gone")
            return torch.stack([meeting[one] for one in range(self.count)]).sum(0)


class PeersInThreads:
    """`agents.distributed.protocol.Peers`. lost_after: so many sums this one takes part in."""

    def __init__(self, sums: Sums, number: int, lost_after: int | None = None) -> None:
        self.number, self.count = number, sums.count
        self._sums, self._left = sums, lost_after

    def sum(self, values: Tensor) -> None:
        if self._left == 0:
            self._sums.lose()
            raise PeersLost("this one goes")
        self._left = None if self._left is None else self._left - 1
        values.copy_(self._sums.of_all(self.number, values))


class Unsummed(PeersInThreads):
    """Each keeps what it brought: what would be learnt without the others."""

    def sum(self, values: Tensor) -> None:
        return


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each returns or raises, in threads of their own."""
    ended: list[Any] = [None] * len(works)

    def run(number: int) -> None:
        try:
            ended[number] = works[number]()
        except Exception as error:
            ended[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return ended
