"""A learner and its actors in one thread, in turn: the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agents.algorithms.impala import IMPALATrainer
from agents.distributed.exchange import Exchange
from agents.distributed.interfaces import Link, Version, Weights
from agents.distributed.local import LocalLink
from agents.distributed.weights import unpack
from agents.interfaces import Actor, Progress
from agents.load import make_actor
from config.parameters import to_text
from config.resolve import Resolved, resolve

MakeLink = Callable[[Exchange[Any]], Link]


def impala(game: str, **given: object) -> Resolved:
    """An experiment of IMPALA's."""
    texts = {name: to_text(value) for name, value in given.items()}
    return resolve("config.algorithms.impala:ALGORITHM", {"game": game, "outdir": "/x"} | texts)


def learner(resolved: Resolved) -> IMPALATrainer:
    trainer = IMPALATrainer(resolved, run=0, device="cpu", precision="fp32")
    trainer.wait_s = 0
    return trainer


def actors_of(
    resolved: Resolved, exchange: Exchange[Any], count: int, link: MakeLink
) -> list[Actor]:
    return [
        make_actor(resolved, run=0, member=member, link=link(exchange)) for member in range(count)
    ]


def in_turn(trainer: Any, count: int = 1, link: MakeLink = LocalLink) -> Iterator[Progress]:
    """Train to the end: whenever there is nothing to learn from, the next actor plays."""
    actors = actors_of(trainer.resolved, trainer.receiver(1), count, link)
    turns, number = [actor.act() for actor in actors], 0
    for progress in trainer.train():
        if progress is not None:
            yield progress
            continue
        next(turns[number % count])
        number += 1
    for actor in actors:
        actor.close()
    trainer.close()


class Lagging(LocalLink):
    """Weights come so many updates late."""

    def __init__(self, exchange: Exchange[Any], updates: int) -> None:
        super().__init__(exchange)
        self._updates, self._known = updates, list[tuple[Version, bytes]]()

    def weights(self, have: Version | None) -> Weights | None:
        newest = self._receiver.packed_weights(self._known[-1][0] if self._known else None)
        if newest is not None:
            self._known.append((newest[0], bytes(newest[1])))
        late = self._known[-1][0].update - self._updates
        while len(self._known) > 1 and self._known[1][0].update <= late:
            del self._known[0]
        version, packed = self._known[0]
        return None if version == have else unpack(version, memoryview(packed))
