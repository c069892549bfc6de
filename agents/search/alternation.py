"""Two halves of the games: while the leaves of one are with the network, the other one searches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from agents.games.interfaces import Floats
from agents.search.interfaces import EvaluatePositions
from agents.search.search import Search


class Alternation:
    """evaluate is called by one thread of its own, for one half after the other: what it remembers
    needs no lock, and the same searches give it the same batches.
    """

    def __init__(self, halves: Sequence[Search], evaluate: EvaluatePositions) -> None:
        self.halves, self.evaluate = halves, evaluate

    def rounds(self) -> Iterator[Search]:
        """Each half in turn, as soon as its leaves are evaluated: for whoever iterates to take the
        results of its finished searches, and to begin new ones. Ends when nothing is searched.
        """
        pending: list[Future[tuple[Floats, Floats]] | None] = [None] * len(self.halves)
        with ThreadPoolExecutor(1, thread_name_prefix="evaluation") as thread:
            while True:
                for number, half in enumerate(self.halves):
                    waiting = pending[number]
                    if waiting is not None:
                        half.receive(*waiting.result())
                    yield half
                    leaves = half.leaves()
                    pending[number] = (
                        thread.submit(self.evaluate, leaves.states, leaves.legal)
                        if len(leaves.states)
                        else None
                    )
                finished = any(len(half.finished()) for half in self.halves)
                if not finished and not any(pending):
                    return
