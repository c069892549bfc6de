"""Tells Argo how far a step is: `N/M` in the file that the variable ARGO_PROGRESS_FILE names.

Argo's wait container reads the last line of the file every 3 s by default and shows it as the progress of the
node: https://argo-workflows.readthedocs.io/en/latest/progress/
"""

from __future__ import annotations

import contextlib
import os
import time

VARIABLE = "ARGO_PROGRESS_FILE"
PERIOD_S = 2.0
"""At least so long between two writes: an epoch may take milliseconds."""


class ArgoProgress:
    """The progress of one step. Without the variable it does nothing, and it never fails the step."""

    def __init__(self) -> None:
        self._path = os.environ.get(VARIABLE, "")
        self._written_s: float | None = None

    def at(self, done: int, whole: int) -> None:
        """So much is done of the whole, both at least 0; the last one is always written."""
        if not self._path or whole < 1:
            return
        now_s = time.monotonic()
        is_recent = self._written_s is not None and now_s - self._written_s < PERIOD_S
        if is_recent and done < whole:
            return
        self._written_s = now_s
        with contextlib.suppress(OSError, ValueError):
            self._write(f"{min(done, whole)}/{whole}\n".encode())

    def _write(self, line: bytes) -> None:
        # Without waiting, should it be a FIFO that nobody reads.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o666)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
