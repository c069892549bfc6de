"""One attempt of a step: its log, its status file, the lease, and the translation of exceptions into exit codes."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from config.errors import BadInput, ExperimentError, Preempted, WrongDirectory
from steps.command.context import Skipped, StepContext
from steps.command.log import Log, append_line
from steps.command.stop import GRACE_S
from steps.directory import owner, processes, status
from steps.directory.files import unwritable
from steps.directory.status import State, Status

POLL_S = 0.25
Answer = Mapping[str, Any] | Skipped | None


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended."""

    state: State
    exit_code: int = 0
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Attempt:
    """Runs a step once; whatever happens is in its log and its status file, and in the exit code."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._started = time.monotonic()
        self._ending = threading.Lock()
        self._details: dict[str, Any] = {}
        previous = context.previous
        self._status = Status(
            task=context.task,
            state="running",
            started=status.now(),
            attempt=1 if previous is None else previous.attempt + 1,
            host=socket.gethostname(),
            process=processes.identity(),
        )
        context.attempt, context.note = self._status.attempt, self.note

    def note(self, **details: Any) -> None:
        """Remember details, in the status file at once: what a killed attempt leaves behind, and what every end reports."""
        self._details |= details
        self._status = replace(self._status, details=dict(self._details))
        status.write_status(self._context.status_path, self._status)

    def run(self, work: Callable[[], Answer]) -> Status:
        """Do the work; never raises an `Exception`: the status says what happened. Raises `BadInput` before it starts."""
        self._open()
        outcome = self._outcome(work)
        self._ending.acquire()  # for good: there is one end, and nothing is kept after it
        return self._close(outcome)

    def _open(self) -> None:
        try:
            self._log = Log(self._context.log_path)
        except OSError as error:
            raise unwritable(self._context.log_path, error) or error from error
        try:
            self.note()
        except (OSError, ExperimentError) as error:
            self._log.close()
            if isinstance(error, OSError):
                raise unwritable(self._context.status_path, error) or error from error
            raise
        print(f"--- {self._context.title}, attempt {self._status.attempt}, {self._status.started}, {self._status.process}")
        threading.Thread(target=self._keep, name="keeper", daemon=True).start()

    def _outcome(self, work: Callable[[], Answer]) -> Outcome:
        try:
            answer = work()
            if self._context.stop.cause is not None:
                raise self._context.stop.cause
        except ExperimentError as error:
            stopped = self._context.stop.cause if isinstance(error, Preempted) else None
            return self._failure(stopped or error)
        except Exception as error:
            traceback.print_exc()
            return Outcome("failed", 1, f"{type(error).__name__}: {one_line(error)}")
        if isinstance(answer, Skipped):
            return Outcome("skipped", 0, answer.reason, answer.details)
        return Outcome("succeeded", details=answer or {})

    def _failure(self, error: ExperimentError) -> Outcome:
        if error.__cause__ is not None and not isinstance(error, BadInput):
            traceback.print_exception(error)
        return Outcome("preempted" if isinstance(error, Preempted) else "failed", error.exit_code, one_line(error))

    def _close(self, outcome: Outcome) -> Status:
        """Write the status (never into a directory that has become another's), and say the reason on stderr."""
        context = self._context
        ended = replace(
            self._status,
            state=outcome.state,
            ended=status.now(),
            duration_s=round(time.monotonic() - self._started, 3),
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            inputs=context.inputs,
            details={**self._details, **outcome.details},
        )
        try:
            if not isinstance(context.stop.cause, WrongDirectory):
                status.write_status(context.status_path, ended)
        except (OSError, ExperimentError) as error:
            reason = f"cannot write {context.status_path}: {one_line(error)}"
            ended = replace(
                ended, state="failed", exit_code=ended.exit_code or 1, reason=f"{ended.reason}; {reason}" if ended.reason else reason
            )
        self._log.close()
        line = f"{context.title}: {ended.state}" + (f": {ended.reason}" if ended.reason else f" in {ended.duration_s} s")
        append_line(context.log_path, line)
        print(line, file=sys.stderr if ended.exit_code else sys.stdout, flush=True)
        return ended

    def _keep(self) -> None:
        """Beside the work: keep the lease alive, and end a step that does not look at the stop request."""
        stop, uid, path = self._context.stop, self._context.owner_uid, self._context.directory.owner_json
        next_touch = time.monotonic()
        while not self._ending.locked():
            if uid is not None and time.monotonic() >= next_touch:
                next_touch = time.monotonic() + _touch(path, uid, stop.because)
            if stop.overdue and self._ending.acquire(blocking=False):
                outcome = self._failure(stop.error())
                reason = f"{outcome.reason} (ended in the middle: it did not look within {GRACE_S:g} s)"
                os._exit(self._close(replace(outcome, reason=reason)).exit_code or 1)
            time.sleep(POLL_S)


def _touch(path: Path, uid: str, displaced: Callable[[ExperimentError], None]) -> float:
    """Renew the lease; returns the seconds until the next time."""
    try:
        owner.touch(path, uid)
        present = owner.read_owner(path)
        return (present.lease_s if present else owner.LEASE_S) / owner.HEARTBEATS_PER_LEASE
    except WrongDirectory as error:
        displaced(error)
    except OSError:
        pass  # the storage is gone for a moment; the next beat or the work itself will say so
    return owner.LEASE_S / owner.HEARTBEATS_PER_LEASE


def one_line(error: BaseException) -> str:
    """The message of an error without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
