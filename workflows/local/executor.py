"""What the engine asks of whatever runs its pods: processes of this machine (`processes`), or jobs
of a batch system.

The engine decides when a pod is due, whether it is repeated and what its end means for the workflow. An
executor knows where pods find room, how one is started, signalled and followed, and how it ended.
"""

from __future__ import annotations

import datetime
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workflows.local.machine.mounts import Mounts
from workflows.local.machine.pod_spec import PodSpec


@dataclass(frozen=True, kw_only=True)
class Order:
    """A pod that is ready to be started.

    pod: its name, unique in the workflow. template: the name of its template. spec: resources and time
    limits. environment: the manifest's variables, with the paths of mounts replaced. folder: the working
    directory. log: the file for its output; None for the caller's own. tell: is given a remark about the
    pod, such as why it waits.
    """

    pod: str
    template: str
    spec: PodSpec
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path | None
    mounts: Mounts
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class End:
    """How a pod ended. message: how a failure is reported, if not by the exit code alone. at: when, if
    that was before now.
    """

    code: int
    message: str = ""
    at: datetime.datetime | None = None


class Room(Protocol):
    """What a pod holds while it runs."""

    def release(self) -> None:
        """Give it back. May be called more than once."""


class RunningPod(Protocol):
    """A pod that was started."""

    @property
    def began(self) -> datetime.datetime | None:
        """When it started, if that was before now."""

    async def wait(self) -> End:
        """Wait for its end. Raises `LostPod` if it cannot be known."""

    def signal(self, number: signal.Signals) -> None:
        """Signal all of its processes; SIGKILL ends it for good. Has no effect after its end."""


class Executor(Protocol):
    """Runs pods."""

    async def open(self) -> None:
        """Begin. Raises `ExperimentError` if nothing can be started at all."""

    async def close(self) -> None:
        """Let no pod of this workflow survive, and clean up."""

    def folder(self, pod: str) -> Path:
        """The folder of a pod's empty directories and outputs, which this process can read."""

    def scratch(self, pod: str) -> Path | None:
        """The folder, made where a pod runs, of its empty directories without outputs; None: `folder`
        holds all of them.
        """

    async def remove(self, pod: str) -> None:
        """Take note that the outputs of a pod have been read."""

    def fields(self, pod: str) -> Mapping[str, str]:
        """What a pod's variables may say of the place where it runs, such as `status.podIP`."""

    async def room(self, order: Order) -> Room:
        """Wait until there is room for a pod. May be cancelled, and then holds nothing."""

    async def start(self, order: Order, room: Room) -> RunningPod:
        """Start a pod. Raises `CannotExecute` if its command cannot be executed and `LostPod` if it may
        or may not have started.
        """
