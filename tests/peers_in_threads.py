"""Learners that learn together in threads of this process: what they add up, they add up here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.distributed.peers import PeersLost


class Sums:
    """Where all of them meet."""

    def __init__(self, count: int) -> None:
        self.count, self.barrier = count, threading.Barrier(count)
        self.brought = dict[int, Tensor]()

    def lose(self) -> None:
        """One is gone, and whoever waits for it, or will, notices."""
        self.barrier.abort()


class PeersInThreads:
    """`agents.distributed.peers.Peers`. lost_after: so many sums this one takes part in."""

    def __init__(self, sums: Sums, number: int, lost_after: int | None = None) -> None:
        self.number, self.count = number, sums.count
        self._sums, self._left = sums, lost_after

    def sum(self, values: Tensor) -> None:
        if self._left == 0:
            self._sums.lose()
            raise PeersLost("this one goes")
        self._left = None if self._left is None else self._left - 1
        try:
            self._sums.brought[self.number] = values
            self._sums.barrier.wait(60)
            total = torch.stack([self._sums.brought[one] for one in range(self.count)]).sum(0)
            self._sums.barrier.wait(60)
            values.copy_(total)
        except threading.BrokenBarrierError:
            raise PeersLost("another one has gone") from None


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
