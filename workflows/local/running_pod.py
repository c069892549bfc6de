"""One attempt of a container template: a node, processors and GPUs, a process, its outputs.

Ends are reported as on a cluster (docs/argo.md, "How a pod ends"): Argo's emissary signals the
process group, and the wait container reads the outputs after `main` has ended, also when it failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import shutil
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.local.errors import LostPod, PodError
from workflows.local.language.go_values import parameter_text
from workflows.local.machine.mounts import Mounts, make
from workflows.local.machine.pod_spec import (
    PodSpec,
    build,
    command,
    declared_variables,
    environment,
    folder,
    secret_variables,
)
from workflows.local.machine.slots import Grant
from workflows.local.machine.supervision import Process
from workflows.local.run_state import State
from workflows.local.scope import exported
from workflows.local.status import Node, pod_name

CANNOT_EXECUTE = 64
KILLED_S = 60.0
"""A process that waits in the kernel (for a network file system) may outlive SIGKILL. It is waited
for no longer than this.
"""
LARGEST_OUTPUT_BYTES = 1024**2
"""The largest etcd object. Parameters carry decisions and paths, never data."""
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
REMOVING = ThreadPoolExecutor(1, "removing")
"""An executor of its own, because asyncio's fails to shut down where no thread can be started."""
UNSAFE = re.compile(r"[^\w.\-]")


@dataclass
class Pod:
    """An attempt whose template's tags are replaced.

    node: made by the caller. on_exit: part of the exit handler. retried: one of several attempts.
    longest_s: the time that a retry strategy's longest duration leaves to it.
    """

    state: State
    node: Node
    template: Mapping[str, Any]
    on_exit: bool
    retried: bool
    longest_s: float | None = None

    async def run(self) -> None:
        """Run until the node has ended. Raises `WorkflowError` if the pod cannot be built.
        `asyncio.CancelledError` never leaves a process behind.
        """
        state = self.state
        node = self.node
        if self._refused():
            state.mark(node, "Failed", self._why_refused())
            return
        patch = str(state.spec.get("podSpecPatch") or "")
        values = state.values() | {"pod.name": node.pod}
        spec = build(self.template, patch, values)
        grant = await self._place(spec)
        if grant is None:
            return
        place = state.scratch / node.pod
        try:
            await self._execute(spec, grant, place)
        finally:
            grant.release()

    def _refused(self) -> bool:
        shutdown = self.state.shutdown
        return shutdown is not None and (not self.on_exit or shutdown.kind == "Terminate")

    def _why_refused(self) -> str:
        if self.state.shutdown is None:
            return ""
        return self.state.shutdown.pod_message

    async def _place(self, spec: PodSpec) -> Grant | None:
        """Wait for the requested processors and GPUs. Returns None if the workflow stopped, or the
        template's time was over, before there was room.
        """
        asked = spec.resources
        given = self.state.slots.cut(asked)
        for name, wanted, got in (
            ("cpu", asked.cpus, given.cpus),
            (asked.gpu_name, asked.gpus, given.gpus),
            ("GiB of memory", asked.memory_bytes / 2**30, given.memory_bytes / 2**30),
        ):
            if got < wanted:
                self.state.say_once(
                    f"{self.node.template} requests {wanted:.4g} {name}, this machine has {got:.4g}: it gets {got:.4g}"
                )
        waiting = asyncio.ensure_future(self.state.slots.acquire(given))
        # The controller does not enforce `timeout` on a Pending pod that has a retry strategy.
        timeout_s = spec.timeout_s
        if self.retried:
            timeout_s = None
        await self._first_of(waiting, timeout_s)
        if waiting.done() and not self._refused():
            return waiting.result()
        # There may have been room in the moment in which the workflow stopped.
        waiting.cancel()
        if waiting.done():
            waiting.result().release()
        message = "timeout"
        if self._refused():
            message = self._why_refused()
        self.state.mark(self.node, "Failed", message)
        return None

    async def _first_of(self, future: asyncio.Future[Any], timeout_s: float | None) -> None:
        """Wait for a future, a stop that concerns this pod, or a time."""
        stop = asyncio.ensure_future(self.state.stop_of(on_exit=self.on_exit).wait())
        try:
            waited: set[asyncio.Future[Any]] = {future, stop}
            await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    async def _execute(self, spec: PodSpec, grant: Grant, place: Path) -> None:
        state = self.state
        node = self.node
        outputs = {
            output["name"]: output.get("valueFrom") or {}
            for output in (self.template.get("outputs") or {}).get("parameters") or []
        }
        volumes = [*(state.spec.get("volumes") or []), *(self.template.get("volumes") or [])]
        paths = [str(source["path"]) for source in outputs.values()]
        await state.processes.open()
        mounts = make(
            spec.container,
            volumes,
            storage=state.storage,
            pod=place,
            outputs=paths,
            given=state.given,
        )
        process = await self._start(spec, mounts, grant)
        if process is None:
            return
        created_s = node.started_s
        node.starts_now()
        state.mark(node, "Running")
        ended = asyncio.ensure_future(process.wait())
        limits = [limit for limit in (spec.deadline_s, self.longest_s) if limit is not None]
        if spec.timeout_s is not None:
            # `timeout` counts from the creation of the node, `activeDeadlineSeconds` from its start.
            limits.append(spec.timeout_s - (time.monotonic() - created_s))
        limit_s = None
        if limits:
            limit_s = max(0.0, min(limits))
        await self._first_of(ended, limit_s)
        if not ended.done() and self._refused():
            winding = asyncio.ensure_future(self._wind_down(process, ended, spec, place))
            state.winding_down.add(winding)
            winding.add_done_callback(state.winding_down.discard)
            # The controller marks the node at once, while the process still saves.
            state.mark(node, "Failed", self._why_refused())
            return
        over = not ended.done()
        if over:
            await self._terminate(process, ended, spec.grace_s)
        self._finish(ended.result(), mounts, outputs, over)
        await _remove(place)

    async def _start(self, spec: PodSpec, mounts: Mounts, grant: Grant) -> Process | None:
        state = self.state
        node = self.node
        variables = declared_variables(spec.container, node.pod)
        arguments = command(spec.container, mounts, variables)
        engine = {**state.environment, "CUDA_VISIBLE_DEVICES": ",".join(grant.gpus)}
        values = environment(variables, mounts, engine) | secret_variables(spec.container)
        log = None
        if state.logs is not None:
            log = state.logs / f"{UNSAFE.sub('_', node.pod)}.log"
            node.log = str(log)
        problem = f'failed to find name in PATH: exec: "{arguments[0]}": executable file not found in $PATH'
        if "/" in arguments[0] or shutil.which(arguments[0], path=values.get("PATH")):
            try:
                return await state.processes.start(
                    arguments, values, folder(spec.container, mounts), log, state.preloading
                )
            except LostPod:
                raise  # a lost pod is retried as an Error, not reported as a bad command
            except PodError as error:
                problem = str(error)
        node.exit_code = CANNOT_EXECUTE
        state.mark(node, "Failed", f"main: Error (exit code {CANNOT_EXECUTE}): {problem}")
        return None

    async def _terminate(
        self, process: Process, ended: asyncio.Future[int], grace_s: float
    ) -> None:
        """Send SIGTERM to the group; after the grace period, or when a person insists, SIGKILL."""
        process.signal(signal.SIGTERM)
        insist = asyncio.ensure_future(self.state.killing.wait())
        waited: set[asyncio.Future[Any]] = {ended, insist}
        await asyncio.wait(waited, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        insist.cancel()
        if not ended.done():
            process.signal(signal.SIGKILL)
        await asyncio.wait({ended}, timeout=KILLED_S)
        if not ended.done():
            raise LostPod(f"its process still runs {KILLED_S:g} s after SIGKILL")

    async def _wind_down(
        self, process: Process, ended: asyncio.Future[int], spec: PodSpec, place: Path
    ) -> None:
        """Give the process its grace period to save, although a stopped pod's node has ended
        already.
        """
        with contextlib.suppress(LostPod):
            await self._terminate(process, ended, spec.grace_s)
            ended.result()
        await _remove(place)

    def _finish(
        self, code: int, mounts: Mounts, outputs: Mapping[str, Mapping[str, Any]], over: bool
    ) -> None:
        node = self.node
        node.exit_code = code
        # The outputs are read also after a failure: the wait container does so, too.
        node.outputs, problem = _read(outputs, mounts)
        self.state.globals |= exported(dict(self.template), node.outputs)
        if over:
            self.state.mark(node, "Failed", DEADLINE_MESSAGE)
        elif code:
            self.state.mark(node, "Failed", f"main: Error (exit code {code})")
        elif problem:
            self.state.mark(node, "Error", f"wait: Error (exit code 64): {problem}")
        else:
            self.state.mark(node, "Succeeded", "")


def prepare_node(state: State, node: Node, template: Mapping[str, Any], *, retried: bool) -> Node:
    """Fill in a new node's fields that are known before its pod starts."""
    node.pod = pod_name(state.manifest.name, node.template, node.name)
    node.retried = retried
    node.inputs = {
        parameter["name"]: str(parameter["value"])
        for parameter in (template.get("inputs") or {}).get("parameters") or []
    }
    return node


def _read(
    outputs: Mapping[str, Mapping[str, Any]], mounts: Mounts
) -> tuple[dict[str, str] | None, str]:
    """The output parameters, and the error for the first one that is missing and has no default."""
    values: dict[str, str] = {}
    for name, source in outputs.items():
        try:
            values[name] = _text(Path(mounts.local(str(source["path"]))))
        except OSError as error:
            if source.get("default") is None:
                return (
                    values or None,
                    f"open /mainctrfs{source['path']}: {str(error.strerror).lower()}",
                )
            values[name] = parameter_text(source["default"])
    return values or None, ""


def _text(path: Path) -> str:
    """The content of an output file without its last newline. Raises `OSError`, also for anything
    but a regular file, which might block for ever.
    """
    if path.exists() and not path.is_file():
        raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
    with path.open("rb") as file:
        data = file.read(LARGEST_OUTPUT_BYTES + 1)
    if len(data) > LARGEST_OUTPUT_BYTES:
        raise OSError(errno.EFBIG, f"larger than {LARGEST_OUTPUT_BYTES} bytes", str(path))
    return data.decode("utf-8", errors="replace").removesuffix("\n")


async def _remove(place: Path) -> None:
    """Delete a pod's folders. This runs outside of the event loop, because they may be large."""
    if place.exists():
        try:
            await asyncio.get_running_loop().run_in_executor(
                REMOVING, lambda: shutil.rmtree(place, ignore_errors=True)
            )
        except RuntimeError:
            # The machine grants no further thread.
            shutil.rmtree(place, ignore_errors=True)
