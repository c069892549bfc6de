"""A time without a learner: when to try again, and when to give up."""

from __future__ import annotations

import random
import time

from agents.distributed.interfaces import Refused, Unreachable
from agents.transport.address import Address
from agents.transport.connection import Denied, Lost

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
STEADY_S = 10.0
"""A connection that holds for so long ends an outage; a shorter one interrupts it."""
DENIED_S = 5.0
"""For so long a learner's token may be refused because its successor, at the same address, has not
written down its own yet.
"""


class Outage:
    """Began when it was made. timeout_s: for so long another attempt is worth it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self._attempts = 0
        self._denied_by: Address | None = None
        self._denied_at = 0.0

    def interrupted(self, held_s: float) -> None:
        """There was a connection in between."""
        self._began += held_s
        if held_s > STEADY_S:
            self._began, self._attempts = time.monotonic(), 0

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
        self._attempts = min(self._attempts + 1, 10)
        bound_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._attempts)
        return min(self._timeout_s - lasted_s, random.uniform(0, bound_s))

    def _check_denial(self, denied: Denied) -> None:
        now = time.monotonic()
        if denied.address != self._denied_by:
            self._denied_by, self._denied_at = denied.address, now
        if now - self._denied_at > DENIED_S:
            raise Refused(str(denied), 2)
