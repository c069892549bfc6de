"""`status/<task>.json`: what ran, how it ended, and why. Rewritten as a whole at the start and at the end of each attempt."""

from __future__ import annotations

import dataclasses
import datetime
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from config.errors import BadInput
from steps.directory.files import read_bytes, write_atomically

State = Literal["running", "succeeded", "failed", "skipped", "preempted"]
STATUS_LIMIT_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Status:
    """One task's last attempt.

    started, ended: ISO 8601 in UTC, for people only: no decision compares them with another machine's clock. duration_s: this
    attempt, from a monotonic clock. process: the writer's (`processes.identity`). inputs: what the result depends on, so that a repeat
    knows whether it is finished; details: what the task wants to say.
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


def read_status(path: Path) -> Status | None:
    """The status in a file; None if there is none or it is not one (a task that left no readable status has not ended)."""
    try:
        fields = json.loads(read_bytes(path, STATUS_LIMIT_BYTES))
        return Status(**{name: fields[name] for name in _NAMES if name in fields})
    except (OSError, BadInput, ValueError, TypeError, RecursionError):
        return None


def write_status(path: Path, status: Status) -> None:
    """Replace the status file."""
    write_atomically(path, json.dumps(dataclasses.asdict(status), indent=1) + "\n")


def now() -> str:
    """The time as people read it: `2026-11-21T12:00:00+00:00`."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


_NAMES = [item.name for item in dataclasses.fields(Status)]
