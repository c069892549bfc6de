"""What actors meet of a learner: a server, and behind it the roster of those that play for it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from config.resolve import Resolved
from steps.command.context import StepContext

if TYPE_CHECKING:
    from agents.interfaces import Learner
    from agents.transport.server import Server
    from steps.training.roster import Roster

HERE = "127.0.0.1"


def own_host() -> str:
    """Under which other processes of the run reach this one; nothing listens anywhere else."""
    return os.environ.get("POD_IP") or HERE


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
    from agents.transport.credentials import make_certificate, make_token
    from agents.transport.server import Server
    from steps.training.roster import Roster

    actors = range(number, resolved.actors.actors, resolved.actors.learners)
    # What opens last closes first, and nobody may wait in the receiver when the server closes.
    roster = opened.enter_context(Roster(learner.receiver(generation), actors))
    server = opened.enter_context(
        Server(
            roster,
            host=own_host(),
            port=context.arguments.port,
            token=make_token(),
            certificate=make_certificate(),
            generation=generation,
            environments=resolved.environment.count,
            actors=2 * len(actors),  # also those whose successors are there already
        )
    )
    return roster, server
