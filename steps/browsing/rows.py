"""What one experiment shows in a line of the overview."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from config.errors import ExperimentError, on_one_line
from config.numbers import duration, number
from steps.browsing.life import Life
from steps.browsing.places import Place
from steps.directory import processes
from steps.directory.cost import Cost
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.page.facts import Facts, read_facts
from steps.page.verdict import Headline, headline, shortcomings

STATES = ("running", "succeeded", "incomplete", "failed", "paused", "stopped", "silent", "damaged")
"""In the order of the page's filter. silent: its workflow has not ended, and gives no sign of life."""
LIVE_STATUS = "Running"
"""The workflow's status on the page of an experiment that is still running."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line.

    note: why it is in that state; empty if that needs no reason. started: ISO 8601 in UTC. value: of the
    headline, None if nothing is claimed. shown: the same for people. measure: what it is. ends: of its
    interval. n: of how many runs.
    higher_is_better: whether a larger value is the better one. headline: the whole as the report says it. epochs, runs: done and
    planned. share: of a study, whose planned epochs nobody knows before all of it has begun. report: whether there is a page.
    """

    place: Place
    state: str
    note: str = ""
    algorithm: str = ""
    game: str = ""
    started: str = ""
    value: float | None = None
    shown: str = ""
    measure: str = ""
    ends: tuple[float, float] | None = None
    n: int = 0
    higher_is_better: bool = True
    headline: str = ""
    epochs: tuple[int, int] = (0, 0)
    share: float | None = None
    runs: tuple[int, int] = (0, 0)
    cost: Cost = field(default_factory=Cost)
    report: bool = False

    @property
    def interval(self) -> str:
        """`479.1 to 495.8`; empty without one."""
        return "" if self.ends is None else f"{number(self.ends[0])} to {number(self.ends[1])}"

    @property
    def fraction(self) -> float:
        """The finished share, between 0 and 1: of the epochs, unless `share` says it."""
        if self.share is not None:
            return self.share
        done, planned = self.epochs
        return min(1.0, done / planned) if planned else 0.0


def read_row(place: Place, results: Path) -> Row:
    """The line of an experiment as if no workflow worked on it, see `living`. results: the folder that is
    looked at, from which no code is imported. Never raises: damage is a state.
    """
    directory = ExperimentDirectory(place.path)
    has_report = directory.report_html.is_file()
    try:
        facts = read_facts(directory, read_experiment(directory, results), "")
        return replace(_row(place, facts), report=has_report)
    except ExperimentError as error:
        return Row(place=place, state="damaged", note=_damage(place, error), report=has_report)
    except Exception as error:
        # Files of any origin: whatever is wrong with one directory, the others are shown.
        return Row(
            place=place,
            state="damaged",
            note=f"{type(error).__name__}: {_damage(place, error)}",
            report=has_report,
        )


def _damage(place: Place, error: Exception) -> str:
    """What is wrong, with paths relative to the experiment: the line begins with its name."""
    return on_one_line(error).replace(f"{place.path}/", "")


def living(row: Row, life: Life) -> Row:
    """The line with what is known of its workflow now."""
    if row.state == "damaged":
        return row
    if life.state == "running":
        return replace(row, state="running", note="")
    if life.state == "free" and row.state == "stopped" and _is_run_by_hand(row.place.path):
        return replace(row, state="running", note="by hand")
    if life.state == "silent" and row.state != "succeeded":
        return replace(row, state="silent", note=f"no sign of life for {duration(life.silent_s)}")
    return row


def _row(place: Place, facts: Facts) -> Row:
    resolved = facts.resolved
    head = headline(facts)
    missing = shortcomings(facts)
    done = sum(round(run.fraction * resolved.epochs) for run in facts.runs)
    return Row(
        place=place,
        state=_state(facts, missing),
        note="; ".join([*missing, *_first_reason(facts)] if missing else ()),
        algorithm=resolved.descriptor.name,
        game=resolved.game.name,
        started=facts.record.started,
        **_claimed(facts, head),
        epochs=(done, resolved.epochs * len(facts.runs)),
        runs=(sum(bool(run.usable) for run in facts.runs), len(facts.runs)),
        cost=facts.cost,
    )


def _claimed(facts: Facts, head: Headline) -> dict[str, Any]:
    """The fields of the headline; none if nothing is claimed."""
    if not head.value or facts.summary is None:
        return {"headline": f"{head.name}: {head.note}"}
    scores = facts.summary["evaluation"]
    name, value = facts.resolved.measure.result(scores)
    ends = scores.get("t_interval") if scores.get("iqm") is None else scores.get("iqm_interval")
    return {
        "value": value,
        "shown": head.value,
        "measure": name,
        "ends": (float(ends[0]), float(ends[1])) if ends else None,
        "n": scores["n"],
        "higher_is_better": facts.resolved.measure.higher_is_better,
        "headline": f"{head.name} {head.value}, {head.interval}; {head.note}",
    }


def _first_reason(facts: Facts) -> list[str]:
    """Why the first run that is not usable is not."""
    lacking = [run for run in facts.runs if not run.usable and run.usable.state != "paused"]
    return [f"run {run.index}: {run.usable.reason}" for run in lacking[:1]]


def _state(facts: Facts, missing: list[str]) -> str:
    """How it ended. Stopped: by a signal or a deadline, in the middle of a step."""
    if not missing:
        return "succeeded"
    states = {run.usable.state for run in facts.runs if not run.usable}
    if states == {"paused"}:
        return "paused"
    if any(task.state in ("preempted", "running") for task in facts.tasks_and_members):
        return "stopped"
    if not any(run.usable for run in facts.runs) and "failed" in states:
        return "failed"
    return "incomplete"


def _is_run_by_hand(root: Path) -> bool:
    """Whether a step without a workflow runs on this machine at this moment."""
    return any(_lives(path) for path in _statuses(ExperimentDirectory(root)))


def _statuses(directory: ExperimentDirectory) -> Iterable[Path]:
    folders = [directory.status, *(run / "status" for run in directory.runs.glob("*"))]
    for folder in folders:
        yield from folder.glob("*.json")


def _lives(status: Path) -> bool:
    found = read_status(status)
    if found is None or found.state != "running":
        return False
    return processes.is_alive(found.process) is True
