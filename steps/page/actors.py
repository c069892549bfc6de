"""What became of the actors of each run, in one sentence."""

from __future__ import annotations

from steps.page.facts import Facts, Run
from steps.page.verdict import spoken_numbers


def said_of_actors(facts: Facts) -> dict[int, str]:
    """Run -> `3 of 4 actors joined; 1 was started again, 2 times in all; 1 did not end well (2); the
    learner waited for experience 12 % of the time, an actor for the learner 3 %`; empty where runs
    have none.
    """
    settings = facts.resolved.actor_settings
    if settings is None:
        return {}
    return {run.index: _said(run, settings.actors) for run in facts.runs}


def _said(run: Run, expected: int) -> str:
    members = [member for task in run.tasks.values() for member in task.members if member.status]
    joined = [one for one in members if one.status and one.status.details.get("joined") is True]
    again = [one.status.attempt - 1 for one in members if one.status and one.status.attempt > 1]
    lost = [int(one.name.rpartition("-")[2]) for one in members if not one.is_done]
    parts = [f"{len(joined)} of {max(expected, len(joined))} actors joined"]
    if again:
        times = "once" if sum(again) == 1 else f"{sum(again)} times in all"
        parts.append(f"{len(again)} {'was' if len(again) == 1 else 'were'} started again, {times}")
    if lost:
        parts.append(f"{len(lost)} did not end well ({spoken_numbers(lost)})")
    return "; ".join(parts + _who_waited(run, max(expected, 1)))


def _who_waited(run: Run, actors: int) -> list[str]:
    """Known when the training has ended; shares of its whole time, of an actor the mean."""
    train = run.tasks["train"].status if "train" in run.tasks else None
    details = {} if train is None else train.details
    try:
        seconds = float(details["wall_s"])
        learner = 100 * float(details["learner_waited_s"]) / seconds
        actor = 100 * float(details["actors_waited_s"]) / (seconds * actors)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return []
    return [
        f"the learner waited for experience {min(learner, 100):.0f} % of the time, "
        f"an actor for the learner {min(actor, 100):.0f} %"
    ]
