"""The actor's end: a `Link` that finds its learner, and finds it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agents.distributed.buffers import Buffers
from agents.distributed.interfaces import (
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
from agents.transport import calls
from agents.transport.address import Address
from agents.transport.connection import Connection, Lost
from agents.transport.messages import pack_unrolls
from agents.transport.outage import Outage

LOOK_S = 10.0
"""So often the address is read again while all is well: a second learner may have taken over while
the first one still answers.
"""


class Client:
    """Used by one thread; `close` may come from another.

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
        self._find, self._unpack = find, unpack
        self._timeout_s, self._keepalive_s = reconnect_timeout_s, keepalive_s
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self._outage, self._connected_at = Outage(reconnect_timeout_s), 0.0
        self._generation = self._credits = self._largest = self._sequence = 0
        self._unacknowledged = dict[int, bytes]()
        self._looked_at, self._buffers = 0.0, Buffers()

    def join(self, request: Join) -> Joined:
        """Raises `Refused` and `Unreachable`, as every method here does."""
        self._drop()
        self._unacknowledged.clear()
        self._outage = Outage(self._timeout_s)
        while True:
            try:
                return self._connect(request, follow=True)
            except Lost as lost:
                self._pause(lost)

    def weights(self, have: Version | None) -> Weights | None:
        """None: there is nothing newer. Raises `Rejoin` after another learner took over."""
        while True:
            self._look_for_a_newer_learner()
            try:
                packed = self._connected().weights(self._generation, have, self._buffers)
            except Lost as lost:
                self._reconnect(lost)
            else:
                return None if packed is None else self._unpack(*packed)

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """Waits while all credits are out; returns what was acknowledged since the last call.

        What was not acknowledged when the connection was lost is sent again, under its old sequence
        number. Raises `Rejoin`, and `Refused` for experience that the learner refuses.
        """
        self._connected()
        message = pack_unrolls(self._sequence + 1, unrolls)
        if len(message) > self._largest:
            raise Refused(f"{len(message)} bytes of unrolls; at most {self._largest}", 3)
        self._look_for_a_newer_learner()
        acks = list[Ack]()
        while len(self._unacknowledged) >= self._credits:
            acks += self._acknowledgement(wait=True)
        self._sequence += 1
        self._unacknowledged[self._sequence] = message
        self._connected().send(message)
        while got := self._acknowledgement(wait=False):
            acks += got
        return acks

    def close(self) -> None:
        """End the connection; a call that waits raises `Unreachable`."""
        self._closed.set()
        if connection := self._connection:
            connection.close()

    def _acknowledgement(self, wait: bool) -> list[Ack]:
        """The next one, if any; reconnects where the connection is lost."""
        try:
            ack = self._connected().acknowledgement(wait)
        except Lost as lost:
            self._reconnect(lost)
            return []
        if ack is None:
            return []
        self._unacknowledged.pop(ack.sequence, None)
        if ack.state == "refused":
            raise Refused(ack.reason, 3)
        return [ack]

    def _reconnect(self, lost: Lost) -> None:
        """To the same learner; raises `Rejoin` where there is another one."""
        request = self._connected().request
        self._outage.interrupted(time.monotonic() - self._connected_at)
        self._drop()
        while True:
            self._pause(lost)
            try:
                self._connect(request, follow=False)
            except Lost as again:
                lost = again
            else:
                for message in self._unacknowledged.values():
                    self._connected().send(message)
                return

    def _connect(self, request: Join, *, follow: bool) -> Joined:
        """One attempt. follow: into another generation; otherwise that is a `Rejoin`."""
        address = self._find()
        if address is None:
            raise Lost("no learner has written its address down yet")
        self._check_generation(address.generation or self._generation, follow)
        connection = Connection(address, request, self._keepalive_s)
        try:
            joined, largest = connection.join()
            self._check_generation(joined.generation, follow)
            connection.open()
        except BaseException:
            connection.close()
            raise
        self._connection, self._connected_at = connection, time.monotonic()
        if self._closed.is_set():  # by another thread, which could not see this connection
            connection.close()
            raise Unreachable("closed")
        self._generation, self._credits, self._largest = joined.generation, joined.credits, largest
        return joined

    def _check_generation(self, generation: int, follow: bool) -> None:
        if generation < self._generation:
            raise Lost(f"a learner of generation {generation}; {self._generation} was here already")
        if generation > self._generation and not follow:
            self._drop()
            self._generation = generation
            raise Rejoin(f"a learner of generation {generation} has taken over")

    def _look_for_a_newer_learner(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        address = self._find()
        if address is not None and address.generation > self._generation:
            self._check_generation(address.generation, follow=False)

    def _pause(self, lost: Lost) -> None:
        if self._closed.wait(self._outage.pause_s(lost)):
            raise Unreachable("closed")

    def _connected(self) -> Connection:
        if self._closed.is_set():
            raise Unreachable("closed")
        if self._connection is None:
            raise RuntimeError("join first")
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
