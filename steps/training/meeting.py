"""How a member of a training finds its learner, and how it notices that the training has ended.

The learner writes its address and a token to `learner.json` in the run's directory, readable for its
owner alone. Each start of the learner replaces the file, and its end removes it. An actor reads the
file again at every attempt to connect. Whether a learner will come again is read from the status of
the task `train`. With several learners, each has a file of its own and its share of the actors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from agents.transport.address import LONGEST, Address, address_from_text, address_to_text
from config.errors import NEVER_RETRIED, BadInput, Preempted, shown
from config.pipeline import TRAIN
from steps.command.context import StepContext
from steps.directory import checkpoints
from steps.directory.files import read_bytes, write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.status import Status, read_status
from steps.directory.usable import changed_table
from steps.training.pausing import is_far_enough

POLL_S = 0.5
Found = TypeVar("Found")


class Ended(Exception):
    """An actor has nothing left to do. The message says why."""


def published(
    context: StepContext, address: Address, learner: int = 0
) -> contextlib.AbstractContextManager[None]:
    """Publish this learner's address for actors. Raises `WrongDirectory` if a later attempt is the
    learner.
    """
    return there(context, context.run.address_json(learner), address_to_text(address))


@contextlib.contextmanager
def there(context: StepContext, path: Path, line: str) -> Iterator[None]:
    """Keep a file that only its owner can read, until this context ends or another process replaces
    the file.
    """
    text = f"{line}\n"
    context.require_ours()
    # The line holds a token: only the owner may read it, from the file's first byte on.
    write_atomically(path, text, mode=0o600)
    try:
        yield
    finally:
        # Removed only with this learner's own line in it: a restarted one may have replaced it.
        with contextlib.suppress(OSError, BadInput):  # gone, or the next learner's
            if read_bytes(path, LONGEST) == text.encode():
                path.unlink()


class Ending:
    """Lets a member notice the end of its training."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._before = read_status(context.run.status / f"{TRAIN}.json")

    def check_stop(self) -> None:
        """Raise `Preempted` after a SIGTERM."""
        self._context.check_stop()

    def check(self) -> None:
        """Raise `Ended`, or `Preempted` after a SIGTERM."""
        self.check_stop()
        if why := outcome(self._context, self._before) or self._paused_since():
            raise Ended(why)

    def _paused_since(self) -> str:
        """Where the training has paused since this member started, which need not know of the pause;
        empty if it has not.
        """
        status = read_status(self._context.run.status / f"{TRAIN}.json")
        if status is None or status.state != "paused" or status == self._before:
            return ""
        return f"the run is {status.reason}"


class Finding(Ending, Generic[Found]):
    """Lets a member find what a learner wrote to `path` while it runs."""

    def __init__(self, context: StepContext, path: Path, read: Callable[[str], Found]) -> None:
        super().__init__(context)
        self._path = path
        self._read = read

    def find(self) -> Found | None:
        """What the learner wrote, or None if there is nothing. Raises what `check` raises, and
        `BadInput` for a foreign file.
        """
        self.check()
        try:
            return self._read(read_bytes(self._path, LONGEST).decode())
        except FileNotFoundError:
            return None
        except (BadInput, UnicodeDecodeError) as error:
            raise BadInput(f"{self._path}: {error}") from None

    def wait(self, longest_s: float) -> Found:
        """Wait until the file is there. Raises `Preempted` after a time limit, and what `find`
        raises.
        """
        end = time.monotonic() + longest_s
        while (found := self.find()) is None:
            if time.monotonic() >= end:
                raise Preempted(f"no learner for {longest_s:g} s: there is no {self._path}")
            time.sleep(POLL_S)
        return found


class Search(Finding[Address]):
    """Lets an actor find its learner, one of several. instead: `host:port` under which the learner
    is reached from here, in place of what it wrote. Raises `BadInput`.
    """

    def __init__(self, context: StepContext, instead: str | None = None, learner: int = 0) -> None:
        elsewhere = None if instead is None else _host_and_port(instead)

        def read(text: str) -> Address:
            address = address_from_text(text)
            if elsewhere is None:
                return address
            host, port = elsewhere
            # Without its local socket: a person who gives a host wants that way to be taken.
            return dataclasses.replace(address, host=host, port=port, socket="")

        super().__init__(context, context.run.address_json(learner), read)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise BadInput(f"--learner cannot be {shown(text)}; allowed: host:port")
    return host.strip("[]"), int(port)


def outcome(context: StepContext, before: Status | None = None) -> str:
    """How the training ended; empty while it goes on or may be continued. before: the learner's
    status when the actor started: a failure of another workflow, or an old one without a workflow,
    does not count.
    """
    run = context.run
    status = read_status(run.status / f"{TRAIN}.json")
    if status is None:
        return ""
    if _has_all_that_is_asked(context, status):
        return (
            "the run is trained" if status.state == "succeeded" else f"the run is {status.reason}"
        )
    if failed_for_good(context, status, before):
        return f"the training has failed for good: {status.reason}"
    return ""


def _has_all_that_is_asked(context: StepContext, status: Status) -> bool:
    """Whether the training has ended well, at its end or at the pause that this member knows of."""
    return (
        status.ended_well
        and status.inputs == context.inputs
        and is_far_enough(context, status)
        and is_trained(context.run, status)
    )


def failed_for_good(context: StepContext, status: Status | None, before: Status | None) -> bool:
    """Whether the process with this status will not be restarted in this workflow's training.
    before: as for `outcome`.
    """
    if status is None or status.state != "failed" or status.exit_code not in NEVER_RETRIED:
        return False
    if context.owner_uid is None:
        return status != before
    return status.details.get("workflow") == context.owner_uid


def is_trained(run: RunDirectory, status: Status | None) -> bool:
    """Whether the files of a finished training exist and are intact."""
    step = status.details.get("step") if status else None
    return (
        status is not None
        and isinstance(step, int)
        and checkpoints.is_intact(run.checkpoint(step))
        and run.train_csv.is_file()
        and not changed_table(run, status)
    )
