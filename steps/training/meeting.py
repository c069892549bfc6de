"""Where a learner and its actors meet: `learner.json` in the run's directory, and the end of the
training that brings them together.

The learner writes where it is reached and a token, readable for its owner alone; each start of it
replaces that, and its end takes it away. An actor reads it again at every attempt to connect. Whether
a learner will ever come again, the status of the task `train` says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator

from agents.transport.address import LONGEST, Address, address_from_text, address_to_text
from config.errors import BadInput, Preempted, shown
from config.pipeline import TRAIN
from steps.command.context import StepContext
from steps.directory.files import read_bytes, write_atomically
from steps.directory.status import read_status
from steps.training.ending import outcome

POLL_S = 0.5


class Ended(Exception):
    """Nothing is left for an actor to do; the message says why."""


@contextlib.contextmanager
def published(context: StepContext, address: Address) -> Iterator[None]:
    """Let actors find this learner; raises `WrongDirectory` where a later attempt is the learner."""
    path, text = context.run.learner_json, address_to_text(address) + "\n"
    context.require_ours()
    write_atomically(path, text, mode=0o600)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, BadInput):  # gone, or the next learner's
            if read_bytes(path, LONGEST) == text.encode():
                path.unlink()


class Search:
    """An actor's for its learner. instead: `host:port` by which the learner is reached from here, in
    place of what it wrote itself. Raises `BadInput`.
    """

    def __init__(self, context: StepContext, instead: str | None = None) -> None:
        self._context, self._path = context, context.run.learner_json
        self._instead = None if instead is None else _host_and_port(instead)
        self._before = read_status(context.run.status / f"{TRAIN}.json")

    def find(self) -> Address | None:
        """Where the learner is, None while there is none. Raises `Ended`, `Preempted` after a SIGTERM,
        and `BadInput` for a file that is none of ours.
        """
        self._context.check_stop()
        if why := outcome(self._context, self._before):
            raise Ended(why)
        try:
            address = address_from_text(read_bytes(self._path, LONGEST).decode())
        except FileNotFoundError:
            return None
        except (BadInput, UnicodeDecodeError) as error:
            raise BadInput(f"{self._path}: {error}") from None
        if self._instead is None:
            return address
        host, port = self._instead
        return dataclasses.replace(address, host=host, port=port, socket="")

    def wait(self, longest_s: float) -> None:
        """Until a learner is there; raises `Preempted` after a time, and what `find` raises."""
        end = time.monotonic() + longest_s
        while self.find() is None:
            if time.monotonic() >= end:
                raise Preempted(f"no learner for {longest_s:g} s: there is no {self._path}")
            time.sleep(POLL_S)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise BadInput(f"--learner cannot be {shown(text)}; allowed: host:port")
    return host.strip("[]"), int(port)
