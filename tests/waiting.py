"""Waiting for what another process or thread does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

Seen = TypeVar("Seen")

PATIENCE_S = 600.0
"""Long enough for a loaded machine, whose disk may hold a process up for half a minute. What must be ended by
something lasts longer than this by itself.
"""
SOON_S = 20.0
"""For what needs no other process to begin, and would come later in any case, as at a time limit of gRPC's."""


def until(
    there: Callable[[], Seen], *running: subprocess.Popen[Any], longest_s: float = PATIENCE_S
) -> Seen:
    """Return the first true value of `there`. Fails after longest_s, and as soon as one of the processes
    has ended, with what that one printed.
    """
    ends_s = time.monotonic() + longest_s
    while True:
        # Looked at first: what a process has done just before its end still counts.
        ended = [process for process in running if process.poll() is not None]
        if seen := there():
            return seen
        assert not ended, (ended[0].returncode, *ended[0].communicate())
        assert time.monotonic() < ends_s, f"waited {longest_s:g} s in vain"
        time.sleep(0.005)


def soon(there: Callable[[], Seen]) -> Seen:
    """Return the first true value of `there`. Fails after SOON_S."""
    return until(there, longest_s=SOON_S)
