"""What the report says of the trackers that an experiment is sent to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.pipeline import TRACK
from config.tracking import names
from steps.page.facts import Facts, Run


def said_of_trackers(facts: Facts) -> list[str]:
    """`wandb: 2 of 3 runs sent; kept for later: …`, one line for each tracker. The report itself, the
    evaluations and the films are sent after it was made.
    """
    return [_said(facts, tracker) for tracker in names(facts.resolved.experiment.track)]


def _said(facts: Facts, tracker: str) -> str:
    told = [_told(run, tracker) for run in facts.runs]
    sent = [one for one in told if one is not None and "kept" not in one]
    reasons = dict.fromkeys(str(one["kept"]) for one in told if one is not None and "kept" in one)
    line = f"{tracker}: {len(sent)} of {len(told)} runs sent"
    return f"{line}; kept for later: {next(iter(reasons))}" if reasons else line


def _told(run: Run, tracker: str) -> Mapping[str, Any] | None:
    """What `track` of the run noted about the tracker."""
    status = run.tasks[TRACK].status
    trackers = None if status is None else status.details.get("trackers")
    one = trackers.get(tracker) if isinstance(trackers, Mapping) else None
    return one if isinstance(one, Mapping) else None
