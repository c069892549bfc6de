"""What a learner and its actors say to each other, however it travels: `agents.transport` carries it
between machines, `agents.distributed.exchange` is where it arrives.

An unroll is T + 1 rows of one environment; its last row is the first one of the next unroll. A row
is what was seen, done and answered at one step. An episode that is truncated has one more row: its
final observation, valid = 0, whose forced action does nothing; nothing is learnt from it but its
value. A terminated one has none, its value is 0 by definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np

PROTOCOL = 3
"""Rises when messages change; a learner refuses actors of another one."""

Columns = dict[str, np.ndarray]
"""By name, arrays that have their first axes in common."""
AckState = Literal["queued", "duplicate", "stale", "refused"]


class Version(NamedTuple):
    """Of weights: they never go back, because the generation rises at every start of a learner."""

    generation: int
    update: int


class Spec(NamedTuple):
    """Of one column of an unroll: numpy's name of the type, and the shape of one unroll's part:
    [T + 1, ...] of what every row has, [...] of what only the first row has (a memory's state).
    """

    dtype: str
    shape: tuple[int, ...]


Specs = Mapping[str, Spec]


class Refused(Exception):
    """The learner does not want this actor, or its message; another attempt would end alike.

    exit_code: with which the actor ends: 2 for one that belongs to another experiment or speaks
    another protocol, 3 for experience that cannot be learnt from (a NaN, a wrong shape).
    """

    def __init__(self, message: str, exit_code: Literal[2, 3]) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Unreachable(Exception):
    """There was no learner for as long as an actor waits for one: it ends with 75."""


@dataclass(frozen=True, kw_only=True)
class Join:
    """An actor introduces itself. incarnation: a random number of this process; actor: its member
    number; identity: hash of the experiment's identity.
    """

    incarnation: int
    actor: int
    environments: int
    identity: str
    protocol: int = PROTOCOL


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The learner's answer. number: how many incarnations joined this run before, those that joined
    several generations of the learner counted as often, so that no two draw the same random numbers,
    and none draws again what it drew for an earlier generation; credits: messages of unrolls that
    may be sent and not yet acknowledged; stop: nothing is left to train; answers: the learner acts, and
    wants observations (`agents.distributed.observations`) in the place of unrolls; near: whether it is
    on the actor's machine, which is not said by the learner but seen by the link.
    """

    generation: int
    number: int
    credits: int
    specs: Specs
    stop: bool = False
    answers: bool = False
    near: bool = False


@dataclass(frozen=True, kw_only=True)
class Unrolls:
    """B unrolls of one actor. columns: [B, *spec.shape] each; oldest, newest: of the weights that acted
    in any of them; returns, lengths: of the episodes that ended in them, in the game's own reward and
    in environment steps; have: of the weights that the actor has, where newer
    ones shall come with the acknowledgement (`Link.newer`), None: it asks for them itself.
    """

    columns: Columns
    oldest: Version
    newest: Version
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    have: Version | None = None


@dataclass(frozen=True, kw_only=True)
class Ack:
    """What became of a message of unrolls; newest: the version of the weights that there are."""

    sequence: int
    state: AckState
    newest: Version
    stop: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What an actor needs to act: parameters and buffers by their names in the network's
    `state_dict`, and whatever else the algorithm's policy takes (statistics of observations).
    """

    version: Version
    arrays: Columns


class Receiver(Protocol):
    """The learner's side, called by many threads at once; `agents.distributed.exchange.Exchange`."""

    specs: Specs

    def join(self, request: Join) -> Joined:
        """Raises `Refused`. An actor that lost its connection joins again with the same request, gets
        the same number, and may do so before the loss is noticed.
        """

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        """Serialised once per version (`agents.distributed.weights`), the same buffer for all;
        None: there is nothing newer, or nothing yet: the training has not begun.
        """

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        """Blocks while the queue is full, which is the actors' backpressure. Never raises for what
        an actor sent: a bad message is "refused", with its reason, and counted.
        """

    def left(self, incarnation: int) -> None:
        """A connection of this actor has ended: called once for every `join` that was answered."""


class Link(Protocol):
    """The actor's side: `agents.transport.client.Client` between machines,
    `agents.distributed.local.LocalLink` inside one process. A `Link` reconnects by itself.
    """

    def join(self, request: Join) -> Joined:
        """Raises `Refused`, and `Unreachable` after the time that was given for it."""

    def weights(self, have: Version | None) -> Weights | None:
        """None: there is nothing newer, or nothing yet. Waits for the answer; raises as `join` does, and
        `Rejoin`.
        """

    def newer(self) -> Weights | None:
        """The newest of those that came with acknowledgements since this was last called; None: none
        did. Does not wait; that the connection was lost, `send` finds out.
        """

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """Hand over; waits while all credits are out. Returns what was acknowledged since the last
        call. After a new learner took over (its generation has risen) raises `Rejoin`: the actor
        throws its partial unrolls away, resets its environments and joins again. Raises `Refused`
        with 3 after the learner has refused what was sent.
        """

    def close(self) -> None:
        """End the connection."""


class Rejoin(Exception):
    """Another learner has taken over."""
