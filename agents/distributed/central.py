"""Central inference: the learner acts for its actors, which hold no policy and only step environments
(SEED RL, Espeholt et al. 2020, arXiv:1910.06591).

    the streams' threads    open; observe: check, complete the rows, hand over what is finished; leave
    a thread of this        batches of what waits: the newest weights, one forward pass, the answers

Weights change between two batches. What is remembered of an actor's episodes, and its unfinished
unrolls, belong to its stream, and go with it. A group whose finished unrolls find no place in the
queue is not acted for until they do: the queue bounds how old experience is, as with actors that act.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from agents.distributed.exchange import Exchange
from agents.distributed.observations import (
    Actions,
    Answer,
    Observations,
    shown_specs,
    wrong_observations,
)
from agents.distributed.protocol import Ack, Join, Joined, Refused, Specs, Unrolls, Version, Weights
from agents.distributed.stepping import Acted, Remembers, Trajectories
from agents.distributed.weights import unpack
from agents.environments.training import halves


class Turn(NamedTuple):
    """The environments of one actor at these places [n], as part of a batch. The fields are the
    arguments of `Acting.act`.
    """

    memory: Any
    places: slice
    observations: np.ndarray
    begins: np.ndarray
    masks: np.ndarray | None


class BatchedActing(Protocol):
    """An algorithm's policy, for many actors."""

    def load(self, weights: Weights) -> None:
        """Act by these from now on; the arrays are not kept."""

    def begin(self, environments: int, number: int, again: int) -> Remembers:
        """A new memory for an actor with this many environments. number: as in `Joined`. again: how
        often this was called for the actor before, so that no noise is drawn twice.
        """

    def act(self, turns: Sequence[Turn]) -> list[Acted]:
        """Act in all of them at once and update their memories."""


@dataclass(eq=False)
class Stream:
    """An actor's, while it is connected. groups: of its environments, none until its first message;
    trajectories: of these; acting: groups that wait for their actions.
    """

    incarnation: int
    answer: Answer
    memory: Any
    groups: tuple[slice, ...] = ()
    trajectories: Trajectories | None = None
    acting: set[int] = field(default_factory=set)
    tick: int = -1


class _Waiting(NamedTuple):
    stream: Stream
    observations: Observations


class CentralInference:
    """`agents.distributed.observations.AnsweringReceiver`, in front of an exchange that has begun."""

    def __init__(
        self,
        exchange: Exchange[Any],
        acting: BatchedActing,
        *,
        rows: Specs,
        choices: Sequence[int],
        environments: int,
        unroll_length: int,
    ) -> None:
        """rows: of an environment's rows (`row_specs`); choices: of each component of its actions,
        where it has masks; environments: of an actor.
        """
        self.specs = exchange.specs
        self.shown = shown_specs(rows)
        self._exchange = exchange
        self._acting = acting
        self._rows = rows
        self._choices = choices
        self._count = environments
        self._length = unroll_length
        self._batcher = Batcher[_Waiting]()
        self._version: Version | None = None
        self._streams = Counter[int]()
        self._error: BaseException | None = None
        self._load_newest()
        # The thread begins with weights: the exchange has begun, so some were published.
        self._thread = threading.Thread(target=self._run, name="inference", daemon=True)
        self._thread.start()

    def join(self, request: Join) -> Joined:
        """See the exchange; so are the next three."""
        return replace(self._exchange.join(request), answers=True)

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        """Nobody needs to ask."""
        return self._exchange.packed_weights(have)

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        """Nobody needs to send them."""
        return self._exchange.receive(incarnation, sequence, unrolls)

    def left(self, incarnation: int) -> None:
        """A connection of this actor has ended."""
        self._exchange.left(incarnation)

    def open(self, incarnation: int, answer: Answer) -> Stream:
        """A stream begins, of whose environments nothing is known."""
        number = self._exchange.number(incarnation)
        # An actor that comes back gets zero states: its environments begin anew.
        memory = self._acting.begin(self._count, number, self._streams[number])
        self._streams[number] += 1
        stream = Stream(incarnation, answer, memory)
        self._batcher.enter(stream, self._count)
        return stream

    def observe(self, stream: Stream, observations: Observations) -> None:
        """Blocks while there is no place for what it finishes; raises `Refused`."""
        rows = len(observations.columns["begins"])
        trajectories = stream.trajectories or self._begun(stream, rows)
        complaint = self._complaint(stream, observations)
        if complaint:
            self._exchange.refuse()
            raise Refused(f"observations {observations.tick}: {complaint}", 3)
        stream.tick = observations.tick
        stream.acting.add(observations.group)
        self._exchange.hear(
            stream.incarnation, observations.tick, observations.returns, observations.lengths
        )
        trajectories.answered(observations)
        unrolls = trajectories.take(self._newest.generation)
        if unrolls is not None:
            # `place` may block until the queue has room. Meanwhile no batch waits for this stream.
            self._batcher.hold(stream)
            self._exchange.place(unrolls)
        self._batcher.add(stream, rows, _Waiting(stream, observations))

    def leave(self, stream: Stream) -> None:
        """Nobody waits for it any more."""
        self._batcher.leave(stream)

    def check(self) -> None:
        """Raise what ended the inference, if anything has."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop answering. May be called again."""
        self._batcher.close()
        self._thread.join()

    def _begun(self, stream: Stream, rows: int) -> Trajectories:
        """An actor's first message has so many rows: it steps all environments at once, or halves."""
        whole = (slice(0, self._count),)
        stream.groups = whole if rows == self._count else halves(self._count)
        stream.trajectories = Trajectories(self._rows, stream.memory, stream.groups, self._length)
        return stream.trajectories

    def _complaint(self, stream: Stream, shown: Observations) -> str:
        """What is wrong with a message; empty if nothing is."""
        if not 0 <= shown.group < len(stream.groups):
            return f"there is no group {shown.group}"
        if shown.tick <= stream.tick:
            return f"{stream.tick} was here already"
        if shown.group in stream.acting:
            return f"group {shown.group} has not been answered yet"
        rows = stream.groups[shown.group]
        return wrong_observations(shown, self.shown, rows.stop - rows.start, self._choices)

    # The inference thread runs what follows.

    def _run(self) -> None:
        try:
            while waiting := self._batcher.take():
                began_s = time.perf_counter()
                # Weights change between two batches only: all rows of one are by one policy.
                self._load_newest()
                self._answer(waiting)
                self._batcher.took(time.perf_counter() - began_s)
        except Exception as error:
            # `check` raises it in the learner's thread, which ends the training.
            self._error = error
            self._batcher.close()

    def _answer(self, waiting: list[_Waiting]) -> None:
        acted = self._acting.act([self._turn(*one) for one in waiting])
        update = self._newest.update
        stop = self._exchange.ended
        for (stream, shown), one in zip(waiting, acted, strict=True):
            if stream.trajectories is not None:
                stream.trajectories.acted(shown, one, update)
            stream.acting.discard(shown.group)
            actions = None if stop else one.actions
            stream.answer(Actions(tick=shown.tick, group=shown.group, stop=stop, actions=actions))

    def _turn(self, stream: Stream, shown: Observations) -> Turn:
        columns = shown.columns
        return Turn(
            stream.memory, stream.groups[shown.group], columns["observation"], columns["begins"],
            columns.get("mask"),
        )  # fmt: skip

    def _load_newest(self) -> None:
        """Before the first batch there are some."""
        packed = self._exchange.packed_weights(self._version)
        if packed is not None:
            self._acting.load(unpack(*packed))
            self._version = packed[0]

    @property
    def _newest(self) -> Version:
        if self._version is None:
            raise RuntimeError("no weights were published")
        return self._version


T = TypeVar("T")
SHORTEST_WAIT_S = 1e-3


class _Item(NamedTuple, Generic[T]):
    stream: Hashable
    rows: int
    item: T


class Batcher(Generic[T]):
    """Filled by many threads and emptied by one. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._rows = dict[Hashable, int]()
        self._held = set[Hashable]()
        self._waiting = list[_Item[T]]()
        self._since = self._took_s = 0.0
        self._closed = False

    def enter(self, stream: Hashable, rows: int) -> None:
        """Note that a stream begins. rows: number of rows of all its groups together."""
        with self._changed:
            self._rows[stream] = rows

    def leave(self, stream: Hashable) -> None:
        """Note that a stream has ended. Its waiting turns are dropped."""
        with self._changed:
            self._rows.pop(stream, None)
            self._held.discard(stream)
            self._waiting = [one for one in self._waiting if one.stream != stream]
            self._changed.notify()

    def hold(self, stream: Hashable) -> None:
        """Do not wait for this stream's turns until it adds one: it waits for something else."""
        with self._changed:
            if stream in self._rows:
                self._held.add(stream)
            self._changed.notify()

    def add(self, stream: Hashable, rows: int, item: T) -> None:
        """Put a turn into the queue, unless its stream has ended."""
        with self._changed:
            if stream not in self._rows:
                return
            self._held.discard(stream)
            if not self._waiting:
                self._since = self._clock()
            self._waiting.append(_Item(stream, rows, item))
            # The thread is woken only when its wait begins or ends: by the first turn, and by the
            # one that makes the batch large enough.
            if len(self._waiting) == 1 or self._is_enough():
                self._changed.notify()

    def take(self) -> list[T]:
        """All waiting turns, as soon as they should be answered. Empty once this is closed."""
        with self._changed:
            while not self._closed and not self._is_due():
                # While there is no turn the thread waits without a limit: `add` wakes it.
                patience_s = self._patience_s() if self._waiting else None
                self._changed.wait(patience_s)
            taken = self._waiting
            self._waiting = []
            return [] if self._closed else [one.item for one in taken]

    def took(self, seconds: float) -> None:
        """Note how long answering the last batch took."""
        self._took_s = seconds

    def close(self) -> None:
        """Stop answering."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _is_due(self) -> bool:
        return bool(self._waiting) and (self._is_enough() or self._patience_s() <= 0)

    def _is_enough(self) -> bool:
        """Whether waiting for more turns is not worth it."""
        live = self._rows.keys() - self._held
        rows = sum(one.rows for one in self._waiting)
        # Half of the live environments are enough, because the other halves step meanwhile. (SEED
        # RL waits for a fixed number, for ever when an actor dies.)
        if 2 * rows >= sum(self._rows[stream] for stream in live):
            return True
        return live <= {one.stream for one in self._waiting}

    def _patience_s(self) -> float:
        """How much longer the oldest turn may wait for others."""
        allowed_s = max(self._took_s / 2, SHORTEST_WAIT_S)
        return self._since + allowed_s - self._clock()
