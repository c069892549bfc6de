"""Train one run: `python -m steps.train --outdir … --run 0`.

The same command starts, continues after whatever ended the last attempt, and returns at once when
the run is trained. Leaves checkpoints, `train.csv`, TensorBoard files and `resources.csv`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory import checkpoints
from steps.directory.status import Status


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the step."""
    return run_step(
        "train",
        train,
        inputs=lambda context: {"identity": context.record.identity_hash},
        complete=is_trained,
        outputs=evaluate_output,
        argv=argv,
    )


def train(context: StepContext) -> dict[str, Any]:
    """Train one run from its newest checkpoint, or from the start."""
    from steps.training.single import Training

    os.environ["OMP_NUM_THREADS"] = str(
        context.resolved.experiment.threads
    )  # read when torch is imported
    context.note(**_left_by_the_last_attempt(context))
    checkpoints.clean(context.run)
    training = Training(
        context, checkpoints.load_newest(context.run, context.resolved.identity(), continues=True)
    )
    context.require_ours()  # reading may have taken long, and those behind may be a later attempt's
    checkpoints.discard_after(context.run, training.step)
    training.note(began=False)
    try:
        details = training.run()
    except Exception as error:
        training.failed(error)
        raise
    checkpoints.prune(
        context.run, training.step
    )  # a kill may have come between the last checkpoint and this
    return details


def _left_by_the_last_attempt(context: StepContext) -> dict[str, Any]:
    """Its guard, kept until the checkpoint is read: a kill in between would lose the count of all
    kills before.
    """
    guard = context.previous.details.get("guard") if context.previous else None
    return {"guard": {**guard, "began": False}} if isinstance(guard, dict) else {}


def is_trained(context: StepContext) -> bool:
    """Whether what a finished training left is still there and undamaged."""
    step = context.previous.details.get("step") if context.previous else None
    return (
        isinstance(step, int)
        and checkpoints.is_intact(context.run.checkpoint(step))
        and context.run.train_csv.is_file()
    )


def evaluate_output(status: Status) -> dict[str, str]:
    """Argo's output: whether the run is worth evaluating."""
    return {"evaluate": "true" if status.details.get("evaluate") else "false"}


if __name__ == "__main__":
    sys.exit(main())
