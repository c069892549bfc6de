"""The learner's side of the connection with actors: its server, the roster of connected actors, and
the columns of `resources.csv` about how both sides wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agents.distributed.observations import Actions, Answer, Answering, Observations
from agents.distributed.protocol import Ack, Join, Joined, Receiver, Specs, Unrolls, Version
from config.resolved import Resolved
from steps.command.context import StepContext
from steps.directory.tables import Cell

if TYPE_CHECKING:
    from agents.distributed.protocol import Learner
    from agents.transport.service import Server
    from agents.transport.sessions import Traffic

HERE = "127.0.0.1"


def own_host() -> str:
    """The address under which other processes of the run reach this one. Nothing listens anywhere
    else.
    """
    return os.environ.get("POD_IP") or HERE


@contextlib.contextmanager
def local_socket() -> Iterator[str]:
    """The path of a socket that only this user can reach. Empty if no folder for it can be made, or
    its path would be too long; actors on this machine then connect as all others do.
    """
    from agents.transport.service import LONGEST_SOCKET_PATH

    try:
        folder = tempfile.TemporaryDirectory(prefix="learner-")
    except OSError:
        yield ""
        return
    with folder:
        path = Path(folder.name) / "socket"
        # The kernel's structure for an address has room for about a hundred bytes only.
        yield str(path) if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH else ""


def serve(
    opened: contextlib.ExitStack,
    context: StepContext,
    resolved: Resolved,
    learner: Learner,
    *,
    generation: int,
    number: int = 0,
) -> tuple[Roster, Server]:
    """Accept this learner's share of the actors, from now on and until `opened` ends. number: the
    learner's, among several.
    """
    from agents.transport.address import make_certificate, make_token
    from agents.transport.service import Server

    actors = range(number, resolved.actors.actors, resolved.actors.learners)
    socket = opened.enter_context(local_socket())
    # What opens last closes first, and nobody may wait in the receiver when the server closes.
    roster = opened.enter_context(Roster(learner.receiver(generation), actors))
    server = opened.enter_context(
        Server(
            roster,
            host=own_host(),
            port=context.arguments.port,
            socket=socket,
            token=make_token(),
            certificate=make_certificate(),
            generation=generation,
            environments=resolved.environment.count,
            actors=2 * len(actors),  # also those whose successors are there already
        )
    )
    return roster, server


class Coupling:
    """A `steps.training.resources.Measure`. learner: one that counts what happens; otherwise its
    columns are empty. traffic: that of the service in front of it.
    """

    def __init__(self, learner: Learner, traffic: Callable[[], Traffic]) -> None:
        self._counters = counters_of(learner)
        self._traffic = traffic
        self._before = self._counters(), traffic()

    def __call__(self, seconds: float) -> dict[str, Cell]:
        """The columns for this many seconds. Shares of time are in percent; those of actors are
        means over the connected ones. Stale, duplicate and refused unrolls are totals since the
        training began, but refusals by the service since the learner started.
        """
        counted_before, traffic_before = self._before
        counted = self._counters()
        traffic = self._traffic()
        self._before = counted, traffic

        def share(name: str, among: int = 1) -> float | None:
            if name not in counted or not among:
                return None
            waited_s = counted[name] - counted_before[name]
            return round(100 * min(1.0, waited_s / (seconds * among)), 1)

        messages = traffic.messages - traffic_before.messages
        handling_s = traffic.handling_s - traffic_before.handling_s
        waited = share("learner_waited_s")
        return {
            "actors": traffic.actors,
            "learner_busy_percent": None if waited is None else round(100 - waited, 1),
            "actors_waiting_percent": share("actors_waited_s", traffic.actors),
            "waiting_unrolls": counted.get("waiting"),
            "message_ms": round(1000 * handling_s / messages, 3) if messages else None,
            "received_bytes_per_second": round(
                (traffic.received_bytes - traffic_before.received_bytes) / seconds
            ),
            "sent_bytes_per_second": round(
                (traffic.sent_bytes - traffic_before.sent_bytes) / seconds
            ),
            "stale_unrolls": counted.get("stale"),
            "duplicate_messages": counted.get("duplicates"),
            "refused_messages": int(sum(traffic.refused.values())),
        }


def counters_of(learner: Learner) -> Callable[[], Mapping[str, float]]:
    """The learner's own counters, or none."""
    from agents.distributed.protocol import HasCounters

    return learner.counters if isinstance(learner, HasCounters) else dict


def waiting(counters: Mapping[str, float]) -> dict[str, float]:
    """For the report: how long each side waited for the other, over all attempts."""
    names = ("learner_waited_s", "actors_waited_s")
    return {name: round(counters[name], 3) for name in names if name in counters}


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
        self._pauses = False
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
        return replace(joined, stop=True) if self._pauses else joined

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        """Pass on; there is nothing to note."""
        return self._receiver.packed_weights(have)

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        """Pass on, and note that the actor was heard."""
        self._heard_at = time.monotonic()
        ack = self._receiver.receive(incarnation, sequence, unrolls)
        return replace(ack, stop=True) if self._pauses else ack

    @property
    def shown(self) -> Specs:
        """What the learner says about observations if it acts; else empty."""
        shown: Specs = {} if self._answering is None else self._answering.shown
        return shown

    def open(self, incarnation: int, answer: Answer) -> Any:
        """Pass on. This and the next two implement `Answering`."""

        def unless_paused(actions: Actions) -> None:
            answer(replace(actions, stop=True, actions=None) if self._pauses else actions)

        return self._answering.open(incarnation, unless_paused)

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

    def pause(self) -> None:
        """Tell the actors from now on what a learner tells them at its end: that there is nothing left
        to do for them. The learner itself knows of no pause.
        """
        self._pauses = True

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
