"""What the two steps that send to trackers share: the senders of a pod, and what they say in the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.errors import Unsent, WrongDirectory
from config.pipeline import TRACK
from config.tracking import names
from steps.command.context import StepContext
from steps.directory import processes
from steps.directory.experiment import training_inputs
from steps.directory.status import read_status
from steps.tracking.sender import Sender

NOT_ASKED = "no tracker is asked for (-p track=…)"


def trackers_of(context: StepContext) -> tuple[str, ...]:
    """The trackers of the experiment."""
    return names(context.resolved.experiment.track)


def sender_of(context: StepContext, tracker: str, index: int) -> Sender:
    """The sender of one run, which writes only while this attempt may."""
    run = context.directory.run(index)
    return Sender(tracker, context.directory, run, context.record, context.require_ours)


def senders_of(context: StepContext, tracker: str) -> list[Sender]:
    """Those of the step's run, or of all runs that have begun. One that another process follows at this
    moment is left to that.
    """
    if context.run_index is not None:
        return [sender_of(context, tracker, context.run_index)]
    found = []
    for index in range(context.resolved.experiment.runs):
        run = context.directory.run(index)
        if not run.train_csv.is_file():
            continue
        status = read_status(run.status / f"{TRACK}.json")
        if (
            status is not None
            and status.state == "running"
            and processes.is_alive(status.process) is True
        ):
            print(f"run {index} is left to {TRACK}, which follows it now ({status.process})")
            continue
        found.append(sender_of(context, tracker, index))
    return found


def inputs(context: StepContext) -> dict[str, Any]:
    """What has been sent, if nothing else has changed."""
    experiment = context.resolved.experiment
    return {"track": experiment.track, "runs": experiment.runs, **training_inputs(context.record)}


def is_complete(context: StepContext) -> bool:
    """Whether every tracker has all there is."""
    try:
        return all(
            sender.is_complete()
            for tracker in trackers_of(context)
            for sender in senders_of(context, tracker)
        )
    except (Unsent, WrongDirectory):  # said by the step itself
        return False


def told(outcome: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Print what each tracker has. Returns it as details for the status."""
    for tracker, one in outcome.items():
        to = f" ({one['to']})" if one["to"] else ""
        kept = f"; kept for later: {one['kept']}" if "kept" in one else ""
        print(f"{tracker}{to}: has {one['rows']} rows and {one['files']} files{kept}")
    return {"trackers": {tracker: dict(one) for tracker, one in outcome.items()}}
