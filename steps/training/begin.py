"""How a training begins that goes on from no checkpoint of its own, but from another experiment's."""

from __future__ import annotations

import os
from pathlib import Path

from agents.interfaces import Resumable
from agents.states import begin_with_weights
from config.errors import BadInput
from steps.command.context import StepContext
from steps.directory.starting_point import first_checkpoint, refusal


def begun_from(context: StepContext, trainer: Resumable) -> Path:
    """Give a new trainer the weights that its run has at `start_from`; the checkpoint that they are
    of. Raises `BadInput` where there are none, or they do not fit.
    """
    resolved, run = context.resolved, context.run_index or 0
    checkpoint = first_checkpoint(resolved, run, os.environ.get("STORAGE") or None)
    try:
        begin_with_weights(trainer, checkpoint.state)
    except BadInput as error:
        raise refusal(resolved, str(error)) from None
    return checkpoint.path
