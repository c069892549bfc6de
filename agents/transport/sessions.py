"""The actors that are connected to a learner: their sessions, the stream `Act` of those that only
show observations, and counters of what they sent.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import grpc

from agents.distributed.observations import Actions, Answering
from agents.distributed.protocol import Refused
from agents.transport.messages import (
    largest_observations,
    pack_actions,
    parse_observations,
    unpack_observations,
)
from agents.transport.tensors import BadMessage

PENDING_S = 60.0
"""Seconds within which an actor that has joined must open its stream."""


@dataclass(eq=False)
class Session:
    """One actor's session, from joining until its stream ends.

    receiving: held while a message of this actor is handed over, so that one that comes again over
    a new connection finds the first one's fate decided; accepted: the learner counts on it; cancel:
    ends the stream; None before there is one.
    """

    incarnation: int
    receiving: threading.Lock = field(default_factory=threading.Lock)
    accepted: bool = False
    joined_at: float = field(default_factory=time.monotonic)
    cancel: Callable[[], object] | None = None


class Sessions:
    """One session per incarnation, and at most `most`. left: called once for every accepted session
    when it has ended.
    """

    def __init__(self, most: int, left: Callable[[int], None]) -> None:
        self._most = most
        self._left = left
        self._lock = threading.Lock()
        self._of = dict[int, Session]()

    def join(self, incarnation: int) -> Session | None:
        """Begin a session, replacing an older one of this incarnation; None if there are too many."""
        self._end_those_that_never_came()
        with self._lock:
            old = self._of.get(incarnation)
            if old is None and len(self._of) >= self._most:
                return None
            session = self._of[incarnation] = Session(incarnation)
            if old is not None:
                # The two share a lock, so that a message sent again waits until the first one was
                # taken in.
                session.receiving = old.receiving
        if old is not None:
            # A cancelled stream ends its session itself; one that has no stream is ended here.
            if old.cancel is not None:
                old.cancel()
            else:
                self.end(old)
        return session

    def open(self, incarnation: int, cancel: Callable[[], object]) -> Session | None:
        """The session of an actor that opens its stream; None if it has not joined, or has a stream
        already.
        """
        with self._lock:
            session = self._of.get(incarnation)
            if session is None or session.cancel is not None:
                return None
            session.cancel = cancel
            return session

    def end(self, session: Session) -> None:
        """End a session: its stream has ended, or the learner declined the actor."""
        with self._lock:
            # A newer session of the same actor may have taken the place.
            if self._of.get(session.incarnation) is session:
                del self._of[session.incarnation]
        if session.accepted:
            self._left(session.incarnation)

    @property
    def connected(self) -> int:
        """The number of actors with an open stream."""
        self._end_those_that_never_came()
        with self._lock:
            return sum(session.cancel is not None for session in self._of.values())

    def _end_those_that_never_came(self) -> None:
        latest = time.monotonic() - PENDING_S
        with self._lock:
            late = [one for one in self._of.values() if not one.cancel and one.joined_at < latest]
            for session in late:
                del self._of[session.incarnation]
        for session in late:
            self.end(session)


class Act:
    """Passes to a receiver what is sound, and counts what is refused. environments: the most of one
    actor.
    """

    def __init__(self, receiver: Answering, environments: int, counters: Counters) -> None:
        self._receiver = receiver
        self._environments = environments
        self._counters = counters
        self.largest_message = largest_observations(receiver.shown, environments)

    def answers(
        self, session: Session, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """`Observations` -> `Actions`, one each, in the order in which they are there."""
        answers = queue.SimpleQueue[Actions | None]()
        stream = self._receiver.open(session.incarnation, answers.put)
        reader = threading.Thread(
            target=self._read, args=(session, stream, requests, answers), name="observations",
            daemon=True,
        )  # fmt: skip
        try:
            # gRPC calls this back when the call ends, for whatever reason; False: it has ended
            # already.
            if context.add_callback(lambda: answers.put(None)):
                reader.start()
                yield from map(pack_actions, iter(answers.get, None))
        finally:
            self._receiver.leave(stream)

    def _read(
        self,
        session: Session,
        stream: object,
        requests: Iterator[bytes],
        answers: queue.SimpleQueue[Actions | None],
    ) -> None:
        """Read observations until the stream ends or one message is refused."""
        try:
            for raw in requests:
                refusal = self._observe(session, stream, raw)
                if refusal is not None:
                    answers.put(refusal)
                    break
        except grpc.RpcError:
            # The actor has gone, which ends the stream as usual.
            pass
        finally:
            answers.put(None)

    def _observe(self, session: Session, stream: object, raw: bytes) -> Actions | None:
        """Hand one message to the receiver; returns a refusal to answer with, or None."""
        began = time.perf_counter()
        tick = group = 0
        try:
            message = parse_observations(raw, self.largest_message)
            tick = message.tick
            group = message.group
            observations = unpack_observations(message, self._receiver.shown, self._environments)
            checked = time.perf_counter()
            with session.receiving:
                self._receiver.observe(stream, observations)
        except BadMessage as bad:
            self._counters.refused(bad.reason)
            return Actions(tick=tick, group=group, refused=str(bad))
        except Refused as refused:
            self._counters.refused("observations")
            return Actions(tick=tick, group=group, refused=str(refused))
        self._counters.received(len(raw), checked - began, time.perf_counter() - checked)
        return None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Totals since the service began, at one moment.

    received_bytes, messages: of the unrolls that reached the learner. sent_bytes: of weights.
    handling_s: seconds in which unrolls were read and checked. waiting_s: seconds until the learner had
    taken them. refused: number of refused messages by reason. actors: number of connections.
    """

    received_bytes: int
    sent_bytes: int
    messages: int
    handling_s: float
    waiting_s: float
    refused: Mapping[str, int]
    actors: int


class Counters:
    """Written by many threads at once. Reasons are few and fixed, so that nobody outside can make
    them grow.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received = self._sent = self._messages = 0
        self._handling_s = self._waiting_s = 0.0
        self._refused = Counter[str]()

    def received(self, size: int, handling_s: float, waiting_s: float) -> None:
        """Count one message of unrolls or observations."""
        with self._lock:
            self._received += size
            self._messages += 1
            self._handling_s += handling_s
            self._waiting_s += waiting_s

    def sent(self, size: int) -> None:
        """Count `size` bytes of weights."""
        with self._lock:
            self._sent += size

    def refused(self, reason: str) -> None:
        """Count one refused call or message."""
        with self._lock:
            self._refused[reason] += 1

    def read(self, actors: int) -> Traffic:
        """A consistent copy of all totals; actors: the number connected now."""
        with self._lock:
            return Traffic(
                received_bytes=self._received,
                sent_bytes=self._sent,
                messages=self._messages,
                handling_s=self._handling_s,
                waiting_s=self._waiting_s,
                refused=dict(self._refused),
                actors=actors,
            )
