"""Runs pods as processes of this machine: the executor of the local engine."""

from __future__ import annotations

import asyncio
import datetime
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import ExperimentError
from workflows.local.errors import CannotExecute, LostPod, PodError
from workflows.local.executor import End, Order, Room
from workflows.local.machine.pod_spec import GPUS_VARIABLE, fields_here
from workflows.local.machine.slots import Capacity, Grant, Slots
from workflows.local.machine.supervision import Preloading, Process, Processes

REMOVING = ThreadPoolExecutor(1, "removing")
"""An executor of its own, because asyncio's fails to shut down where no thread can be started."""


@dataclass
class OneProcess:
    """The main process of a pod."""

    process: Process
    began: datetime.datetime | None = None

    async def wait(self) -> End:
        """Wait for its end. Raises `LostPod`."""
        return End(code=await self.process.wait())

    def signal(self, number: signal.Signals) -> None:
        """Signal its process group."""
        self.process.signal(number)


@dataclass(kw_only=True)
class OnThisMachine:
    """An `Executor`. name: of the workflow. fleeting: folders that are removed if this process is killed.
    preloading: modules that pods may find loaded. notice: gets one-line remarks.
    """

    name: str
    capacity: Capacity
    notice: Callable[[str], None]
    fleeting: Sequence[Path] = ()
    preloading: Preloading | None = None
    _said: set[str] = field(default_factory=set)

    async def open(self) -> None:
        """Make the folder for the pods' emptyDirs and start the supervisor."""
        self._folder = _temporary_folder(self.name)
        self._slots = Slots(self.capacity)
        self._processes = Processes(self._folder, self.fleeting)
        try:
            await self._processes.open()
        except LostPod as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ExperimentError(str(error)) from None

    async def close(self) -> None:
        """Kill the processes that are left."""
        await self._processes.close()

    def folder(self, pod: str) -> Path:
        """Below the folder that goes with this process."""
        return self._folder / pod

    def scratch(self, pod: str) -> Path | None:
        """None, because pods run here."""
        return None

    async def remove(self, pod: str) -> None:
        """Delete a pod's folders. This runs outside of the event loop, because they may be large."""
        place = self.folder(pod)
        if place.exists():
            try:
                await asyncio.get_running_loop().run_in_executor(
                    REMOVING, lambda: shutil.rmtree(place, ignore_errors=True)
                )
            except RuntimeError:
                # The machine grants no further thread.
                shutil.rmtree(place, ignore_errors=True)

    def fields(self, pod: str) -> Mapping[str, str]:
        """Fields of this machine."""
        return fields_here()

    async def room(self, order: Order) -> Grant:
        """Wait for the requested processors and GPUs, as far as this machine has them at all."""
        asked = order.spec.resources
        given = self._slots.cut(asked)
        for name, wanted, got in (
            ("cpu", asked.cpus, given.cpus),
            (asked.gpu_name, asked.gpus, given.gpus),
            ("GiB of memory", asked.memory_bytes / 2**30, given.memory_bytes / 2**30),
        ):
            if got < wanted:
                self._say_once(
                    f"{order.template} requests {wanted:.4g} {name}, this machine has {got:.4g}: it gets {got:.4g}"
                )
        return await self._slots.acquire(given)

    async def start(self, order: Order, room: Room) -> OneProcess:
        """Start the pod's process with the GPUs that it was given."""
        await self._processes.open()
        gpus = ",".join(room.gpus) if isinstance(room, Grant) else ""
        values = {GPUS_VARIABLE: gpus, **order.environment}
        program = order.arguments[0]
        if "/" not in program and not shutil.which(program, path=values.get("PATH")):
            raise CannotExecute(
                f'failed to find name in PATH: exec: "{program}": executable file not found in $PATH'
            )
        try:
            process = await self._processes.start(
                order.arguments, values, order.folder, order.log, self.preloading
            )
        except LostPod:
            raise  # a lost pod is retried as an Error, not reported as a bad command
        except PodError as error:
            raise CannotExecute(str(error)) from None
        return OneProcess(process)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.notice(text)


def _temporary_folder(name: str) -> Path:
    """Make the folder for the pods' emptyDirs. Raises `ExperimentError` if the machine has no room
    or denies permission.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=f"{name}-"))
    except OSError as error:
        raise ExperimentError(
            f"no temporary folder can be made: {error}; TMPDIR may name another place"
        ) from None
