"""`status/<task>.json`: what ran, how it ended, and why. Rewritten as a whole at the start and at
the end of each attempt.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from config.errors import BadInput, on_one_line, shown
from steps.directory.files import read_bytes, write_atomically

State = Literal["running", "succeeded", "failed", "skipped", "preempted"]
STATUS_LIMIT_BYTES = 2**20
LARGEST_NUMBER = 1e100


@dataclass(frozen=True, kw_only=True)
class Status:
    """The last attempt of one task.

    started, ended: ISO 8601 in UTC, for people only: no decision compares them with another
    machine's clock. duration_s: of this attempt, from a monotonic clock. process: the writer's
    (`processes.identity`). inputs: what the result depends on, so that a repeat knows whether it is
    finished. details: further facts from the task.
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
    details: dict[str, Any] = field(default_factory=dict)

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
    "details": _is_mapping,
}
_NAMES = [item.name for item in dataclasses.fields(Status)]
