"""A learner and its actors in one thread, in turn: the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agents.algorithms.impala import IMPALATrainer
from agents.distributed.exchange import Exchange
from agents.distributed.local import LocalLink
from agents.distributed.protocol import Actor, Link
from agents.interfaces import Progress
from agents.load import make_actor
from config.parameters import to_text
from config.resolve import resolve
from config.resolved import Resolved
from tests.late_weights import Late

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


def late(updates: int) -> MakeLink:
    """Weights come so many updates late."""
    return lambda exchange: Late(LocalLink(exchange), updates)
