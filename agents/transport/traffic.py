"""What a learner's service has done so far; its metrics are differences of two readings."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Totals since the service began, at one moment.

    received_bytes: of unrolls; sent_bytes: of weights; messages: of unrolls that reached the
    learner; handling_s: spent on reading and checking them; waiting_s: until the learner had taken
    them; refused: by reason; actors: connected at this moment.
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
        """One message of unrolls."""
        with self._lock:
            self._received += size
            self._messages += 1
            self._handling_s += handling_s
            self._waiting_s += waiting_s

    def sent(self, size: int) -> None:
        """A chunk of weights."""
        with self._lock:
            self._sent += size

    def refused(self, reason: str) -> None:
        """A call or a message."""
        with self._lock:
            self._refused[reason] += 1

    def read(self, actors: int) -> Traffic:
        """All of it at one moment; actors: connected now."""
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
