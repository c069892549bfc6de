"""The loops of actors: join a learner, step environments, hand over what happened.

An actor with a policy sends unrolls, and loads newer weights between two steps, as soon as the
learner has sent them with an acknowledgement. An actor without a policy sends observations and waits
for actions.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from agents.distributed.observations import ObservingLink
from agents.distributed.protocol import (
    Ack,
    Join,
    Joined,
    Link,
    Refused,
    Rejoin,
    Unrolls,
    Version,
    Weights,
)
from agents.distributed.stepping import Acting, Play, Stepping, row_specs
from agents.distributed.unrolls import unroll_specs
from agents.environments.training import TrainingEnvironments
from config.resolved import Resolved

PAUSE_S = 0.1
"""How long an actor waits before it asks again for the first weights."""
LONGEST_SILENCE_S = 1.0
"""After which an actor says how far it is, however slow its environments are."""


class MakeActing(Protocol):
    """Makes an actor's policy. number: as in `Joined`."""

    def __call__(
        self, resolved: Resolved, environments: TrainingEnvironments, *, run: int, number: int
    ) -> Acting:
        """Make a policy for all of these environments."""


class Joining:
    """The part that all actors share: joining a learner, and its successor after that."""

    def __init__(
        self, resolved: Resolved, *, run: int, member: int, join: Callable[[Join], Joined]
    ) -> None:
        """join: a link's."""
        self._resolved = resolved
        self._run = run
        self._join = join
        self._request = Join(
            incarnation=secrets.randbits(63),
            actor=member,
            environments=resolved.environment.count,
            identity=resolved.identity_hash,
        )
        self._environments: TrainingEnvironments | None = None
        self._steps = 0

    def act(self) -> Iterator[int]:
        """Yields its environment steps so far, about once a second at the least; ends when the learner
        says so. Raises what its link does, and `Diverged` for a NaN that an environment gives.
        """
        while True:
            try:
                joined = self._join(self._request)
                if not joined.stop:
                    yield from self._act_for(joined)
                return
            except Rejoin:
                # Partial unrolls were made by weights of the old learner: they are dropped, and the
                # environments begin anew.
                self.close()

    def _act_for(self, joined: Joined) -> Iterator[int]:
        """Act for one generation of the learner, until there is nothing left to train."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the environments."""
        if self._environments is not None:
            self._environments.close()
            self._environments = None


class Actor(Joining):
    """One of a run's actors, with a policy of its own. Implements `agents.interfaces.Actor`."""

    def __init__(
        self,
        resolved: Resolved,
        *,
        run: int,
        member: int,
        link: Link,
        make_acting: MakeActing,
        overlap: int = 0,
        gathers: bool = True,
    ) -> None:
        """overlap: rows that an unroll has in common with the next one, beside the last. gathers: a
        message waits for an unroll of each environment, which end theirs at different times: it costs
        as much as the steps of a small game that fill it. Otherwise it goes as soon as there is one:
        where a learner holds its actors back, what waits for it is by weights that are the older the
        more waits.
        """
        super().__init__(resolved, run=run, member=member, join=link.join)
        self._link = link
        self._make_acting = make_acting
        self._overlap = overlap
        self._gathers = gathers
        self._version: Version | None = None
        self._returns = list[float]()
        self._lengths = list[int]()

    def _act_for(self, joined: Joined) -> Iterator[int]:
        """Yields after each message, too."""
        # An actor without weights waits for the learner's first ones.
        play = self._begin(joined)
        while (first := self._link.weights(None)) is None:
            yield self._steps
            time.sleep(PAUSE_S)
        self._load(first, play)
        yield self._steps
        least = play.environments.count if self._gathers else 1
        said_s = time.monotonic()
        while True:
            stepped = play.step()
            self._steps += stepped.steps
            self._returns += stepped.returns
            self._lengths += stepped.lengths
            while (unrolls := play.take(joined.generation, least)) is not None:
                if self._stops(self._send(unrolls)):
                    return
                yield self._steps
                said_s = time.monotonic()
            # Weights change between two steps, so that all actions of one step are by one version.
            newer = self._link.newer()
            if newer is not None:
                self._load(newer, play)
            if time.monotonic() - said_s > LONGEST_SILENCE_S:
                yield self._steps
                said_s = time.monotonic()

    def _begin(self, joined: Joined) -> Play:
        environments = self._environments = TrainingEnvironments(
            self._resolved, self._run, joined.number
        )
        acting = self._make_acting(
            self._resolved, environments, run=self._run, number=joined.number
        )
        unroll_length = self._resolved.hyperparameters.unroll_length
        play = Play(environments, acting, unroll_length, self._overlap)
        if play.specs != dict(joined.specs):
            raise Refused("what this actor sees and does is not what the learner learns from", 2)
        return play

    def _load(self, weights: Weights, play: Play) -> None:
        """These act from now on."""
        play.acting.load(weights)
        self._version = weights.version
        play.update = weights.version.update

    def _send(self, unrolls: Unrolls) -> list[Ack]:
        """With all episodes that have ended since the last message that went out."""
        acks = self._link.send(
            replace(unrolls, returns=self._returns, lengths=self._lengths, have=self._version)
        )
        self._returns = []
        self._lengths = []
        return acks

    def _stops(self, acks: list[Ack]) -> bool:
        """Whether nothing is left to train; raises `Refused`."""
        for ack in acks:
            if ack.state == "refused":
                raise Refused(f"unrolls {ack.sequence}: {ack.reason}", 3)
        return any(ack.stop for ack in acks)


CROWD = 2
"""Actors for each processor, from which on they are a crowd. With two processors and 8 actors of 4
Breakouts each, whole groups take 0.7 of the processor time of halves for a step.
"""


def is_crowd(actors: int) -> bool:
    """Whether none of this machine's processors stands still while one of so many actors waits."""
    return actors >= CROWD * len(os.sched_getaffinity(0))


class ObservingActor(Joining):
    """One of a run's actors, without a policy: the learner acts. Implements
    `agents.interfaces.Actor`.
    """

    def __init__(self, resolved: Resolved, *, run: int, member: int, link: ObservingLink) -> None:
        super().__init__(resolved, run=run, member=member, join=link.join)
        self._link = link
        # Numbers of messages go on when another learner takes over, so that none comes twice.
        self._ticks = itertools.count(1)

    def _act_for(self, joined: Joined) -> Iterator[int]:
        stepping = self._begin(joined)
        before = self._steps
        said_s = time.monotonic()
        yield before
        # All groups are shown at once; from then on each answer is followed by the next
        # observations of its group.
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
        # In a crowd on the learner's machine some actor always has something to do, so that halves
        # would only double the messages.
        in_crowd = joined.near and is_crowd(self._resolved.actors.actors)
        environments = self._environments = TrainingEnvironments(
            self._resolved, self._run, joined.number, in_halves=not in_crowd
        )
        length = self._resolved.hyperparameters.unroll_length
        rows = unroll_specs(
            row_specs(environments.interface, environments.observation.dtype), {}, length
        )
        if not joined.answers or not rows.items() <= dict(joined.specs).items():
            raise Refused("what this actor sees and does is not what the learner learns from", 2)
        return Stepping(environments, self._ticks)
