"""Summarises in one sentence what became of a run's actors and further learners, or of its
self-play workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from config.actors import ActorSettings
from config.workers import WorkerSettings
from steps.page.facts import Facts, Run, Task
from steps.page.verdict import spoken_numbers


def said_of_members(facts: Facts) -> dict[int, str]:
    """Run -> `3 of 4 actors joined; 1 was started again, 2 times in all; 1 did not end well (2);
    the learner waited for experience 12 % of the time, an actor for the learner 3 %`; empty for
    runs without members.
    """
    settings = facts.resolved.members
    if settings is None:
        return {}
    return {run.index: _said(run, settings) for run in facts.runs}


def _said(run: Run, settings: ActorSettings | WorkerSettings) -> str:
    role = settings.roles[1]
    members = [member for task in run.tasks.values() for member in task.members if member.status]
    actors = [one for one in members if f"-{role}-" in one.name]
    joined = [one for one in actors if one.status and one.status.details.get("joined") is True]
    parts = [f"{len(joined)} of {max(settings.helpers, len(joined))} {role}s joined"]
    parts += _how_they_went(actors, "")
    learners = [one for one in members if one not in actors]
    if settings.learners > 1:
        further = settings.learners - 1
        parts.append(f"{len(learners)} of {further} further learner{'s' * (further > 1)} came")
        parts += _how_they_went(learners, "of them ")
    if isinstance(settings, WorkerSettings):
        return "; ".join(parts + _self_play(_details(run)))
    share = -(-settings.actors // settings.learners)
    return "; ".join(parts + _who_waited(_details(run), share))


def _how_they_went(members: Sequence[Task], who: str) -> list[str]:
    """The parts of the sentence about anything unusual."""
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


def _details(run: Run) -> Mapping[str, Any]:
    """What the training recorded about itself."""
    train = run.tasks.get("train")
    if train is None or train.status is None:
        return {}
    return train.status.details


def _who_waited(details: Mapping[str, Any], actors: int) -> list[str]:
    """Which side waited, as shares of the training's whole time; known when it has ended. For
    actors it is the mean over those of the first learner.
    """
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


def _self_play(details: Mapping[str, Any]) -> list[str]:
    """Which side waited, as a share of its own time, with the replay ratio at which neither would
    wait; and anything that went wrong.
    """
    parts = list[str]()
    try:
        trainer = 100 * float(details["trainer_waited_s"]) / float(details["wall_s"])
        waited_s, played_s = (float(details[f"workers_{did}_s"]) for did in ("waited", "played"))
        parts.append(
            f"the trainer waited for games {min(trainer, 100):.0f} % of the time, "
            f"a worker for the trainer {100 * waited_s / (waited_s + played_s):.0f} %"
        )
        parts.append(f"neither would at replay_ratio={float(details['balancing_ratio']):.2g}")
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        pass
    old = details.get("old_positions_of_workers")
    if isinstance(old, Mapping) and old:
        listed = ", ".join(f"{count} of worker {worker}" for worker, count in sorted(old.items()))
        parts.append(f"positions by networks that had been replaced: {listed}")
    refused = details.get("refused_shards")
    if isinstance(refused, Mapping) and refused:
        listed = ", ".join(f"{count} ({why})" for why, count in refused.items())
        parts.append(f"files of games that were refused: {listed}")
    return parts
