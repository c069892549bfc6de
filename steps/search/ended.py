"""How a trial has ended, read from its directory and told to the journal."""

from __future__ import annotations

import math

from config.errors import ExperimentError, Incomplete, on_one_line
from config.pipeline import EVALUATE, TRAIN
from config.resolved import Resolved
from config.study import Search
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Status, read_status
from steps.directory.usable import usability
from steps.search.journal import Journal, Trial, in_words
from steps.search.objective import final_value

HAS_NOT_ENDED = "has not ended"


def tell_end(
    experiment: ExperimentDirectory, search: Search, journal: Journal, number: int
) -> Trial:
    """Tell the journal how a trial ended, unless it was told. Raises `Incomplete` for one that has not: it
    is continued.
    """
    trial = journal.trial(number)
    if trial.has_ended:
        return trial
    try:
        resolved = read_experiment(experiment).resolved
    except ExperimentError as error:
        failed = read_status(experiment.status / "prepare.json")
        if failed is None or failed.state != "failed":
            raise Incomplete(f"trial {number} {HAS_NOT_ENDED}: {on_one_line(error)}") from None
        return journal.tell(number, state="failed", reason=_why(failed), facts={})
    facts = cost(experiment, resolved)
    if reason := in_words(trial.rungs):
        return journal.tell(number, state="pruned", reason=reason, facts=facts)
    value = final_value(experiment, resolved, search.objective)
    if value is not None and math.isfinite(value):
        return journal.tell(number, state="complete", value=value, facts=facts)
    failures = _failures(experiment, resolved)
    if len(failures) <= resolved.experiment.runs - resolved.min_runs:
        states = {
            index: usability(experiment.run(index), resolved).reason
            for index in range(resolved.experiment.runs)
        }
        left = "; ".join(f"run {index}: {why}" for index, why in states.items() if why)
        raise Incomplete(f"trial {number} {HAS_NOT_ENDED}: {left or 'no value'}")
    return journal.tell(number, state="failed", reason="; ".join(failures), facts=facts)


def _failures(experiment: ExperimentDirectory, resolved: Resolved) -> list[str]:
    """The runs that failed for good, and why."""
    found = []
    for index in range(resolved.experiment.runs):
        run = experiment.run(index)
        ended = (read_status(run.status / f"{task}.json") for task in (TRAIN, EVALUATE))
        failed = next((one for one in ended if one is not None and one.state == "failed"), None)
        if failed is not None:
            found.append(f"run {index}: {_why(failed)}")
    return found


def _why(status: Status) -> str:
    return f"{status.task}: {status.reason or 'failed'}"


def cost(experiment: ExperimentDirectory, resolved: Resolved) -> dict[str, float]:
    """What the trainings of a trial cost: `seconds` and environment `steps` of all runs together, and the
    `steps_to_the_end` and `seconds_to_the_end`, by their speed, of trainings that nothing ends early.
    """
    seconds = steps = 0.0
    for index in range(resolved.experiment.runs):
        status = read_status(experiment.run(index).status / f"{TRAIN}.json")
        if status is not None:
            seconds += status.number("wall_s") or 0.0
            steps += status.number("step") or 0.0
    whole = float(resolved.experiment.runs * resolved.total_steps)
    found = {"seconds": seconds, "steps": steps, "steps_to_the_end": whole}
    if steps:
        found["seconds_to_the_end"] = seconds * max(1.0, whole / steps)
    return found
