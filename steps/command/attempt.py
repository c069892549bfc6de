"""One attempt of a step: its log, its status file, its lease, and the translation of exceptions
into exit codes.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from config.errors import (
    BadInput,
    ExperimentError,
    NoProgress,
    Preempted,
    WrongDirectory,
    on_one_line,
    printable,
)
from steps.command.context import Paused, Skipped, StepContext
from steps.command.log import Log, append_line
from steps.command.repeats import COUNTED_EXIT_CODE, repeats_after
from steps.command.stop import GRACE_S
from steps.directory import owner, processes, status
from steps.directory.files import remove_temporaries, unwritable
from steps.directory.status import State, Status

POLL_S = 0.25
Answer = Mapping[str, Any] | Skipped | Paused | None
EXIT = os._exit
"""The real one: an attempt puts its own in the place of `os._exit`."""
OTHERS_ENDED = "something in this process ended it"


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended."""

    state: State
    exit_code: int = 0
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Attempt:
    """Runs a step once. Whatever happens is recorded in its log, its status file and its exit code."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._started = time.monotonic()
        self._ending = threading.Lock()
        self._process_id = os.getpid()
        self._details: dict[str, Any] = {}
        previous = context.previous
        self._repeats = repeats_after(previous, context.task, context.owner_uid)
        self._status = Status(
            task=context.name,
            state="running",
            started=status.now(),
            attempt=1 if previous is None else previous.attempt + 1,
            host=socket.gethostname(),
            process=processes.identity(),
            owner=context.owner_uid,
            failures=self._repeats.failures,
            kills=self._repeats.kills,
        )
        context.attempt = self._status.attempt
        context.note = self.note

    def note(self, **details: Any) -> None:
        """Add details to the status file at once, so that a killed attempt leaves them behind, too.

        Raises `WrongDirectory` if this attempt may no longer write that file.
        """
        self._details |= details
        self._status = replace(self._status, details=dict(self._details))
        self._context.require_ours()
        self._write(self._status)

    def _write(self, written: Status) -> None:
        """Replace the status file. An older attempt that has not noticed this one yet may once
        remove the temporary file when it begins; the write is then repeated.
        """
        try:
            status.write_status(self._context.status_path, written)
        except FileNotFoundError:
            self._context.require_ours()
            status.write_status(self._context.status_path, written)

    def run(self, work: Callable[[], Answer]) -> Status:
        """Do the work. Never raises an `Exception` once it has begun: the status says what
        happened. Raises `BadInput` before that.
        """
        self._open()
        os._exit = self._exit_of_others
        try:
            outcome = self._outcome(work)
        finally:
            os._exit = EXIT
        # Never released: either this thread or the keeper ends the attempt, and only once.
        self._ending.acquire()
        return self._close(outcome)

    def _exit_of_others(self, status: int) -> NoReturn:
        """What `os._exit` is while the work goes on. An environment that ends the process with 0 would
        otherwise make a success of an unfinished step.
        """
        if os.getpid() == self._process_id and self._ending.acquire(blocking=False):
            reason = f"{OTHERS_ENDED}, os._exit({status!r}); an environment must not end it"
            status = self._close(Outcome("failed", 1, reason)).exit_code or 1
        EXIT(status)

    def _open(self) -> None:
        try:
            self._log = Log(self._context.log_path)
        except OSError as error:
            raise unwritable(self._context.log_path, error) or error from error
        try:
            self._context.fence.claim()
            status = self._context.status_path
            for name in (self._context.name, owner.fence_path(status).name):
                remove_temporaries(status.parent, of=f"{name}.")
            self.note()
        except (OSError, ExperimentError) as error:
            displaced = self._displaced() if isinstance(error, FileNotFoundError) else None
            self._log.close()
            if displaced is not None:  # the attempt that started since has swept our temporary away
                raise displaced from None
            if isinstance(error, OSError):
                raise unwritable(self._context.status_path, error) or error from error
            raise
        print(
            f"--- {self._context.title}, attempt {self._status.attempt}, {self._status.started}, {self._status.process}"
        )
        threading.Thread(target=self._keep, name="keeper", daemon=True).start()

    def _outcome(self, work: Callable[[], Answer]) -> Outcome:
        try:
            self._repeats.refuse_another()
            answer = work()
            if self._context.stop.cause is not None:
                raise self._context.stop.cause
        except ExperimentError as error:
            stopped = self._context.stop.cause if isinstance(error, Preempted) else None
            return self._failure(stopped or error)
        except Exception as error:
            print_traceback(error)
            return Outcome("failed", 1, f"{type(error).__name__}: {one_line(error)}")
        except BaseException as error:
            # Nothing of this project raises these: signals only ask for a stop.
            print_traceback(error)
            reason = f"{OTHERS_ENDED}, {type(error).__name__}({one_line(error)})"
            return Outcome("failed", 1, f"{reason}; an environment must not end it")
        if isinstance(answer, Skipped):
            return Outcome("skipped", 0, answer.reason, answer.details)
        if isinstance(answer, Paused):
            return Outcome("paused", 0, answer.reason, answer.details)
        return Outcome("succeeded", details=answer or {})

    def _failure(self, error: ExperimentError) -> Outcome:
        if error.__cause__ is not None and not isinstance(error, BadInput):
            print_traceback(error)
        state: State = "preempted" if isinstance(error, Preempted) else "failed"
        return Outcome(state, error.exit_code, one_line(error))

    def _displaced(self) -> ExperimentError | None:
        """Why this attempt may not write any more, or None. It does not matter who noticed first,
        the keeper thread or the work.
        """
        if isinstance(self._context.stop.cause, WrongDirectory):
            return self._context.stop.cause
        try:
            self._context.require_ours()
        except WrongDirectory as error:
            return error
        except OSError:  # nobody knows; writing the status will say what is wrong with the storage
            pass
        return None

    def _close(self, outcome: Outcome) -> Status:
        """Write the status and print the reason on stderr. Nothing is written if another workflow
        or attempt owns the directory now.
        """
        context = self._context
        displaced = self._displaced()
        if displaced is not None:
            outcome = self._failure(displaced)
        if outcome.exit_code == COUNTED_EXIT_CODE:
            outcome = self._counted(outcome)
        ended = replace(
            self._status,
            failures=self._repeats.failures,
            state=outcome.state,
            ended=status.now(),
            duration_s=round(time.monotonic() - self._started, 3),
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            inputs=context.inputs,
            details={**self._details, **outcome.details},
        )
        try:
            if displaced is None:
                self._write(ended)
        except (OSError, ExperimentError) as error:
            reason = f"cannot write {context.status_path}: {one_line(error)}"
            ended = replace(
                ended,
                state="failed",
                exit_code=ended.exit_code or 1,
                reason=f"{ended.reason}; {reason}" if ended.reason else reason,
            )
        self._log.close()
        line = f"{context.title}: {ended.state}"
        line += f": {ended.reason}" if ended.reason else f" in {ended.duration_s} s"
        if displaced is None:
            append_line(context.log_path, line)
        print(line, file=sys.stderr if ended.exit_code else sys.stdout, flush=True)
        return ended

    def _counted(self, outcome: Outcome) -> Outcome:
        """A failure, counted. The last one of a row gets the exit code that nobody retries."""
        self._repeats = self._repeats.after_failure()
        if not self._repeats.failed_too_often:
            return outcome
        reason = f"{outcome.reason}; failed {self._repeats.failures} times in a row: not repeated"
        return replace(outcome, exit_code=NoProgress.exit_code, reason=reason)

    def _keep(self) -> None:
        """In a thread beside the work: keep the lease alive, and end a step that does not react to
        a stop request.
        """
        stop = self._context.stop
        next_beat = time.monotonic()
        while not self._ending.locked():
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + self._beat()
            if stop.overdue and self._ending.acquire(blocking=False):
                # The main thread may hang in a C library, where no exception reaches it: only
                # `os._exit` ends the process from here.
                outcome = self._failure(stop.error())
                reason = (
                    f"{outcome.reason} (ended in the middle: it did not look within {GRACE_S:g} s)"
                )
                EXIT(self._close(replace(outcome, reason=reason)).exit_code or 1)
            time.sleep(POLL_S)

    def _beat(self) -> float:
        """Give a sign of life, renew the lease, and request a stop if another attempt owns the
        directory. Returns the seconds until the next beat.
        """
        uid = self._context.owner_uid
        path = self._context.directory.owner_json
        lease_s = owner.LEASE_S
        try:
            self._context.fence.check()
            self._context.fence.beat()
            if uid is not None:
                owner.touch(path, uid)
                present = owner.read_owner(path)
                lease_s = present.lease_s if present else lease_s
        except WrongDirectory as error:
            self._context.stop.because(error)
        except OSError:
            pass  # the storage is gone for a moment; the next beat or the work itself will say so
        return lease_s / owner.HEARTBEATS_PER_LEASE


def print_traceback(error: BaseException) -> None:
    """Print the traceback on stderr, without control sequences of its messages."""
    for line in "".join(traceback.format_exception(error)).splitlines():
        print(printable(line), file=sys.stderr)


def one_line(error: BaseException) -> str:
    """The message of an error on one line, safe for a terminal."""
    return on_one_line(error) or type(error).__name__
