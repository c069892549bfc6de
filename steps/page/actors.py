"""What became of the actors of each run, and of its further learners, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from config.actors import ActorSettings
from steps.page.facts import Facts, Run, Task
from steps.page.verdict import spoken_numbers


def said_of_actors(facts: Facts) -> dict[int, str]:
    """Run -> `3 of 4 actors joined; 1 was started again, 2 times in all; 1 did not end well (2); the
    learner waited for experience 12 % of the time, an actor for the learner 3 %`; empty where runs
    have none.
    """
    settings = facts.resolved.actor_settings
    if settings is None:
        return {}
    return {run.index: _said(run, settings) for run in facts.runs}


def _said(run: Run, settings: ActorSettings) -> str:
    members = [member for task in run.tasks.values() for member in task.members if member.status]
    actors = [one for one in members if "-actor-" in one.name]
    joined = [one for one in actors if one.status and one.status.details.get("joined") is True]
    parts = [f"{len(joined)} of {max(settings.actors, len(joined))} actors joined"]
    parts += _how_they_went(actors, "")
    learners = [one for one in members if one not in actors]
    if settings.learners > 1:
        further = settings.learners - 1
        parts.append(f"{len(learners)} of {further} further learner{'s' * (further > 1)} came")
        parts += _how_they_went(learners, "of them ")
    share = -(-settings.actors // settings.learners)
    return "; ".join(parts + _who_waited(run, share))


def _how_they_went(members: Sequence[Task], who: str) -> list[str]:
    """Of what does not go without saying."""
    again = [one.status.attempt - 1 for one in members if one.status and one.status.attempt > 1]
    lost = [int(one.name.rpartition("-")[2]) for one in members if not one.is_done]
    parts = list[str]()
    if again:
        times = "once" if sum(again) == 1 else f"{sum(again)} times in all"
        verb = "was" if len(again) == 1 else "were"
        parts.append(f"{len(again)} {who}{verb} started again, {times}")
    if lost:
        parts.append(f"{len(lost)} {who}did not end well ({spoken_numbers(lost)})")
    return parts


def _who_waited(run: Run, actors: int) -> list[str]:
    """Known when the training has ended; shares of its whole time, of one of the first learner's
    actors the mean.
    """
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
