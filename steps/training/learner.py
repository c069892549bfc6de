"""The learners of an actor-learner training.

The first learner (`train`) learns from what its actors send, and writes the run's files as
`single` does. Where a run has several, each further learner (`learn`) learns with the first one from
its own share of the actors. It saves nothing: when it is started again, it takes the weights from the
first one.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from config.errors import Preempted
from steps.command.context import StepContext
from steps.training.pausing import asked_pause, up_to
from steps.training.serving import Coupling, counters_of, serve, waiting
from steps.training.training_attempt import TrainingAttempt

if TYPE_CHECKING:
    from agents.distributed.protocol import Learner
    from agents.transport.group import Group, Place
    from steps.training.meeting import Finding
    from steps.training.serving import Roster
    from steps.training.training_files import TrainingFiles


def train(attempt: TrainingAttempt) -> dict[str, Any]:
    """Train to the end, or to a pause. Raises `Preempted` after a SIGTERM and, with everything saved, if no actor
    sent anything for `no_data_timeout` or another learner was lost. Raises what the trainer raises.
    """
    context = attempt.context
    resolved = attempt.resolved
    context.check_stop()
    from agents.distributed.protocol import PeersLost
    from agents.load import make_learner
    from steps.training.gathering import gather
    from steps.training.meeting import published
    from steps.training.training_files import TrainingFiles

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
        group = gather(opened, context, resolved, learner, generation)
        roster, server = serve(opened, context, resolved, learner, generation=generation)
        coupling = Coupling(learner, server.traffic)
        files = opened.enter_context(TrainingFiles(attempt, coupling))
        files.begun(learner)
        opened.enter_context(published(context, server.address))
        # On the way out this runs first, and wakes whoever waits for the learner.
        opened.callback(learner.close)
        print(f"learner {generation} waits for {len(roster.expected)} actors at {server.address}")
        try:
            _train(attempt, learner, roster, files)
        except PeersLost as lost:
            files.save_now(learner)
            raise Preempted(f"{lost}; continues from step {learner.step}") from None
        if attempt.pause is not None:
            _pause(roster, group)
        return {**files.end(), "joined": roster.joined, **waiting(counters_of(learner)())}


def _train(
    attempt: TrainingAttempt, learner: Learner, roster: Roster, files: TrainingFiles
) -> None:
    longest_s = attempt.resolved.actors.no_data_timeout
    for progress in up_to(attempt.pause, learner.train()):
        if progress is not None:
            files.epoch_ended(learner, progress)
            continue
        files.check_stop(learner)
        if roster.silent_s > longest_s:
            files.save_now(learner)
            raise no_data(roster, f"continues from step {learner.step}")


def _pause(roster: Roster, group: Group | None) -> None:
    """End at a pause as a training does at its end, where the learner itself does this."""
    from agents.distributed.joint_learning import wait_for_all

    wait_for_all(group)  # one that ended before the others would look lost to them
    roster.pause()


def _generation(attempt: TrainingAttempt) -> int:
    """A number higher than that of every earlier learner of this run. Attempts are counted in the
    status file; the checkpoint's count serves if that was lost.
    """
    generation = max(attempt.context.attempt, int(attempt.record.get("generation", 0)) + 1)
    attempt.kept["generation"] = generation
    return generation


def no_data(roster: Roster, and_then: str) -> Preempted:
    """The error if nobody has sent anything for too long."""
    missing = len(roster.missing())
    return Preempted(
        f"no experience for {roster.silent_s:.0f} s, {missing} actors are not connected; {and_then}"
    )


def learn(context: StepContext) -> dict[str, Any]:
    """Learn beside the first learner until the training pauses or has ended, successfully or not. Returns why
    there is nothing left to do.

    Raises `Preempted` after a SIGTERM, if there was no first learner for `reconnect_timeout`, if
    another learner was lost, or if no actor sent anything for `no_data_timeout`. Raises what the
    trainer raises.
    """
    os.environ["OMP_NUM_THREADS"] = str(context.resolved.experiment.threads)
    context.stop.describe = lambda: "preempted, joins again when it is started again"
    context.check_stop()
    from agents.distributed.protocol import PeersLost
    from agents.transport.group import place_from_text
    from steps.training.meeting import Ended, Finding

    finding = Finding(context, context.run.learners_json, place_from_text)
    patience_s = context.resolved.actors.reconnect_timeout
    details = dict[str, Any]()
    try:
        finding.wait(patience_s)
        details = _learn_beside_the_first(context, finding)
        _wait_for_the_end(finding, patience_s)
    except Ended as ended:
        return {"ended": str(ended), **details}
    except PeersLost as lost:
        raise Preempted(f"{lost}; joins again when it is started again") from None
    raise Preempted(f"the first learner has not ended well for {patience_s} s")


def _learn_beside_the_first(context: StepContext, finding: Finding[Place]) -> dict[str, Any]:
    """Learn with the others to the end. Returns the details for the report."""
    import torch

    from agents.load import make_learner
    from steps.training.choose_compute import chosen, settled
    from steps.training.gathering import join
    from steps.training.meeting import published
    from steps.training.resources import gpu_of, of_member
    from steps.training.serving import Coupling, counters_of, waiting

    torch.set_num_threads(context.resolved.experiment.threads)
    compute = chosen(context, {})
    resolved = settled(context.resolved, compute)
    number = int(context.arguments.member)
    learner = make_learner(
        resolved, run=context.run_index or 0, device=compute.device, precision=compute.precision
    )
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.closing(learner))
        generation, group = join(opened, resolved, learner, finding, number)
        roster, server = serve(
            opened, context, resolved, learner, generation=generation, number=number
        )
        sampler, _ = of_member(
            context.run.member_resources_csv(context.member),
            permitted=context.require_ours,
            gpu=gpu_of(compute.device),
            measure=Coupling(learner, server.traffic),
        )
        opened.enter_context(contextlib.closing(sampler))
        opened.enter_context(published(context, server.address, number))
        opened.callback(learner.close)
        print(f"learner {generation} goes on with the others from step {learner.step}")
        pause = asked_pause(context)
        for progress in up_to(pause, learner.train()):
            context.check_stop()
            if progress is not None:
                sampler.at(progress.step)
            elif roster.silent_s > resolved.actors.no_data_timeout:
                raise no_data(roster, f"was at step {learner.step}")
        if pause is not None:
            _pause(roster, group)
        return {"step": learner.step, **waiting(counters_of(learner)())}


def _wait_for_the_end(finding: Finding[Place], longest_s: float) -> None:
    """Wait until the first learner has saved what all have learnt, which raises `Ended`."""
    from steps.training.meeting import POLL_S

    end = time.monotonic() + longest_s
    while time.monotonic() < end:
        finding.check()
        time.sleep(POLL_S)
