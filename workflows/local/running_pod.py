"""One attempt of a container template: a node, room for it, a running pod, its outputs.

Ends are reported as on a cluster (docs/argo.md, "How a pod ends"): Argo's emissary signals the
process group, and the wait container reads the outputs after `main` has ended, also when it failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.local.errors import CannotExecute, LostPod
from workflows.local.executor import End, Order, Room, RunningPod
from workflows.local.language.go_values import parameter_text
from workflows.local.machine.mounts import Mounts, make
from workflows.local.machine.pod_spec import (
    GPUS_VARIABLE,
    PROGRESS_VARIABLE,
    PodSpec,
    build,
    command,
    declared_variables,
    environment,
    folder,
    pod_fields,
)
from workflows.local.run_state import State
from workflows.local.scope import exported
from workflows.local.spec.references import from_here
from workflows.local.status import Node, pod_name

CANNOT_EXECUTE = 64
KILLED_S = 60.0
"""A process that waits in the kernel (for a network file system) may outlive SIGKILL. It is waited
for no longer than this.
"""
LARGEST_OUTPUT_BYTES = 1024**2
"""The largest etcd object. Parameters carry decisions and paths, never data."""
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
PROGRESS = ".progress"
"""The name of the file that the variable ARGO_PROGRESS_FILE names, in the pod's own folder: no
volume has such a name.
"""
AMOUNT = re.compile(r"(\d{1,18})/(\d{1,18})")
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
        order = self._order(spec)
        room = await self._room(order)
        if room is None:
            await self.state.executor.remove(self.node.pod)
            return
        try:
            await self._execute(order, room)
        finally:
            room.release()

    def _refused(self) -> bool:
        shutdown = self.state.shutdown
        return shutdown is not None and (not self.on_exit or shutdown.kind == "Terminate")

    def _why_refused(self) -> str:
        if self.state.shutdown is None:
            return ""
        return self.state.shutdown.pod_message

    def _order(self, spec: PodSpec) -> Order:
        """What the executor starts, with the pod's folders made."""
        state = self.state
        node = self.node
        place = state.executor.folder(node.pod)
        place.mkdir(parents=True, exist_ok=True)
        volumes = [*(state.spec.get("volumes") or []), *(self.template.get("volumes") or [])]
        mounts = make(
            spec.container,
            volumes,
            storage=state.storage,
            pod=place,
            outputs=[str(source["path"]) for source in self._outputs().values()],
            given=state.given,
            scratch=state.executor.scratch(node.pod),
        )
        fields = pod_fields(node.pod, state.values(), state.executor.fields(node.pod))
        variables = declared_variables(spec.container, fields)
        referred = from_here(spec.container, os.environ)
        engine = {name: text for name, text in state.environment.items() if name != GPUS_VARIABLE}
        engine[PROGRESS_VARIABLE] = str(place / PROGRESS)
        if state.logs is not None:
            node.log = str(state.logs / f"{UNSAFE.sub('_', node.pod)}.log")
        return Order(
            pod=node.pod,
            template=node.template,
            spec=spec,
            arguments=command(spec.container, mounts, {**variables, **referred}),
            # A path in a value of this machine's environment is a path of this machine.
            environment=environment(variables, mounts, engine) | referred,
            folder=folder(spec.container, mounts),
            log=Path(node.log) if node.log else None,
            mounts=mounts,
            tell=self._tell,
        )

    def _tell(self, text: str) -> None:
        """Show a remark while the node has not ended."""
        if not self.node.ended and self.node.message != text:
            self.state.mark(self.node, self.node.phase, text)

    def _outputs(self) -> dict[str, Mapping[str, Any]]:
        """The sources of the output parameters, by name."""
        return {
            output["name"]: output.get("valueFrom") or {}
            for output in (self.template.get("outputs") or {}).get("parameters") or []
        }

    async def _room(self, order: Order) -> Room | None:
        """Wait for room. Returns None if the workflow stopped, or the template's time was over, before
        there was any.
        """
        waiting = asyncio.ensure_future(self.state.executor.room(order))
        # The controller does not enforce `timeout` on a Pending pod that has a retry strategy.
        timeout_s = order.spec.timeout_s
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

    async def _execute(self, order: Order, room: Room) -> None:
        state = self.state
        node = self.node
        spec = order.spec
        place = state.executor.folder(node.pod)
        pod = await self._start(order, room)
        if pod is None:
            return
        created_s = node.started_s
        node.starts_now(pod.began)
        state.mark(node, "Running", "")
        ended = asyncio.ensure_future(pod.wait())
        limits = [] if self.longest_s is None else [self.longest_s]
        if spec.deadline_s is not None:
            limits.append(spec.deadline_s - (time.monotonic() - node.started_s))
        if spec.timeout_s is not None:
            # `timeout` counts from the creation of the node, `activeDeadlineSeconds` from its start.
            limits.append(spec.timeout_s - (time.monotonic() - created_s))
        limit_s = None
        if limits:
            limit_s = max(0.0, min(limits))
        await self._first_of(ended, limit_s)
        if not ended.done() and self._refused():
            winding = asyncio.ensure_future(self._wind_down(pod, ended, spec))
            state.winding_down.add(winding)
            winding.add_done_callback(state.winding_down.discard)
            # The controller marks the node at once, while the process still saves.
            state.mark(node, "Failed", self._why_refused())
            return
        over = not ended.done()
        if over:
            await self._terminate(pod, ended, spec.grace_s)
        node.progress = _progress(place)
        self._finish(ended.result(), order.mounts, over)
        await self.state.executor.remove(self.node.pod)

    async def _start(self, order: Order, room: Room) -> RunningPod | None:
        try:
            return await self.state.executor.start(order, room)
        except CannotExecute as error:
            self.node.exit_code = CANNOT_EXECUTE
            self.state.mark(
                self.node, "Failed", f"main: Error (exit code {CANNOT_EXECUTE}): {error}"
            )
            return None

    async def _terminate(self, pod: RunningPod, ended: asyncio.Future[End], grace_s: float) -> None:
        """Send SIGTERM to the group; after the grace period, or when a person insists, SIGKILL."""
        pod.signal(signal.SIGTERM)
        insist = asyncio.ensure_future(self.state.killing.wait())
        waited: set[asyncio.Future[Any]] = {ended, insist}
        await asyncio.wait(waited, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        insist.cancel()
        if not ended.done():
            pod.signal(signal.SIGKILL)
        await asyncio.wait({ended}, timeout=KILLED_S)
        if not ended.done():
            raise LostPod(f"its process still runs {KILLED_S:g} s after SIGKILL")

    async def _wind_down(self, pod: RunningPod, ended: asyncio.Future[End], spec: PodSpec) -> None:
        """Give the process its grace period to save, although a stopped pod's node has ended
        already.
        """
        with contextlib.suppress(LostPod):
            await self._terminate(pod, ended, spec.grace_s)
            ended.result()
        await self.state.executor.remove(self.node.pod)

    def _finish(self, end: End, mounts: Mounts, over: bool) -> None:
        node = self.node
        node.exit_code = end.code
        # The outputs are read also after a failure: the wait container does so, too.
        node.outputs, problem = _read(self._outputs(), mounts)
        self.state.globals |= exported(dict(self.template), node.outputs)
        if over:
            self._ends("Failed", DEADLINE_MESSAGE, end)
        elif end.code:
            self._ends("Failed", end.message or f"main: Error (exit code {end.code})", end)
        elif problem:
            self._ends("Error", f"wait: Error (exit code 64): {problem}", end)
        else:
            self._ends("Succeeded", "", end)

    def _ends(self, phase: str, message: str, end: End) -> None:
        self.node.ends_now(end.at)
        self.state.mark(self.node, phase, message)


def _progress(place: Path) -> str:
    """What the process has written of its progress, `58/196`; empty if nothing that Argo would take."""
    try:
        said = _text(place / PROGRESS).strip().rpartition("\n")[2]
    except OSError:
        return ""
    found = AMOUNT.fullmatch(said.strip())
    if found is None or not int(found[2]) > 0 or int(found[1]) > int(found[2]):
        return ""
    return found[0]


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
