"""Where actors' experience arrives, and where they get their weights: the learner's side of
`agents.distributed.protocol`, whatever carries it.

    actors' threads     join, packed_weights, receive, left; hear, place, refuse, where the learner acts
    the learner's       share, begin, publish, take, give_back, ended_episodes, counters, end, close

A message of unrolls that could be learnt from is learnt once or not at all: what was received
before is a duplicate, what is too old when its turn comes is stale, what cannot be learnt from is
refused; each is answered so and counted. Episodes are recorded as soon as they are received.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Generic, Protocol, TypeVar

from agents.distributed.observations import wrong_columns, wrong_episodes
from agents.distributed.protocol import (
    PROTOCOL,
    Ack,
    AckState,
    Columns,
    Join,
    Joined,
    Refused,
    Specs,
    Unrolls,
    Version,
)
from agents.distributed.queues import Placed
from agents.distributed.weights import Packer
from agents.interfaces import State

CREDITS = 2
"""Messages that an actor may have sent without an answer."""
REMEMBERED = 8192
"""Incarnations whose last sequence is known; the one that has been silent longest is forgotten."""


@dataclass
class Counters:
    """Since the training began. queued, stale: unrolls; duplicates, refused: messages; joined:
    incarnations of actors, each once per generation of the learner, or, of several learners, as many
    as the one has that has most; learner_waited_s: for experience; actors_waited_s: for a place in
    the queue, all of them together.
    """

    joined: int = 0
    queued: int = 0
    stale: int = 0
    duplicates: int = 0
    refused: int = 0
    episodes: int = 0
    learner_waited_s: float = 0.0
    actors_waited_s: float = 0.0


Taken = TypeVar("Taken")


class Queue(Protocol[Taken]):
    """Where unrolls wait for the learner and actors wait for room: a `BatchQueue` or a
    `ReplayQueue`.
    """

    def put(self, columns: Columns, oldest: int, wanted: Callable[[], bool]) -> Placed:
        """Called by many threads: blocks while there is no place for more."""

    def take(self, timeout_s: float) -> Taken | None:
        """What the learner uses next; it belongs to the learner until it is given back. None if
        there is nothing yet.
        """

    def give_back(self, taken: Taken) -> None:
        """The learner has done its work with it."""

    def close(self) -> None:
        """Wake everybody who waits here, and accept nothing any more."""

    def __len__(self) -> int:
        """Unrolls that wait for the learner."""


class Exchange(Generic[Taken]):
    """`agents.distributed.protocol.Receiver`, and what a trainer learns from."""

    def __init__(
        self, specs: Specs, *, identity: str, queue: Queue[Taken], max_lag: float = math.inf
    ) -> None:
        """max_lag: updates by which the oldest weights of an unroll may be behind when it is
        queued.
        """
        self.specs = specs
        self._identity = identity
        self._max_lag = max_lag
        self._queue = queue
        self._lock = threading.Lock()
        self._version = Version(0, 0)
        self._packer = Packer()
        self._packed: memoryview | None = None
        self._counters = Counters()
        self._sequences = OrderedDict[int, int]()
        self._numbers = dict[int, int]()
        self._connections = dict[int, int]()
        self._returns = list[float]()
        self._lengths = list[int]()
        self._learner = 0
        self._learners = 1
        self._ended = False

    # Actors call what follows, from many threads at once.

    def join(self, request: Join) -> Joined:
        """Raises `Refused`."""
        if request.protocol != PROTOCOL:
            raise Refused(
                f"this actor speaks protocol {request.protocol}, the learner {PROTOCOL}: "
                "they run different versions of this program",
                2,
            )
        if request.identity != self._identity:
            raise Refused("this actor belongs to another experiment than the learner", 2)
        with self._lock:
            if request.incarnation not in self._numbers:
                # Numbers of several learners' actors are interleaved, so that no two are equal.
                among = self._learners * self._counters.joined
                self._numbers[request.incarnation] = self._learner + among
                self._counters.joined += 1
            self._remember(request.incarnation, self._sequences.get(request.incarnation, -1))
            # A new connection may come before the loss of the old one is noticed: both are counted.
            connections = self._connections.get(request.incarnation, 0)
            self._connections[request.incarnation] = connections + 1
            return Joined(
                generation=self._version.generation, number=self._numbers[request.incarnation],
                credits=CREDITS, specs=self.specs, stop=self._ended,
            )  # fmt: skip

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        """The newest weights, in one buffer for all who ask. None if there is nothing newer, or
        nothing yet.
        """
        with self._lock:
            if self._packed is None or have == self._version:
                return None
            return self._version, self._packed

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        """Blocks while the queue is full."""
        complaint = self._complaint(unrolls)
        with self._lock:
            if complaint:
                self._counters.refused += 1
                return self._ack(sequence, "refused", complaint)
            # After a restart actors join anew; what they sent before belongs to the old learner.
            if incarnation not in self._numbers:
                return self._ack(sequence, "stale", "it comes from before this learner")
            if not self._is_news(incarnation, sequence, unrolls.returns, unrolls.lengths):
                self._counters.duplicates += 1
                return self._ack(sequence, "duplicate")
        # The lock is not held here: other actors must be able to ask while this one waits for room.
        placed = self.place(unrolls)
        with self._lock:
            if placed.count == len(next(iter(unrolls.columns.values()))):
                return self._ack(sequence, "queued")
            if placed.unwanted:
                return self._ack(sequence, "stale", f"weights {unrolls.oldest} are too old")
            return self._ack(sequence, "stale", "the learner takes nothing any more")

    def place(self, unrolls: Unrolls) -> Placed:
        """Unrolls that are sound and came once: blocks while the queue is full."""
        placed = self._queue.put(
            unrolls.columns, unrolls.oldest.update, lambda: self._is_wanted(unrolls.oldest)
        )
        with self._lock:
            self._counters.queued += placed.count
            self._counters.stale += placed.unwanted
            self._counters.actors_waited_s += placed.waited_s
        return placed

    def hear(
        self, incarnation: int, sequence: int, returns: list[float], lengths: list[int]
    ) -> None:
        """A sound message that holds no unrolls, of an actor that has joined: its episodes are
        recorded when it comes for the first time.
        """
        with self._lock:
            if not self._is_news(incarnation, sequence, returns, lengths):
                self._counters.duplicates += 1

    def refuse(self) -> None:
        """A message that held no unrolls was none that can be learnt from."""
        with self._lock:
            self._counters.refused += 1

    def number(self, incarnation: int) -> int:
        """The number of an actor that has joined, as in `Joined`."""
        with self._lock:
            return self._numbers[incarnation]

    def left(self, incarnation: int) -> None:
        """A connection of this actor has ended."""
        with self._lock:
            connections = self._connections.pop(incarnation, 0) - 1
            if connections > 0:
                self._connections[incarnation] = connections

    def _is_wanted(self, oldest: Version) -> bool:
        """Whether experience with these weights may still be learnt from."""
        version = self._version
        lag = version.update - oldest.update
        return oldest.generation == version.generation and lag <= self._max_lag

    def _is_news(
        self, incarnation: int, sequence: int, returns: list[float], lengths: list[int]
    ) -> bool:
        """Whether a message comes for the first time; then its episodes are recorded."""
        # Sequences of one incarnation only rise, so the last one tells which were received.
        if sequence <= self._sequences.get(incarnation, -1):
            return False
        self._remember(incarnation, sequence)
        self._returns += returns
        self._lengths += lengths
        self._counters.episodes += len(returns)
        return True

    def _remember(self, incarnation: int, sequence: int) -> None:
        self._sequences[incarnation] = sequence
        self._sequences.move_to_end(incarnation)
        while len(self._sequences) > REMEMBERED:
            forgotten, _ = self._sequences.popitem(last=False)
            self._numbers.pop(forgotten, None)

    def _ack(self, sequence: int, state: AckState, reason: str = "") -> Ack:
        return Ack(
            sequence=sequence, state=state, newest=self._version, stop=self._ended, reason=reason
        )

    def _complaint(self, unrolls: Unrolls) -> str:
        """What is wrong with a message; empty if nothing is."""
        try:
            return (
                wrong_columns(unrolls.columns, self.specs)
                or self._wrong_versions(unrolls)
                or wrong_episodes(unrolls.returns, unrolls.lengths)
            )
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            return f"it is no message of unrolls: {error}"

    def _wrong_versions(self, unrolls: Unrolls) -> str:
        if not unrolls.oldest <= unrolls.newest:
            return f"its weights go from {unrolls.oldest} to {unrolls.newest}"
        # Weights of this generation that were not published yet cannot have acted.
        if unrolls.newest > self._version and unrolls.newest.generation == self._version.generation:
            return f"its weights {unrolls.newest} never were"
        return ""

    # The learner's thread calls what follows.

    def share(self, learner: int, learners: int) -> None:
        """It belongs to one of several learners, from 0, whose actors' numbers all differ."""
        self._learner = learner
        self._learners = learners

    def number_from(self, joined: int) -> None:
        """The next actor has the number that it would have after so many."""
        with self._lock:
            self._counters.joined = max(self._counters.joined, joined)

    def begin(self, generation: int) -> None:
        """A start of the learner, and so another generation: this one, or the one after that of
        `load_state_dict` if that is higher. Nothing is published in it yet.
        """
        with self._lock:
            # Generations never go back, even if the caller's number does: actors follow the highest
            # one.
            generation = max(generation, self._version.generation + 1)
            self._version = Version(generation, 0)
            self._packed = None

    def publish(self, update: int, arrays: Columns) -> None:
        """The weights after so many updates, for all actors."""
        # Packed before the lock is taken: actors that ask meanwhile get the version before.
        packed = self._packer.pack(arrays)
        with self._lock:
            self._version = self._version._replace(update=update)
            self._packed = packed

    def take(self, timeout_s: float) -> Taken | None:
        """What the queue has for the learner, which must give it back. None if there is nothing
        yet.
        """
        started_s = time.monotonic()
        taken = self._queue.take(timeout_s)
        with self._lock:
            self._counters.learner_waited_s += time.monotonic() - started_s
        return taken

    def give_back(self, taken: Taken) -> None:
        """The learner has done its work with it."""
        self._queue.give_back(taken)

    def ended_episodes(self) -> tuple[list[float], list[int]]:
        """Returns and lengths of those that were received since this was last called."""
        with self._lock:
            returns = self._returns
            lengths = self._lengths
            self._returns = []
            self._lengths = []
            return returns, lengths

    def put_back(self, returns: list[float], lengths: list[int]) -> None:
        """Episodes that were taken and could not be recorded."""
        with self._lock:
            self._returns = returns + self._returns
            self._lengths = lengths + self._lengths

    def counters(self) -> dict[str, float]:
        """`Counters`, and what there is now: actors that are connected, unrolls that wait."""
        with self._lock:
            found = asdict(self._counters) | {"actors": len(self._connections)}
        return found | {"waiting": len(self._queue)}

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train."""
        return self._ended

    def end(self) -> None:
        """Tell actors that nothing is left to train, and wake everybody who waits here."""
        self._ended = True
        self._queue.close()

    def close(self) -> None:
        """The learner leaves; another one may follow."""
        self._queue.close()

    def state_dict(self) -> State:
        """Everything but what waits in the queue, which is lost with this learner."""
        with self._lock:
            return {
                "generation": self._version.generation,
                "counters": asdict(self._counters),
                "sequences": {str(one): last for one, last in self._sequences.items()},
                "returns": list(self._returns),
                "lengths": list(self._lengths),
            }

    def load_state_dict(self, state: State) -> None:
        """Another learner goes on; `begin` follows, and its actors join anew."""
        with self._lock:
            self._version = Version(int(state["generation"]), 0)
            self._counters = Counters(**state["counters"])
            self._sequences = OrderedDict(
                (int(one), int(last)) for one, last in state["sequences"].items()
            )
            self._returns = [float(one) for one in state["returns"]]
            self._lengths = [int(one) for one in state["lengths"]]
