"""The actor's end of the connection: a `Link` that finds its learner, and finds it again when the
connection is lost.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agents.distributed.observations import Actions, Observations
from agents.distributed.protocol import (
    Ack,
    Join,
    Joined,
    Refused,
    Rejoin,
    Unreachable,
    Unrolls,
    Version,
    Weights,
)
from agents.distributed.weights import Buffers
from agents.transport import calls
from agents.transport.address import Address
from agents.transport.connection import Connection, Denied, Lost
from agents.transport.messages import pack_observations, pack_unrolls


class Client:
    """A `Link` and an `ObservingLink`, whichever the learner wants. Used by one thread; `close` may
    come from another.

    find: reads where the learner is, None if that is not known; called at every attempt. unpack:
    from `Receiver.packed_weights`' buffer. reconnect_timeout_s: for so long the actor waits for a
    learner before it raises `Unreachable`.
    """

    def __init__(
        self,
        find: Callable[[], Address | None],
        *,
        unpack: Callable[[Version, memoryview], Weights],
        reconnect_timeout_s: float,
        keepalive_s: float = calls.KEEPALIVE_S,
    ) -> None:
        self._learner = LastingConnection(find, reconnect_timeout_s, keepalive_s)
        self._unpack = unpack
        self._buffers = Buffers()
        self._credits = self._sequence = 0

    def join(self, request: Join) -> Joined:
        """Raises `Refused` and `Unreachable`, as every method here does."""
        joined = self._learner.join(request)
        self._credits = joined.credits
        return joined

    def weights(self, have: Version | None) -> Weights | None:
        """Newer weights, or None. Raises `Rejoin` after another learner took over."""
        learner = self._learner
        while True:
            try:
                packed = learner.connected().weights(learner.generation, have, self._buffers)
            except Lost as lost:
                learner.reconnect(lost)
            else:
                return None if packed is None else self._unpack(*packed)

    def newer(self) -> Weights | None:
        """The newest weights received with acknowledgements since the last call, or None. Raises
        `Unreachable` after `close`.
        """
        packed = self._learner.connected().newer()
        return None if packed is None else self._unpack(*packed)

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """Waits while all credits are out; returns what was acknowledged since the last call.

        What was not acknowledged when the connection was lost is sent again, under its old sequence
        number. Raises `Rejoin`, and `Refused` for experience that the learner refuses.
        """
        self._learner.connected()
        message = pack_unrolls(self._sequence + 1, unrolls)
        self._check_size(message)
        acks = list[Ack]()
        # Backpressure: an actor waits here while the learner's queue is full.
        while len(self._learner.unanswered) >= self._credits:
            acks += self._acknowledgement(None)
        self._sequence += 1
        self._learner.send(self._sequence, message)
        # What has been acknowledged by now, without waiting.
        while got := self._acknowledgement(0):
            acks += got
        return acks

    def observe(self, observations: Observations) -> None:
        """Send observations. Those without an answer when the connection was lost are sent again.
        Raises `Rejoin`.
        """
        message = pack_observations(observations)
        self._check_size(message)
        self._learner.send(observations.tick, message)

    def actions(self) -> Actions:
        """Waits for the next answer. Raises `Rejoin`, and `Refused` for what the learner refuses."""
        while True:
            actions: Actions | None = self._learner.answer(None)
            if actions is None:
                continue
            if actions.refused:
                raise Refused(actions.refused, 3)
            # Observations that were sent again may be answered twice: only the first answer counts.
            if self._learner.unanswered.pop(actions.tick, None) is not None:
                return actions

    def close(self) -> None:
        """End the connection; a call that waits raises `Unreachable`."""
        self._learner.close()

    def _acknowledgement(self, wait_s: float | None) -> list[Ack]:
        """The next acknowledgement as a list of one, or an empty list after `wait_s` seconds."""
        ack: Ack | None = self._learner.answer(wait_s)
        if ack is None:
            return []
        self._learner.unanswered.pop(ack.sequence, None)
        if ack.state == "refused":
            raise Refused(ack.reason, 3)
        return [ack]

    def _check_size(self, message: bytes) -> None:
        if len(message) > self._learner.largest:
            raise Refused(f"a message of {len(message)} bytes; at most {self._learner.largest}", 3)


LOOK_S = 10.0
"""How often the address is read again while all is well: a second learner may have taken over while
the first one still answers. A thread does this, because the user may be waiting for the first one.
"""


class LastingConnection:
    """Used by one thread; `close` may come from another. Every method raises `Refused`,
    `Unreachable` where there is no learner for too long, and, but for `join`, `Rejoin` after another
    learner took over.

    generation: of the learner that was joined; largest: bytes of a message to it; unanswered: what
    was sent, by its number, and is sent again over a new connection.
    """

    def __init__(
        self, find: Callable[[], Address | None], timeout_s: float, keepalive_s: float
    ) -> None:
        self._find = find
        self._timeout_s = timeout_s
        self._keepalive_s = keepalive_s
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self._outage = Outage(timeout_s)
        self._connected_at = 0.0
        self._watch: threading.Thread | None = None
        self.generation = self.largest = 0
        self.unanswered = dict[int, bytes]()

    def join(self, request: Join) -> Joined:
        """Join the learner that the address names now."""
        self._drop()
        self.unanswered.clear()
        self._outage = Outage(self._timeout_s)
        if self._watch is None:
            self._watch = threading.Thread(target=self._look, name="address", daemon=True)
            self._watch.start()
        while True:
            try:
                return self._connect(request, follow=True)
            except Lost as lost:
                self._pause(lost)

    def send(self, number: int, message: bytes) -> None:
        """Send, and keep the message until an answer confirms it."""
        self.unanswered[number] = message
        self.connected().send(message)

    def answer(self, wait_s: float | None) -> Any:
        """The next one; None if there is none for so long, and where the connection had to be made
        again.
        """
        try:
            return self.connected().answer(wait_s)
        except Lost as lost:
            self.reconnect(lost)
            return None

    def connected(self) -> Connection:
        """The current connection, for calls that may raise `Lost`."""
        if self._closed.is_set():
            raise Unreachable("closed")
        if self._connection is None:
            raise RuntimeError("join first")
        return self._connection

    def reconnect(self, lost: Lost) -> None:
        """Connect to the same learner again and resend what was not answered."""
        request = self.connected().request
        self._outage.interrupted(time.monotonic() - self._connected_at)
        self._drop()
        while True:
            self._pause(lost)
            try:
                self._connect(request, follow=False)
            except Lost as again:
                lost = again
            else:
                for message in self.unanswered.values():
                    self.connected().send(message)
                return

    def close(self) -> None:
        """End it; a call that waits raises `Unreachable`."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            connection.close()

    def _connect(self, request: Join, *, follow: bool) -> Joined:
        """Try once. follow: accept a newer generation; otherwise it raises `Rejoin`."""
        address = self._find()
        if address is None:
            raise Lost("no learner has written its address down yet")
        # An address given by hand has generation 0, which says nothing.
        self._check_generation(address.generation or self.generation, follow)
        connection = Connection(address, request, self._keepalive_s)
        try:
            joined, largest = connection.join()
            self._check_generation(joined.generation, follow)
            connection.open(joined)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._connected_at = time.monotonic()
        # Another thread may have called `close` before it could see this connection.
        if self._closed.is_set():
            connection.close()
            raise Unreachable("closed")
        self.generation = joined.generation
        self.largest = largest
        return replace(joined, near=connection.near)

    def _check_generation(self, generation: int, follow: bool) -> None:
        # An old learner that still answers, or an old address: the newer one will be found.
        if generation < self.generation:
            raise Lost(f"a learner of generation {generation}; {self.generation} was here already")
        if generation > self.generation and not follow:
            self._drop()
            self.generation = generation
            raise Rejoin(f"a learner of generation {generation} has taken over")

    def _look(self) -> None:
        """Look for a newer learner. If there is one, this connection ends, and its user finds out
        why.
        """
        while not self._closed.wait(LOOK_S):
            connection = self._connection
            if connection is not None and self._has_a_successor():
                connection.close()

    def _has_a_successor(self) -> bool:
        try:
            address = self._find()
        except Exception:
            # Whoever uses the connection reads the address again, and gets this error.
            return True
        return address is not None and address.generation > self.generation

    def _pause(self, lost: Lost) -> None:
        if self._closed.wait(self._outage.pause_s(lost)):
            raise Unreachable("closed")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
STEADY_S = 10.0
"""A connection that holds for so long ends an outage; a shorter one interrupts it."""
DENIED_S = 5.0
"""How long a token may be refused before that counts: a successor at the same address may not have
written its own token yet.
"""


class Outage:
    """A time without a learner, which began when this was made: decides when to try again, and when to
    give up (after `timeout_s`).
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self._attempts = 0
        self._denied_by: Address | None = None
        self._denied_at = 0.0

    def interrupted(self, held_s: float) -> None:
        """A connection held for `held_s` seconds in between."""
        # The time with a connection does not count as time without a learner.
        self._began += held_s
        if held_s > STEADY_S:
            self._began = time.monotonic()
            self._attempts = 0

    def pause_s(self, lost: Lost) -> float:
        """Before the next attempt: drawn from 0 to a bound that doubles ("full jitter"), so that a
        thousand actors do not come back in one moment (Brooker 2015, "Exponential Backoff And
        Jitter").

        Raises `Unreachable` after the time that was given, and `Refused` when the token is wrong
        and stays so.
        """
        if isinstance(lost, Denied):
            self._check_denial(lost)
        lasted_s = time.monotonic() - self._began
        if lasted_s >= self._timeout_s:
            raise Unreachable(f"no learner for {lasted_s:.0f} s: {lost}")
        # The number of attempts is bounded, so that the power below stays small.
        self._attempts = min(self._attempts + 1, 10)
        bound_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._attempts)
        return min(self._timeout_s - lasted_s, random.uniform(0, bound_s))

    def _check_denial(self, denied: Denied) -> None:
        now = time.monotonic()
        if denied.address != self._denied_by:
            self._denied_by = denied.address
            self._denied_at = now
        if now - self._denied_at > DENIED_S:
            raise Refused(str(denied), 2)
