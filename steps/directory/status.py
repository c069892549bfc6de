"""How a task ended, and how far a training is.

`status/<task>.json` says what ran, how it ended, and why. Each attempt rewrites it as a whole when it
starts and when it ends. The progress of a training is read from the tables that it leaves, or from the
lines that it prints, for the live view and the report.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from config.errors import BadInput, on_one_line, shown
from config.measures import Measure
from config.pipeline import TRAIN
from config.resolved import Resolved
from steps.directory.files import read_bytes, write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.tables import last_row

State = Literal["running", "succeeded", "paused", "failed", "skipped", "preempted"]
"""paused: a training that ended where it was asked to, before its last epoch."""
STATUS_LIMIT_BYTES = 2**20
LARGEST_NUMBER = 1e100


@dataclass(frozen=True, kw_only=True)
class Status:
    """The last attempt of one task.

    started, ended: ISO 8601 in UTC, for people only: no decision compares them with another
    machine's clock. duration_s: of this attempt, from a monotonic clock. process: the writer's
    (`processes.identity`). inputs: what the result depends on, so that a repeat knows whether it is
    finished. owner: the uid of the workflow, None by hand. failures, kills: how many attempts in a row
    failed and were killed, see `steps.command.repeats`. details: further facts from the task.
    """

    task: str
    state: State
    started: str
    ended: str | None = None
    duration_s: float | None = None
    exit_code: int | None = None
    reason: str | None = None
    attempt: int = 1
    host: str = ""
    process: str = ""
    inputs: dict[str, Any] | None = None
    owner: str | None = None
    failures: int = 0
    kills: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ended_well(self) -> bool:
        """Whether nothing went wrong, exit code 0; a paused training is not finished, though."""
        return self.state in {"succeeded", "skipped", "paused"}

    def number(self, name: str) -> float | None:
        """A finite number among the details; None if there is none."""
        value: Any = self.details.get(name)
        return float(value) if _is_number(value) else None

    def names(self, name: str) -> list[str]:
        """A list of texts among the details; empty if there is none."""
        value = self.details.get(name)
        return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def read_status(path: Path) -> Status | None:
    """The status in a file; None if there is none or it is damaged: a task without a readable
    status has not ended.
    """
    try:
        return _parsed(read_bytes(path, STATUS_LIMIT_BYTES))
    except (OSError, BadInput, ValueError, TypeError, RecursionError):
        return None


def damage(path: Path) -> str | None:
    """Why an existing file is not a status; None if it is one, or does not exist."""
    try:
        _parsed(read_bytes(path, STATUS_LIMIT_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, BadInput, ValueError, TypeError, RecursionError) as error:
        return on_one_line(error) or type(error).__name__
    return None


def _parsed(content: bytes) -> Status:
    """Check every field's type, so that readers can rely on it. Raises `ValueError`."""
    fields = json.loads(content)
    if not isinstance(fields, dict):
        raise ValueError(f"it is no mapping but a {type(fields).__name__}")
    given = {name: fields[name] for name in _NAMES if name in fields}
    for name, value in given.items():
        if not _KINDS[name](value):
            raise ValueError(f"{name} cannot be {shown(value)}")
    status = Status(**given)
    return dataclasses.replace(status, reason=status.reason and on_one_line(status.reason))


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < LARGEST_NUMBER
        and math.isfinite(value)
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _or_none(kind: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or kind(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def paused_at(details: Mapping[str, Any], resolved: Resolved) -> str:
    """Where a paused training is, from the details of its status: `paused at epoch 7 of 20`."""
    return f"paused at epoch {details.get('epoch')} of {resolved.epochs}"


def pause_of(run: RunDirectory) -> str:
    """Where a run is paused, in a sentence: `run 0 is paused at epoch 7`; empty if it is not."""
    train = read_status(run.status / f"{TRAIN}.json")
    if train is None or train.state != "paused":
        return ""
    return f"run {run.index} is paused at epoch {train.details.get('epoch')}"


def write_status(path: Path, status: Status) -> None:
    """Replace the status file."""
    write_atomically(path, json.dumps(dataclasses.asdict(status), indent=1) + "\n")


def now() -> str:
    """The current time for people: `2026-11-21T12:00:00+00:00`."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


_KINDS: dict[str, Callable[[object], bool]] = {
    "task": _is_text,
    "state": lambda value: value in get_args(State),
    "started": _is_text,
    "ended": _or_none(_is_text),
    "duration_s": _or_none(_is_number),
    "exit_code": _or_none(_is_count),
    "reason": _or_none(_is_text),
    "attempt": _is_count,
    "host": _is_text,
    "process": _is_text,
    "inputs": _or_none(_is_mapping),
    "owner": _or_none(_is_text),
    "failures": _is_count,
    "kills": _is_count,
    "details": _is_mapping,
}
_NAMES = [item.name for item in dataclasses.fields(Status)]


@dataclass(frozen=True)
class Score:
    """A score of a run, with the name and the unit of its measure."""

    measure: str
    value: float
    unit: str

    @staticmethod
    def of(measure: Measure, value: float | None) -> Score | None:
        """The score, or None without a value."""
        return None if value is None else Score(measure.name, value, measure.unit)

    def written(self, form: str) -> str:
        """`return 43.2`, `win rate 55.0 %`. form: the number's format, as for `format`."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.measure} {self.value:{form}}{unit}"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a training: step of total_steps, epoch of epochs. score: that of the last row
    that has one. The last two fields are None before they are known.
    """

    step: int
    total_steps: int
    epoch: int
    epochs: int
    score: Score | None
    steps_per_second: float | None

    @property
    def fraction(self) -> float:
        """The finished share, between 0 and 1."""
        return min(1.0, self.epoch / self.epochs)


PRINTED = re.compile(
    r"epoch (?P<epoch>\d+) of (?P<epochs>\d+), step (?P<step>\d+) of (?P<total_steps>\d+)"
    r"(?:, (?P<measure>[^,]+) (?P<value>-?[0-9][^ ,]*|-?inf|nan)(?: (?P<unit>[^,]+))?)?"
    r"(?:, (?P<steps_per_second>[^ ,]+) steps/s)?"
)


def printed(progress: Progress) -> str:
    """The line that a training prints now and then: `epoch 58 of 196, step 14848 of 50176, return
    43.2, 5843.1 steps/s`.
    """
    parts = [
        f"epoch {progress.epoch} of {progress.epochs}",
        f"step {progress.step} of {progress.total_steps}",
    ]
    if progress.score is not None:
        parts.append(progress.score.written(".5g"))
    if progress.steps_per_second is not None:
        parts.append(f"{progress.steps_per_second:.1f} steps/s")
    return ", ".join(parts)


def read_printed(line: str) -> Progress | None:
    """Parse a line that `printed` wrote; None for any other line."""
    match = PRINTED.fullmatch(line.strip())
    if match is None:
        return None
    return Progress(
        step=int(match["step"]),
        total_steps=int(match["total_steps"]),
        epoch=int(match["epoch"]),
        epochs=int(match["epochs"]),
        score=Score(match["measure"], float(match["value"]), match["unit"] or "")
        if match["measure"]
        else None,
        steps_per_second=_number(match["steps_per_second"]),
    )


def read_progress(run: RunDirectory, resolved: Resolved) -> Progress:
    """Read the ends of `train.csv` and `resources.csv`; a run without files is at step 0."""
    train = last_row(run.train_csv) or {}
    column = resolved.measure.training_column
    with_score = last_row(run.train_csv, having=column) or {}
    resources = last_row(run.resources_csv, having="steps_per_second") or {}
    return Progress(
        step=int(train.get("step") or 0),
        total_steps=resolved.total_steps,
        epoch=int(train.get("epoch") or 0),
        epochs=resolved.epochs,
        score=Score.of(resolved.measure.in_training, _number(with_score.get(column))),
        steps_per_second=_number(resources.get("steps_per_second")),
    )


def _number(text: str | None) -> float | None:
    return float(text) if text else None
