"""The learner's side of the connection with actors: its server, the roster of connected actors, and
the columns of `resources.csv` about how both sides wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from config.resolve import Resolved
from steps.command.context import StepContext
from steps.directory.tables import Cell

if TYPE_CHECKING:
    from agents.distributed.protocol import Learner
    from agents.transport.service import Server
    from agents.transport.sessions import Traffic
    from steps.training.roster import Roster

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
    from steps.training.roster import Roster

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
        (counted_before, traffic_before), counted = self._before, self._counters()
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
