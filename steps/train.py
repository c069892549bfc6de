"""Train one run: `python -m steps.train --outdir … --run 0`.

The same command starts, continues after whatever ended the last attempt, and returns at once when
the run is trained. Leaves checkpoints, `train.csv`, TensorBoard files and `resources.csv`.
"""

from __future__ import annotations

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
    from steps.training import single
    from steps.training.attempt import attempt

    return attempt(context, single.train)


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
