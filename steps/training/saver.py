"""What is written beside the training, by a thread that waits for the disk: checkpoints, packed at
once, and segments of streams.

An fsync takes 5–15 ms here, as long as an epoch of CartPole. The loop calls `wait` at the end of
the next epoch, before it writes anything: so at most one checkpoint interval is ever done again,
and a full disk stops the training before its next row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

Write = Callable[[], object]
MOST_PENDING = 2
"""Each holds what it writes in memory: whoever brings more in one epoch waits for the disk."""


class Saver:
    """Writes one after the other, and nothing after a failure: a checkpoint lists the segments
    before it.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending = deque[Future[None]]()

    def start(self, write: Write) -> None:
        """Write in the background; waits while `MOST_PENDING` are pending. Raises what their writing
        raised.
        """
        while len(self._pending) >= MOST_PENDING:
            self._pending.popleft().result()
        before = self._pending[-1] if self._pending else None
        self._pending.append(self._threads.submit(_write_after, before, write))

    def wait(self) -> None:
        """Until everything is on the disk; raises what the writing raised."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Wait, without raising: for the way out after another error."""
        self._threads.shutdown(wait=True)


def _write_after(before: Future[None] | None, write: Write) -> None:
    if before is not None:
        before.result()
    write()
