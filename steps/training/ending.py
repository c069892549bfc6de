"""Whether a training has ended: what a repeat asks of itself, and an actor of its learner."""

from __future__ import annotations

from config.errors import NEVER_RETRIED
from config.pipeline import TRAIN
from steps.command.context import StepContext
from steps.directory import checkpoints
from steps.directory.layout import RunDirectory
from steps.directory.status import Status, read_status


def outcome(context: StepContext, before: Status | None = None) -> str:
    """How the training ended, empty while it goes on or may be continued. before: the learner's status
    as the actor found it: a failure of another workflow, or an old one where there is no workflow,
    says nothing.
    """
    run = context.run
    status = read_status(run.status / f"{TRAIN}.json")
    if status is None:
        return ""
    if status.state == "succeeded" and status.inputs == context.inputs and is_trained(run, status):
        return "the run is trained"
    if failed_for_good(context, status, before):
        return f"the training has failed for good: {status.reason}"
    return ""


def failed_for_good(context: StepContext, status: Status | None, before: Status | None) -> bool:
    """Whether whoever left this status in the training of this workflow is not started again; before:
    as of `outcome`.
    """
    if status is None or status.state != "failed" or status.exit_code not in NEVER_RETRIED:
        return False
    if context.owner_uid is None:
        return status != before
    return status.details.get("workflow") == context.owner_uid


def is_trained(run: RunDirectory, status: Status | None) -> bool:
    """Whether what a finished training left is still there and undamaged."""
    step = status.details.get("step") if status else None
    return (
        isinstance(step, int)
        and checkpoints.is_intact(run.checkpoint(step))
        and run.train_csv.is_file()
    )
