"""Where a learner and its actors meet: `learner.json` in the run's directory, and the end of the
training that brings them together.

The learner writes where it is reached and a token, readable for its owner alone; each start of it
replaces that, and its end takes it away. An actor reads it again at every attempt to connect. Whether
a learner will ever come again, the status of the task `train` says. Of several learners each has a
file of its own, and its share of the actors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from agents.transport.address import LONGEST, Address, address_from_text, address_to_text
from config.errors import BadInput, Preempted, shown
from config.pipeline import TRAIN
from steps.command.context import StepContext
from steps.directory.files import read_bytes, write_atomically
from steps.directory.status import read_status
from steps.training.ending import outcome

POLL_S = 0.5
Found = TypeVar("Found")


class Ended(Exception):
    """Nothing is left for an actor to do; the message says why."""


def published(
    context: StepContext, address: Address, learner: int = 0
) -> contextlib.AbstractContextManager[None]:
    """Let actors find this learner; raises `WrongDirectory` where a later attempt is the learner."""
    return there(context, context.run.address_json(learner), address_to_text(address))


@contextlib.contextmanager
def there(context: StepContext, path: Path, line: str) -> Iterator[None]:
    """A file for its owner's eyes, until this ends or somebody else has replaced it."""
    text = f"{line}\n"
    context.require_ours()
    write_atomically(path, text, mode=0o600)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, BadInput):  # gone, or the next learner's
            if read_bytes(path, LONGEST) == text.encode():
                path.unlink()


class Ending:
    """A member's, of the end of its training."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._before = read_status(context.run.status / f"{TRAIN}.json")

    def check_stop(self) -> None:
        """Raise `Preempted` after a SIGTERM."""
        self._context.check_stop()

    def check(self) -> None:
        """Raise `Ended`, or `Preempted` after a SIGTERM."""
        self.check_stop()
        if why := outcome(self._context, self._before):
            raise Ended(why)


class Finding(Ending, Generic[Found]):
    """A member's, of what a learner wrote to `path` while it is there."""

    def __init__(self, context: StepContext, path: Path, read: Callable[[str], Found]) -> None:
        super().__init__(context)
        self._path, self._read = path, read

    def find(self) -> Found | None:
        """What was written, None while there is none. Raises what `check` does, and `BadInput` for a
        file that is none of ours.
        """
        self.check()
        try:
            return self._read(read_bytes(self._path, LONGEST).decode())
        except FileNotFoundError:
            return None
        except (BadInput, UnicodeDecodeError) as error:
            raise BadInput(f"{self._path}: {error}") from None

    def wait(self, longest_s: float) -> Found:
        """Until it is there; raises `Preempted` after a time, and what `find` raises."""
        end = time.monotonic() + longest_s
        while (found := self.find()) is None:
            if time.monotonic() >= end:
                raise Preempted(f"no learner for {longest_s:g} s: there is no {self._path}")
            time.sleep(POLL_S)
        return found


class Search(Finding[Address]):
    """An actor's for its learner, one of several. instead: `host:port` by which the learner is reached
    from here, in place of what it wrote itself. Raises `BadInput`.
    """

    def __init__(self, context: StepContext, instead: str | None = None, learner: int = 0) -> None:
        elsewhere = None if instead is None else _host_and_port(instead)

        def read(text: str) -> Address:
            address = address_from_text(text)
            if elsewhere is None:
                return address
            host, port = elsewhere
            return dataclasses.replace(address, host=host, port=port, socket="")

        super().__init__(context, context.run.address_json(learner), read)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise BadInput(f"--learner cannot be {shown(text)}; allowed: host:port")
    return host.strip("[]"), int(port)
