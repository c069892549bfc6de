"""Waits until this workflow trains a run: `python -m steps.wait_for_training --outdir … --run 0`.

Actors and workers start only after it. If they started at once, they would hold processors and memory
while their learner or trainer still waits for room on the cluster, perhaps for what they hold.

It exits with 0 as soon as the training runs, has ended or pauses, and writes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from config.ending import end
from config.pipeline import TRAIN
from steps.command.context import StepContext
from steps.command.main import begin_context, command_parser, guarded
from steps.command.stop import StopRequest
from steps.directory import owner
from steps.directory.experiment import training_inputs
from steps.directory.status import read_status
from steps.training import pausing

NAME = "wait-for-training"
POLL_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Wait and return the exit code."""
    stop = StopRequest()
    stop.install()
    parser = command_parser("steps.wait_for_training", sys.modules[__name__], True)
    pausing.add_until(parser)
    parsed = parser.parse_args(argv)
    return guarded(NAME, lambda: wait_for_training(begin_context(NAME, parsed, stop)))


def wait_for_training(context: StepContext) -> int:
    """Wait until the training runs or has ended. Raises `Preempted` after a SIGTERM, and
    `WrongDirectory` if another workflow has taken the directory.
    """
    from steps.training.meeting import Ended, Ending

    context.inputs = training_inputs(context.record)
    ending = Ending(context)
    try:
        while not _runs(context):
            if context.owner_uid is not None:
                owner.check(context.directory.owner_json, context.owner_uid)
            ending.check()
            time.sleep(POLL_S)
    except Ended as ended:
        print(f"{NAME}: {ended}")
    return 0


def _runs(context: StepContext) -> bool:
    """Whether the training of this workflow runs. Without a workflow any running one counts."""
    status = read_status(context.run.status / f"{TRAIN}.json")
    if status is None or status.state != "running":
        return False
    return context.owner_uid is None or status.details.get("workflow") == context.owner_uid


if __name__ == "__main__":
    end(main())
