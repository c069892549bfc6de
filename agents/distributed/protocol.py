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

    from config.resolved import Resolved

PROTOCOL = 3
"""Raised when messages change; a learner refuses actors with another number."""

Columns = dict[str, np.ndarray]
"""Arrays by name, with the same first axes."""
AckState = Literal["queued", "duplicate", "stale", "refused"]


class Version(NamedTuple):
    """The version of weights. It never decreases: the generation rises at every start of a learner, the
    update within one.
    """

    generation: int
    update: int


class Spec(NamedTuple):
    """One column of an unroll: the name of its numpy type, and its shape in one unroll: [T + 1, ...] if
    every row has a value, [...] if only the first row has one (a recurrent state).
    """

    dtype: str
    shape: tuple[int, ...]


Specs = Mapping[str, Spec]


class Refused(Exception):
    """The learner declined the actor or its message; trying again would not help.

    exit_code: the actor's exit code: 2 if it belongs to another experiment or has another protocol, 3
    if its experience cannot be learnt from (a NaN, a wrong shape).
    """

    def __init__(self, message: str, exit_code: Literal[2, 3]) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Unreachable(Exception):
    """No learner was found within the time that an actor waits for one; the actor exits with 75."""


@dataclass(frozen=True, kw_only=True)
class Join:
    """An actor's request to join. incarnation: a random number, drawn once per process; actor: its
    member number; environments: how many it steps; identity: hash of the experiment's identity.
    """

    incarnation: int
    actor: int
    environments: int
    identity: str
    protocol: int = PROTOCOL


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The learner's answer to `Join`.

    number: how many times an incarnation joined this run before, over all generations of the learner.
    It seeds the actor, so that no two actors draw the same random numbers, and none repeats those of
    an earlier generation. credits: how many messages of unrolls may be unacknowledged at a time. stop:
    the training is complete. answers: the learner acts and wants observations
    (`agents.distributed.observations`) instead of unrolls. near: the learner is on the actor's
    machine; set by the link, not sent.
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
    """B unrolls of one actor.

    columns: arrays [B, *spec.shape]. oldest, newest: versions of the weights that chose the actions.
    returns, lengths: of the episodes that ended in these unrolls, in the game's own reward and in
    environment steps. have: the version that the actor holds, if it wants newer weights with the
    acknowledgement (`Link.newer`); None if it requests weights itself.
    """

    columns: Columns
    oldest: Version
    newest: Version
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    have: Version | None = None


@dataclass(frozen=True, kw_only=True)
class Ack:
    """The learner's answer to `Unrolls`. newest: the latest version of the weights."""

    sequence: int
    state: AckState
    newest: Version
    stop: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """All arrays that an actor needs to act: parameters and buffers by their names in the network's
    `state_dict`, and others that the policy uses (statistics of observations).
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
        """Weights newer than `have`, packed once per version (`agents.distributed.weights`) into a
        buffer shared by all actors; None if there are none, or the training has not begun.
        """

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        """Take unrolls. Blocks while the queue is full, which slows the actors down. Never raises for
        the content of a message: a bad one is answered with state "refused" and a reason, and counted.
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
        """Weights newer than `have`, or None if there are none. Waits for the answer; raises what `join`
        raises, and `Rejoin`.
        """

    def newer(self) -> Weights | None:
        """The newest weights received with acknowledgements since the last call, or None. Does not
        wait, and does not notice a lost connection; `send` does.
        """

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """Send unrolls, waiting while all credits are used. Returns the acknowledgements received
        since the last call.

        Raises `Rejoin` after a new learner took over (its generation is higher): the actor then drops
        its partial unrolls, resets its environments and joins again. Raises `Refused` with exit code 3
        if the learner refused a message.
        """

    def close(self) -> None:
        """End the connection."""


class Rejoin(Exception):
    """A new learner has taken over; the actor has to join it."""


class PeersLost(Exception):
    """Another learner has ended, or does not answer."""


class Peers(Protocol):
    """The learners of a run, seen by one of them; number: its own, from 0 to count − 1."""

    number: int
    count: int

    def sum(self, values: Tensor) -> None:
        """Sum `values` over all learners in place (all-reduce); all get the same bits.

        Every learner must call it with the same shape, type and kind of device; blocks until all have.
        Raises `PeersLost`; `values` is undefined then.
        """


class Learner(Resumable, Protocol):
    """A training whose experience comes from actors in other processes."""

    def receiver(self, generation: int) -> Receiver:
        """The object that receives the actors' messages. Called once, after `load_state_dict` and
        before `train`. generation: higher than at any earlier start of this learner.
        """

    def train(self) -> Iterator[Progress | None]:
        """Yield one `Progress` per epoch until `epochs` are done, and None about once a second while
        no experience arrives; raises `config.errors.Diverged` instead of making a non-finite update.
        """

    def close(self) -> None:
        """Release resources and wake every thread that waits in the receiver; may be called again."""


@runtime_checkable
class HasCounters(Protocol):
    """Optional for learners: totals of what became of the actors' messages. Without it, only the
    transport's own counters are recorded.
    """

    def counters(self) -> Mapping[str, float]:
        """Totals since the training began, and what waits now: as of
        `agents.distributed.exchange.Exchange`.
        """


@runtime_checkable
class LearnsTogether(Protocol):
    """Required of a learner if a run may have several learners."""

    def learn_with(self, peers: Peers) -> None:
        """Learn together with `peers` from now on, starting from the first learner's state. Called at
        most once, before `receiver`. It and `train` then raise `PeersLost`, always between two
        updates, so that the state learnt so far can be saved.
        """


class MakeLearner(Protocol):
    """The callable named by the `trainer` of an algorithm with actors."""

    def __call__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> Learner:
        """Make the training of one run; device and precision are already decided (never `auto`)."""


class Actor(Protocol):
    """Steps environments for the learner at the other end of a link."""

    def act(self) -> Iterator[int]:
        """Step environments until the learner says stop. Yields the total of environment steps so far,
        at least after each message to the learner. Raises what its link raises.
        """

    def close(self) -> None:
        """Release the environments."""


class MakeActor(Protocol):
    """The callable named by a descriptor's `actor`."""

    def __call__(self, resolved: Resolved, *, run: int, member: int, link: Link) -> Actor:
        """Make one of a run's actors; member: its number, from 0. It has not joined yet."""
