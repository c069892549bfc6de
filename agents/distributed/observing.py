"""What an actor does where the learner acts: it steps two groups of environments, one while the other
waits for its answer, and sends what they show; or all at once, where other actors fill the time that
an answer takes, for then a second message a step is only work.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

from agents.distributed.actor import LONGEST_SILENCE_S, Joining
from agents.distributed.interfaces import Joined, Refused
from agents.distributed.observations import ObservingLink
from agents.distributed.stepping import Stepping, row_specs
from agents.distributed.unrolls import unroll_specs
from agents.environments.training import TrainingEnvironments
from config.resolve import Resolved

CROWD = 2
"""Actors for each processor, from which on they are a crowd. With two processors and 8 actors of 4
Breakouts each, whole groups take 0.7 of the processor time of halves for a step.
"""


def is_crowd(actors: int) -> bool:
    """Whether none of this machine's processors stands still while one of so many actors waits."""
    return actors >= CROWD * len(os.sched_getaffinity(0))


class ObservingActor(Joining):
    """One of a run's actors, without a policy; `agents.interfaces.Actor`."""

    def __init__(self, resolved: Resolved, *, run: int, member: int, link: ObservingLink) -> None:
        super().__init__(resolved, run=run, member=member, join=link.join)
        self._link, self._ticks = link, itertools.count(1)

    def _act_for(self, joined: Joined) -> Iterator[int]:
        stepping = self._begin(joined)
        before, said_s = self._steps, time.monotonic()
        yield before
        for group in range(len(stepping.environments.groups)):
            self._link.observe(stepping.show(group))
        while True:
            answer = self._link.actions()
            if answer.stop or answer.actions is None:
                return
            stepping.send(answer.group, answer.actions)
            self._link.observe(stepping.show(answer.group))
            self._steps = before + stepping.steps
            if time.monotonic() - said_s > LONGEST_SILENCE_S:
                yield self._steps
                said_s = time.monotonic()

    def _begin(self, joined: Joined) -> Stepping:
        environments = self._environments = TrainingEnvironments(
            self._resolved,
            self._run,
            joined.number,
            in_halves=not (joined.near and is_crowd(self._resolved.actors.actors)),
        )
        length = self._resolved.hyperparameters.unroll_length
        rows = unroll_specs(
            row_specs(environments.interface, environments.observation.dtype), {}, length
        )
        if not joined.answers or not rows.items() <= dict(joined.specs).items():
            raise Refused("what this actor sees and does is not what the learner learns from", 2)
        return Stepping(environments, self._ticks)
