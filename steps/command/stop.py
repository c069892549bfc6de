"""Being asked to stop: a flag, and nothing else happens in the signal handler.

Argo sends SIGTERM to the whole process group, several times, 1–3 s apart: a handler that saves or
raises would be interrupted by the next one. The step looks at the flag; `Attempt` ends a step that
does not look for `GRACE_S`, which loses nothing, because every file survives a kill at any moment. One
that has looked takes as long as its last save takes, or the pod's own time to end.
"""

from __future__ import annotations

import atexit
import signal
import time
from collections.abc import Callable
from types import FrameType

from config.errors import ExperimentError, Preempted

GRACE_S = 5.0
BEGINS_ANEW = "preempted, the next attempt starts this step again"
"""The reason in the status of a step that keeps nothing for its next attempt."""


class StopRequest:
    """A request to stop, made by SIGTERM or SIGINT, or by whoever finds that the directory has
    another owner now.
    """

    def __init__(self) -> None:
        self.requested_at: float | None = None
        self.cause: ExperimentError | None = None
        self._is_seen = False
        self.describe: Callable[[], str] = lambda: BEGINS_ANEW

    def install(self) -> None:
        """Catch the signals from now on; call it before anything slow is imported.

        Python gives handlers back while it shuts down, and the third SIGTERM then turned an exit 75
        into a death by signal (seen): so the signals are ignored from the beginning of the
        shutdown. An interrupt that is ignored already stays ignored: that is how a shell starts
        what shall go on in the background.
        """
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._on_signal)
        atexit.register(_ignore)

    def because(self, cause: ExperimentError) -> None:
        """Request a stop for another reason than a signal."""
        self.cause = cause
        self.requested_at = self.requested_at or time.monotonic()

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self.requested_at is not None

    @property
    def overdue(self) -> bool:
        """Whether the step has not checked for too long."""
        if self.requested_at is None or self._is_seen:
            return False
        return time.monotonic() - self.requested_at > GRACE_S

    def seen(self) -> bool:
        """Whether a stop was requested. Asking counts as a check: the step then ends by itself as
        soon as it has saved.
        """
        self._is_seen = self._is_seen or self.requested
        return self._is_seen

    def check(self) -> None:
        """Raise `Preempted`, or the other cause, if a stop was requested."""
        if self.requested:
            raise self.error()

    def error(self) -> ExperimentError:
        """The error to raise for a stop: `Preempted`, unless there is another cause."""
        return self.cause or Preempted(self.describe())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Repeated signals must not postpone the end of the grace period.
        if self.requested_at is None:
            self.requested_at = time.monotonic()


def _ignore() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
