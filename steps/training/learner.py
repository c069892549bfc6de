"""The learner of an actor-learner training, or the first of several: learns from what its actors
send, and keeps the run's files as `single` does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from config.errors import Preempted
from steps.training.attempt import TrainingAttempt
from steps.training.coupling import Coupling, counters_of, waiting
from steps.training.serving import serve

if TYPE_CHECKING:
    from agents.distributed.protocol import Learner
    from steps.training.files import TrainingFiles
    from steps.training.roster import Roster


def train(attempt: TrainingAttempt) -> dict[str, Any]:
    """Train to the end; raises `Preempted` after a SIGTERM, or, with everything saved, where no actor
    sent anything for `no_data_timeout` or another learner was lost, and what the trainer raises.
    """
    context, resolved = attempt.context, attempt.resolved
    context.check_stop()
    from agents.distributed.protocol import PeersLost
    from agents.load import make_learner
    from steps.training.files import TrainingFiles
    from steps.training.gathering import gather
    from steps.training.meeting import published

    compute = attempt.decided()
    generation = _generation(attempt)
    learner = make_learner(
        attempt.resolved,
        run=context.run_index or 0,
        device=compute.device,
        precision=compute.precision,
    )
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.closing(learner))
        attempt.restore(learner, compute)
        gather(opened, context, resolved, learner, generation)
        roster, server = serve(opened, context, resolved, learner, generation=generation)
        coupling = Coupling(learner, server.traffic)
        files = opened.enter_context(TrainingFiles(attempt, coupling))
        files.begun(learner)
        opened.enter_context(published(context, server.address))
        opened.callback(learner.close)
        print(f"learner {generation} waits for {len(roster.expected)} actors at {server.address}")
        try:
            _train(attempt, learner, roster, files)
        except PeersLost as lost:
            files.save_now(learner)
            raise Preempted(f"{lost}; continues from step {learner.step}") from None
        return {**files.end(), "joined": roster.joined, **waiting(counters_of(learner)())}


def _train(
    attempt: TrainingAttempt, learner: Learner, roster: Roster, files: TrainingFiles
) -> None:
    longest_s = attempt.resolved.actors.no_data_timeout
    for progress in learner.train():
        if progress is not None:
            files.epoch_ended(learner, progress)
            continue
        files.check_stop(learner)
        if roster.silent_s > longest_s:
            files.save_now(learner)
            raise no_data(roster, f"continues from step {learner.step}")


def _generation(attempt: TrainingAttempt) -> int:
    """Higher than that of every learner of this run before: attempts are counted in the status file,
    and what the checkpoint says holds where that was lost.
    """
    generation = max(attempt.context.attempt, int(attempt.record.get("generation", 0)) + 1)
    attempt.kept["generation"] = generation
    return generation


def no_data(roster: Roster, and_then: str) -> Preempted:
    """What to raise when nobody has sent anything for too long."""
    missing = len(roster.missing())
    return Preempted(
        f"no experience for {roster.silent_s:.0f} s, {missing} actors are not connected; {and_then}"
    )
