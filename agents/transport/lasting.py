"""A connection to whoever is the learner, made again when it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agents.distributed.interfaces import Join, Joined, Rejoin, Unreachable
from agents.transport.address import Address
from agents.transport.connection import Connection, Lost
from agents.transport.outage import Outage

LOOK_S = 10.0
"""So often the address is read again while all is well: a second learner may have taken over while
the first one still answers. By a thread, because its user may wait for that one.
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
        self._find, self._timeout_s, self._keepalive_s = find, timeout_s, keepalive_s
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self._outage, self._connected_at = Outage(timeout_s), 0.0
        self._watch: threading.Thread | None = None
        self.generation = self.largest = 0
        self.unanswered = dict[int, bytes]()

    def join(self, request: Join) -> Joined:
        """Whoever is the learner now."""
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
        """Whether it arrives, an answer says."""
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
        """For a call of its own, which may raise `Lost`."""
        if self._closed.is_set():
            raise Unreachable("closed")
        if self._connection is None:
            raise RuntimeError("join first")
        return self._connection

    def reconnect(self, lost: Lost) -> None:
        """To the same learner."""
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
        if connection := self._connection:
            connection.close()

    def _connect(self, request: Join, *, follow: bool) -> Joined:
        """One attempt. follow: into another generation; otherwise that is a `Rejoin`."""
        address = self._find()
        if address is None:
            raise Lost("no learner has written its address down yet")
        self._check_generation(address.generation or self.generation, follow)
        connection = Connection(address, request, self._keepalive_s)
        try:
            joined, largest = connection.join()
            self._check_generation(joined.generation, follow)
            connection.open(joined)
        except BaseException:
            connection.close()
            raise
        self._connection, self._connected_at = connection, time.monotonic()
        if self._closed.is_set():  # by another thread, which could not see this connection
            connection.close()
            raise Unreachable("closed")
        self.generation, self.largest = joined.generation, largest
        return replace(joined, near=connection.near)

    def _check_generation(self, generation: int, follow: bool) -> None:
        if generation < self.generation:
            raise Lost(f"a learner of generation {generation}; {self.generation} was here already")
        if generation > self.generation and not follow:
            self._drop()
            self.generation = generation
            raise Rejoin(f"a learner of generation {generation} has taken over")

    def _look(self) -> None:
        """For a newer learner: then this connection ends, and its user finds out why."""
        while not self._closed.wait(LOOK_S):
            if (connection := self._connection) and self._has_a_successor():
                connection.close()

    def _has_a_successor(self) -> bool:
        try:
            address = self._find()
        except Exception:  # which the user gets when it looks
            return True
        return address is not None and address.generation > self.generation

    def _pause(self, lost: Lost) -> None:
        if self._closed.wait(self._outage.pause_s(lost)):
            raise Unreachable("closed")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
