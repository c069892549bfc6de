"""Checkpoints beside the training: packed at once, written by a thread that waits for the disk.

An fsync takes 5–15 ms here, as long as an epoch of CartPole. The loop calls `wait` at the end of
the next epoch, before it writes anything: so at most one checkpoint interval is ever done again,
and a full disk stops the training before its next row.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Saver:
    """Writes one checkpoint at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[object] | None = None

    def start(self, write: Callable[[], object]) -> None:
        """Write in the background; the one before must be done."""
        self.wait()
        self._pending = self._threads.submit(write)

    def wait(self) -> None:
        """Until the last checkpoint is on the disk; raises what its writing raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait, without raising: for the way out after another error."""
        self._threads.shutdown(wait=True)
