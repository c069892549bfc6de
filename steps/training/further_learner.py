"""A learner beside the first one: learns with it from a share of the actors, and keeps nothing. What
the training leaves is the first one's; this one is started again with it, and takes all from it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from config.errors import Preempted
from steps.command.context import StepContext
from steps.training.learner import no_data
from steps.training.serving import serve

if TYPE_CHECKING:
    from agents.transport.group import Place
    from steps.training.meeting import Finding


def learn(context: StepContext) -> dict[str, Any]:
    """Learn until the training has ended, well or for good; returns why there was nothing left to do.

    Raises `Preempted` after a SIGTERM, where there was no first learner for `reconnect_timeout` or
    one of the others was lost, or where no actor sent anything for `no_data_timeout`; and what the
    trainer raises.
    """
    os.environ["OMP_NUM_THREADS"] = str(context.resolved.experiment.threads)
    context.stop.describe = lambda: "preempted, joins again when it is started again"
    context.check_stop()
    from agents.distributed.protocol import PeersLost
    from agents.transport.group import place_from_text
    from steps.training.meeting import Ended, Finding

    finding = Finding(context, context.run.learners_json, place_from_text)
    patience_s, details = context.resolved.actors.reconnect_timeout, dict[str, Any]()
    try:
        finding.wait(patience_s)
        details = _learn(context, finding)
        _wait_for_the_end(finding, patience_s)
    except Ended as ended:
        return {"ended": str(ended), **details}
    except PeersLost as lost:
        raise Preempted(f"{lost}; joins again when it is started again") from None
    raise Preempted(f"the first learner has not ended well for {patience_s} s")


def _learn(context: StepContext, finding: Finding[Place]) -> dict[str, Any]:
    """With the others, to the end; returns what the report says of it."""
    import torch

    from agents.load import make_learner
    from steps.training.compute import chosen, settled
    from steps.training.coupling import Coupling, counters_of, waiting
    from steps.training.gathering import join
    from steps.training.meeting import published
    from steps.training.resources import gpu_of, of_member

    torch.set_num_threads(context.resolved.experiment.threads)
    compute = chosen(context, {})
    resolved, number = settled(context.resolved, compute), int(context.arguments.member)
    learner = make_learner(
        resolved, run=context.run_index or 0, device=compute.device, precision=compute.precision
    )
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.closing(learner))
        generation = join(opened, resolved, learner, finding, number)
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
        for progress in learner.train():
            context.check_stop()
            if progress is not None:
                sampler.at(progress.step)
            elif roster.silent_s > resolved.actors.no_data_timeout:
                raise no_data(roster, f"was at step {learner.step}")
        return {"step": learner.step, **waiting(counters_of(learner)())}


def _wait_for_the_end(finding: Finding[Place], longest_s: float) -> None:
    """Until the first learner has saved what all have learnt, which raises `Ended`."""
    from steps.training.meeting import POLL_S

    end = time.monotonic() + longest_s
    while time.monotonic() < end:
        finding.check()
        time.sleep(POLL_S)
