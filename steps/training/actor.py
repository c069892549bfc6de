"""One actor of an actor-learner training: it steps environments for the learner that it finds in
the run's directory, until the run is trained. Nothing of it is saved; a restarted actor joins
again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from config.errors import BadInput, Diverged, Preempted
from steps.command.context import StepContext
from steps.directory.experiment import read_compute

POLL_S = 0.1
NICENESS = 5
"""The niceness of an actor that finds its learner at a local socket when it starts, because all
actors wait for what the learner does alone. With a fair share of two processors the learner waited
for its turn, and the actors for it: Breakout with two actors reached 0.78 of the possible steps per
second, and 0.94 with this niceness.
"""


def act(context: StepContext) -> dict[str, Any]:
    """Act until the training has ended, successfully or not. Returns why there is nothing left to
    do.

    Raises `Preempted` after a SIGTERM, or if there was no learner for `reconnect_timeout`. A
    refusal by the learner raises `BadInput` or `Diverged`.
    """
    os.environ["OMP_NUM_THREADS"] = str(context.resolved.experiment.threads)
    context.stop.describe = lambda: "preempted, joins again when it is started again"
    context.check_stop()
    from agents.distributed.protocol import Refused, Unreachable
    from steps.training.meeting import Ended, Search

    before = context.previous.details if context.previous else {}
    context.note(joined=bool(before.get("joined")))  # once is often enough for the report
    learner = context.arguments.member % context.resolved.actors.learners
    search = Search(context, context.arguments.learner, learner)
    try:
        address = search.wait(context.resolved.actors.reconnect_timeout)
        if address.from_here().socket:
            # On Linux this concerns this thread and all that it starts from now on.
            os.nice(NICENESS)
        return {"ended": "the learner has all that it needs", "step": _act(context, search)}
    except Ended as ended:
        return {"ended": str(ended)}
    except Unreachable as error:
        context.check_stop()
        raise Preempted(str(error)) from None
    except Refused as refused:
        kind = BadInput if refused.exit_code == 2 else Diverged
        raise kind(f"refused by the learner: {refused}") from None


def _act(context: StepContext, search: Any) -> int:
    """Act, and return the number of environment steps."""
    import torch

    from agents.distributed.weights import unpack
    from agents.load import make_actor
    from agents.transport.client import Client
    from steps.training.choose_compute import settled
    from steps.training.resources import of_member

    torch.set_num_threads(context.resolved.experiment.threads)
    compute = read_compute(context.directory.compute_json)
    resolved = context.resolved if compute is None else settled(context.resolved, compute)
    link = Client(search.find, unpack=unpack, reconnect_timeout_s=resolved.actors.reconnect_timeout)
    path = context.run.member_resources_csv(context.member)
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.closing(link))
        opened.enter_context(_on_stop(context, link.close))
        actor = make_actor(
            resolved, run=context.run_index or 0, member=int(context.arguments.member), link=link
        )
        opened.enter_context(contextlib.closing(actor))
        sampler, done = of_member(path, permitted=context.require_ours)
        opened.enter_context(contextlib.closing(sampler))
        steps = 0
        noted = False
        for steps in actor.act():
            if not noted:
                context.note(joined=True)
                noted = True
            context.check_stop()
            sampler.at(done + steps)
        return steps


@contextlib.contextmanager
def _on_stop(context: StepContext, close: Callable[[], None]) -> Iterator[None]:
    """Close the link as soon as a stop is requested, which wakes an actor that waits for its
    learner. It has nothing to save.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            if context.stop_requested():
                close()
                return

    thread = threading.Thread(target=watch, name="stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
