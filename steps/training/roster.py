"""Keeps track of a learner's actors: it stands between the transport and the receiver of
experience, counts who joins and leaves, and logs who is missing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection
from types import TracebackType
from typing import Any, Self

from agents.distributed.observations import Answer, Answering, Observations
from agents.distributed.protocol import Ack, Join, Joined, Receiver, Specs, Unrolls, Version

SAY_AFTER_S = 30.0
"""An actor must be missing for this long before it is logged."""
POLL_S = 1.0


class Roster:
    """A `Receiver` in front of another one. expected: the numbers of this learner's actors."""

    def __init__(
        self, receiver: Receiver, expected: Collection[int], say_after_s: float = SAY_AFTER_S
    ) -> None:
        self._receiver = receiver
        self._say_after_s = say_after_s
        self.expected = expected
        self.specs = receiver.specs
        self._answering: Any = receiver if isinstance(receiver, Answering) else None
        self._lock = threading.Lock()
        self._actors = dict[int, int]()  # incarnation -> its number
        self._connections = Counter[
            int
        ]()  # incarnation -> how many; a lost one may not be known yet
        self._heard_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="roster", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def join(self, request: Join) -> Joined:
        """Note who joined, unless the receiver refuses. This and the next three implement
        `Receiver`.
        """
        joined = self._receiver.join(request)
        with self._lock:
            self._actors[request.incarnation] = request.actor
            self._connections[request.incarnation] += 1
        return joined

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        """Pass on; there is nothing to note."""
        return self._receiver.packed_weights(have)

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        """Pass on, and note that the actor was heard."""
        self._heard_at = time.monotonic()
        return self._receiver.receive(incarnation, sequence, unrolls)

    @property
    def shown(self) -> Specs:
        """What the learner says about observations if it acts; else empty."""
        shown: Specs = {} if self._answering is None else self._answering.shown
        return shown

    def open(self, incarnation: int, answer: Answer) -> Any:
        """Pass on. This and the next two implement `Answering`."""
        return self._answering.open(incarnation, answer)

    def observe(self, stream: Any, observations: Observations) -> None:
        """Pass on, and note that the actor was heard."""
        self._heard_at = time.monotonic()
        self._answering.observe(stream, observations)

    def leave(self, stream: Any) -> None:
        """Pass on; `left` follows."""
        self._answering.leave(stream)

    def left(self, incarnation: int) -> None:
        """Note who left."""
        with self._lock:
            self._connections[incarnation] -= 1
        self._receiver.left(incarnation)

    @property
    def silent_s(self) -> float:
        """Seconds since experience last arrived."""
        return time.monotonic() - self._heard_at

    def missing(self) -> list[int]:
        """The numbers of the expected actors that are not connected."""
        with self._lock:
            present = {self._actors[one] for one, count in self._connections.items() if count > 0}
        return [actor for actor in self.expected if actor not in present]

    @property
    def joined(self) -> int:
        """Number of processes that have connected so far, over all actors."""
        with self._lock:
            return len(self._actors)

    def _watch(self) -> None:
        """Log who is missing if it has been the same for a while, and that nobody is missing any
        more.
        """
        said = list[int]()
        seen = list[int]()
        since = time.monotonic()
        while not self._ended.wait(min(POLL_S, self._say_after_s)):
            missing = self.missing()
            if missing != seen:
                seen = missing
                since = time.monotonic()
            if missing != said and (not missing or time.monotonic() - since >= self._say_after_s):
                said = missing
                print(self._line(missing), flush=True)

    def _line(self, missing: Collection[int]) -> str:
        expected = len(self.expected)
        there = f"{expected - len(missing)} of {expected} actors are connected"
        return f"{there}; missing: {_numbers(missing)}" if missing else there


def _numbers(actors: Collection[int]) -> str:
    """`0, 2, 5 and 12 more`."""
    first = [str(actor) for actor in list(actors)[:20]]
    rest = len(actors) - len(first)
    return ", ".join(first) + (f" and {rest} more" if rest else "")
