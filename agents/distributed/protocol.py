"""What a learner and its actors say to each other, and the roles of both. `agents.transport` carries the
messages between machines, `agents.distributed.exchange` receives them.

An unroll is T + 1 rows of one environment; its last row is the first row of the next unroll. A row
holds the observation of one step, the action taken there, and the reward and termination that
followed. An episode that was truncated has one more row for its final observation: `valid` is 0 and
the action is ignored, so only the row's value is used. A terminated episode has no such row, because
its value is 0 by definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from agents.interfaces import Progress, Resumable

if TYPE_CHECKING:
    from torch import Tensor

    from config.resolve import Resolved

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


class PeersLost(Exception):
    """One of the learners has ended, or does not answer."""


class Peers(Protocol):
    """The learners of a run, seen by one of them; number: its own, from 0 to count − 1."""

    number: int
    count: int

    def sum(self, values: Tensor) -> None:
        """Add up in place, over all learners, each of which calls this with the same shape, type and
        kind of device; all have the same bits then. Blocks until all have come. Raises `PeersLost`; the
        values are worth nothing then.
        """


class Learner(Resumable, Protocol):
    """A training whose experience comes from actors, in other processes."""

    def receiver(self, generation: int) -> Receiver:
        """Where what they send arrives, of this start of the learner; called once, before `train`
        and after `load_state_dict`. generation: higher than at any start before.
        """

    def train(self) -> Iterator[Progress | None]:
        """One `Progress` an epoch until `epochs` are done, and None about once a second while there
        is nothing to learn from; raises `config.errors.Diverged` before a non-finite update.
        """

    def close(self) -> None:
        """Release what it holds, and let nobody wait in the receiver any more; may come again."""


@runtime_checkable
class HasCounters(Protocol):
    """What a learner has as well that can say what became of what actors sent; without it the files
    hold only what the service counts.
    """

    def counters(self) -> Mapping[str, float]:
        """Totals since the training began, and what waits now: as of
        `agents.distributed.exchange.Exchange`.
        """


@runtime_checkable
class LearnsTogether(Protocol):
    """What a learner has as well of which a run may have several."""

    def learn_with(self, peers: Peers) -> None:
        """As one of several from now on, from where the first of them is; called at most once, before
        `receiver`. Raises `agents.distributed.protocol.PeersLost`, as `train` does then: between two
        updates, so that what was learnt until then may be kept.
        """


class MakeLearner(Protocol):
    """What a descriptor's `trainer` names, of an algorithm with actors."""

    def __call__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> Learner:
        """The training of one run, at its start; device and precision are decided."""


class Actor(Protocol):
    """Steps environments for a learner, which it finds at the other end of a link."""

    def act(self) -> Iterator[int]:
        """Yields environment steps, all that have been done since it was made, at the latest after
        each message to the learner; ends when the learner says so. Raises what its link does.
        """

    def close(self) -> None:
        """Release the environments."""


class MakeActor(Protocol):
    """What a descriptor's `actor` names."""

    def __call__(self, resolved: Resolved, *, run: int, member: int, link: Link) -> Actor:
        """One of a run's actors, by its number from 0; not joined yet."""
