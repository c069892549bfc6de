"""The learner of an actor-learner training: learns from what its actors send, and keeps the run's
files as `single` does.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from config.errors import Preempted
from steps.training.attempt import TrainingAttempt
from steps.training.coupling import Coupling, counters_of, waiting

if TYPE_CHECKING:
    from steps.training.roster import Roster

HERE = "127.0.0.1"


def train(attempt: TrainingAttempt) -> dict[str, Any]:
    """Train to the end; raises `Preempted` after a SIGTERM, or, with everything saved, where no actor
    sent anything for `no_data_timeout`, and what the trainer raises.
    """
    context, resolved = attempt.context, attempt.resolved
    context.check_stop()
    from agents.load import make_learner
    from agents.transport.credentials import make_certificate, make_token
    from agents.transport.server import Server
    from steps.training.files import TrainingFiles
    from steps.training.meeting import published
    from steps.training.roster import Roster

    compute = attempt.decided()
    generation = _generation(attempt)
    learner = make_learner(
        attempt.resolved,
        run=context.run_index or 0,
        device=compute.device,
        precision=compute.precision,
    )
    # What opens last closes first, and nobody may wait in the receiver when the server closes.
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.closing(learner))
        attempt.restore(learner, compute)
        roster = opened.enter_context(Roster(learner.receiver(generation), resolved.actors.actors))
        server = opened.enter_context(
            Server(
                roster,
                host=os.environ.get("POD_IP") or HERE,
                port=context.arguments.port,
                token=make_token(),
                certificate=make_certificate(),
                generation=generation,
                environments=resolved.environment.count,
                actors=2 * resolved.actors.actors,  # also those whose successors are there already
            )
        )
        coupling = Coupling(learner, server.traffic)
        files = opened.enter_context(TrainingFiles(attempt, coupling))
        files.begun(learner)
        opened.enter_context(published(context, server.address))
        opened.callback(learner.close)
        print(f"learner {generation} waits for {resolved.actors.actors} actors at {server.address}")
        for progress in learner.train():
            if progress is not None:
                files.epoch_ended(learner, progress)
            else:
                context.check_stop()
                if roster.silent_s > resolved.actors.no_data_timeout:
                    files.save_now(learner)
                    raise _no_data(roster, learner.step)
        return {**files.end(), "joined": roster.joined, **waiting(counters_of(learner)())}


def _generation(attempt: TrainingAttempt) -> int:
    """Higher than that of every learner of this run before: attempts are counted in the status file,
    and what the checkpoint says holds where that was lost.
    """
    generation = max(attempt.context.attempt, int(attempt.record.get("generation", 0)) + 1)
    attempt.kept["generation"] = generation
    return generation


def _no_data(roster: Roster, step: int) -> Preempted:
    missing = len(roster.missing())
    return Preempted(
        f"no experience for {roster.silent_s:.0f} s, {missing} actors are not connected; "
        f"continues from step {step}"
    )
