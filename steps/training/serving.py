"""What actors meet of a learner: a server, and behind it the roster of those that play for it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from config.resolve import Resolved
from steps.command.context import StepContext

if TYPE_CHECKING:
    from agents.distributed.protocol import Learner
    from agents.transport.service import Server
    from steps.training.roster import Roster

HERE = "127.0.0.1"


def own_host() -> str:
    """Under which other processes of the run reach this one; nothing listens anywhere else."""
    return os.environ.get("POD_IP") or HERE


@contextlib.contextmanager
def local_socket() -> Iterator[str]:
    """The path of a socket that only this user can reach; empty where no folder for it can be made, or
    only one whose path is too long: then actors on this machine take the way of all others.
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
    """Let its share of the actors in, from now on and until `opened` ends. number: of the learner, among
    several.
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
