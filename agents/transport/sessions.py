"""Which actors are connected. An actor that lost its connection comes back before the learner may
have noticed the loss: its new session takes the place of the old one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PENDING_S = 60.0
"""For so long an actor that has joined may take to open its stream."""


@dataclass(eq=False)
class Session:
    """An actor's, from its joining until its stream ends.

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
    """One per incarnation, and no more than `most`. left: called once for every session that was
    accepted, when it has ended.
    """

    def __init__(self, most: int, left: Callable[[int], None]) -> None:
        self._most, self._left = most, left
        self._lock = threading.Lock()
        self._of = dict[int, Session]()

    def join(self, incarnation: int) -> Session | None:
        """A new one, in the place of an old one; None if there are too many."""
        self._end_those_that_never_came()
        with self._lock:
            old = self._of.get(incarnation)
            if old is None and len(self._of) >= self._most:
                return None
            session = self._of[incarnation] = Session(incarnation)
            if old is not None:
                session.receiving = old.receiving
        if old is not None:
            if old.cancel is not None:
                old.cancel()  # which ends it
            else:
                self.end(old)
        return session

    def open(self, incarnation: int, cancel: Callable[[], object]) -> Session | None:
        """The session of an actor that has joined, whose stream begins now; None if there is none,
        or if it has a stream.
        """
        with self._lock:
            session = self._of.get(incarnation)
            if session is None or session.cancel is not None:
                return None
            session.cancel = cancel
            return session

    def end(self, session: Session) -> None:
        """Its stream has ended, or it was not wanted."""
        with self._lock:
            if self._of.get(session.incarnation) is session:
                del self._of[session.incarnation]
        if session.accepted:
            self._left(session.incarnation)

    @property
    def connected(self) -> int:
        """How many have a stream."""
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
