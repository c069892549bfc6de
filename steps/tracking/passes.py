"""The senders of one pod, each tracker in a thread of its own: a tracker that fails, or that stands
still, holds neither the others nor the pod.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from config.errors import Unsent
from steps.tracking.sender import Sender

POLL_S = 3.0
LONGEST_WAIT_S = 30.0
LOOK_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a pod stays when the last rows are there. failing_s: with a tracker that fails. silent_s:
    with one that neither fails nor answers, for one batch of rows or one file.
    """

    failing_s: float
    silent_s: float


BESIDE_TRAINING = Patience(failing_s=5.0, silent_s=60.0)
"""The end of the run waits meanwhile, and what is left will be sent later."""
AT_THE_END = Patience(failing_s=30.0, silent_s=300.0)


class Delivery(threading.Thread):
    """One tracker and the runs that are sent to it. is_over: whether nothing more will come."""

    def __init__(
        self, tracker: str, senders: Iterable[Sender], is_over: Callable[[], bool]
    ) -> None:
        super().__init__(name=f"tracker {tracker}", daemon=True)
        self.tracker = tracker
        self.senders = tuple(senders)
        self.trouble = ""
        self.error: BaseException | None = None
        self.failing_since_s: float | None = None
        self._left = deque(self.senders)
        self._is_over = is_over
        self._halt = threading.Event()

    def run(self) -> None:
        """Send until nothing is left."""
        wait_s = POLL_S
        try:
            while self._left and not self._halt.is_set():
                wait_s = POLL_S if self._send_one() else min(2 * wait_s, LONGEST_WAIT_S)
                if self._left:
                    self._halt.wait(wait_s)
        except BaseException as error:  # raised again by `deliver`, in the main thread
            self.error = error

    def _send_one(self) -> bool:
        """Send what is new of the next run. Returns whether the tracker took it."""
        sender = self._left[0]
        last = self._is_over()  # asked before: what is there then is all there is
        try:
            if not (last and sender.is_complete()):
                sender.send(last=last)
        except Unsent as error:
            self._fails(str(error))
            self._left.rotate(-1)
            return False
        self.trouble = ""
        self.failing_since_s = None
        if last:
            self._left.popleft()
        return True

    def _fails(self, reason: str) -> None:
        if self.failing_since_s is None:
            self.failing_since_s = time.monotonic()
        if reason != self.trouble and not self._halt.is_set():
            self.trouble = reason
            print(f"kept for later: {reason}", flush=True)

    def halt(self) -> None:
        """Ask the thread to end."""
        self._halt.set()

    def gives_up(self, over_since_s: float, patience: Patience) -> bool:
        """Whether it has tried for long enough since the last rows were there."""
        now = time.monotonic()
        if self.failing_since_s is not None:
            return now - max(self.failing_since_s, over_since_s) > patience.failing_s
        moved_s = max(sender.moved_s for sender in self.senders)
        if now - max(moved_s, over_since_s) > patience.silent_s:
            self.trouble = f"{self.tracker}: no answer for {patience.silent_s:g} s"
            return True
        return False

    @property
    def outcome(self) -> dict[str, Any]:
        """What has arrived; and, if something has not, why."""
        sent: dict[str, Any] = {
            kind: sum(sender.sent[kind] for sender in self.senders) for kind in ("rows", "files")
        }
        sent["to"] = self.senders[-1].destination if self.senders else ""
        if self._left:
            sent["kept"] = self.trouble or f"{self.tracker}: not finished"
        return sent


def deliver(
    senders: Mapping[str, Iterable[Sender]],
    is_over: Callable[[], bool],
    check_stop: Callable[[], None],
    patience: Patience,
) -> dict[str, dict[str, Any]]:
    """Send to all trackers until everything has arrived that there will be. Returns what each has.

    Trackers that fail are given up a limited time after the last rows are there. Raises what
    `check_stop` raises, and errors that are not a tracker's.
    """
    deliveries = [Delivery(tracker, of_it, is_over) for tracker, of_it in senders.items()]
    for one in deliveries:
        one.start()
    over_since_s = None
    while waiting := [one for one in deliveries if one.is_alive()]:
        check_stop()
        if over_since_s is None and is_over():
            over_since_s = time.monotonic()
        if over_since_s is not None and all(
            one.gives_up(over_since_s, patience) for one in waiting
        ):
            break
        waiting[0].join(LOOK_S)
    for one in deliveries:
        one.halt()
        if one.error is not None:
            raise one.error
    return {one.tracker: one.outcome for one in deliveries}
