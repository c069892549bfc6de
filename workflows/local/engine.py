"""Runs a manifest on this machine, from the entry template to the exit handler."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.errors import ExperimentError
from workflows.local.call import Call
from workflows.local.errors import InvalidSpecError, WorkflowError, defect
from workflows.local.executor import Executor
from workflows.local.language.go_values import quote, to_json
from workflows.local.language.tags import replace
from workflows.local.machine.pod_spec import inherited, read_patch
from workflows.local.machine.slots import Capacity, Limit, detect
from workflows.local.machine.supervision import Preloading
from workflows.local.processes import OnThisMachine
from workflows.local.run_state import Shutdown, State
from workflows.local.spec.manifest import Manifest, prepare
from workflows.local.spec.references import check_references
from workflows.local.spec.validation import check
from workflows.local.status import WorkflowStatus, now, whole_seconds
from workflows.local.templates import execute

REPEATED_WITHIN_S = 2.0
"""Signals that arrive this soon after the first count as the same request, because schedulers and
terminals send several.
"""
BETWEEN_ANNOUNCEMENTS_S = 0.05
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OF_A_TERMINAL = (signal.SIGINT, signal.SIGHUP)
"""These signals stop a workflow unless they were ignored when the process started: whoever uses
`nohup` or `&` wants it to outlive the terminal.
"""
OnChange = Callable[[WorkflowStatus], None]


def run(
    manifest: dict[str, Any],
    *,
    parameters: Mapping[str, str] | None = None,
    name: str | None = None,
    storage: Path = Path("storage"),
    capacity: Capacity | None = None,
    executor: Executor | None = None,
    again: tuple[str, datetime.datetime] | None = None,
    deadline: float | None = None,
    logs: Path | None = None,
    fleeting: Sequence[Path] = (),
    inherit: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    preloading: Preloading | None = None,
    on_change: OnChange | None = None,
    notice: Callable[[str], None] | None = None,
    stop: Callable[[Callable[[], None]], None] | None = None,
) -> WorkflowStatus:
    """Run a workflow to its end and return its final status.

    parameters: values as of `-p`; one that the manifest does not declare is added. storage: the folder
    behind the volume claim. capacity: what pods may use; by default this machine's processors, memory
    and GPUs. executor: runs the pods; by default as processes of this machine. again: uid and time of
    creation of a workflow that an earlier engine began and this one continues. deadline: seconds, in
    place of the manifest's. logs: a folder for `<pod>.log`; by default pods write to the caller's output.
    fleeting: temporary folders of the caller, which are removed with those of the pods if this process
    is killed. inherit: which variables of the caller's environment pods get, as names or beginnings
    (`HF_*`), beside those that every machine has. environment: further variables of every pod; the
    manifest's own have precedence. preloading: modules that a fork server on Linux loads for pods that
    run certain programs; without it every pod starts an interpreter. on_change: called with the live
    status after changes, in the engine's thread. notice: called with remarks of one line. stop: called
    once with a function that stops the workflow as `argo stop` does, from any thread.

    In the main thread, SIGINT, SIGTERM and SIGHUP also stop the workflow; a second one that comes more
    than two seconds later kills the pods. SIGINT and SIGHUP stay ignored if this process was started so
    (`nohup`, `&` in a script). After a stop by a signal all three are ignored, so that a late repetition
    does not change how the caller ends.

    Raises `Refused` for a manifest that this engine does not support, and `BadInput` for wrong names,
    before anything is started; `ExperimentError` if this machine cannot start any process.
    """
    prepared = prepare(manifest, parameters=parameters, name=name)
    if again is not None:
        prepared = dataclasses.replace(prepared, uid=again[0], created=again[1])
    read_patches(prepared)
    check_references(prepared.spec, os.environ)
    given = [value for value in (parameters or {}).values() if value]
    if deadline is None:
        deadline = _deadline_s(prepared)
    remark = notice or (lambda _: None)
    engine = _Engine(
        manifest=prepared,
        storage=storage.absolute(),
        executor=executor
        or OnThisMachine(
            name=prepared.name,
            capacity=capacity or detect(),
            notice=remark,
            fleeting=fleeting,
            preloading=preloading,
        ),
        deadline_s=deadline,
        logs=logs,
        environment={**inherited(inherit), **(environment or {})},
        on_change=on_change,
        notice=remark,
        given=given,
        status=WorkflowStatus(name=prepared.name, uid=prepared.uid),
    )
    return asyncio.run(engine.run(stop))


def _deadline_s(manifest: Manifest) -> float | None:
    declared = manifest.spec.get("activeDeadlineSeconds")
    if declared is None:
        return None
    return float(declared)


def read_patches(manifest: Manifest) -> None:
    """Raise `Refused` for what a `podSpecPatch` may not change, as far as its text is known
    already.
    """
    values = manifest.globals()
    for holder in (manifest.spec, *manifest.templates.values()):
        # A patch that Kubernetes would reject is an error of the pod, not of the manifest.
        with contextlib.suppress(WorkflowError):
            if holder.get("podSpecPatch"):
                read_patch(replace(holder["podSpecPatch"], values))


@dataclass(kw_only=True)
class _Engine:
    """The state of one run: what `run` was given, and what has happened since."""

    manifest: Manifest
    storage: Path
    executor: Executor
    deadline_s: float | None
    logs: Path | None
    environment: Mapping[str, str]
    on_change: OnChange | None
    notice: Callable[[str], None]
    given: list[str]
    status: WorkflowStatus
    first_signal_s: float | None = None
    stop_is_due: bool = False
    announcement: asyncio.TimerHandle | None = None
    announced_s: float = 0.0
    state: State = field(init=False)

    async def run(self, stop: Callable[[Callable[[], None]], None] | None) -> WorkflowStatus:
        """Check the workflow, run it, and always clean up."""
        try:
            check(self.manifest)
        except InvalidSpecError as error:
            self._end("Failed", str(error))
            return self.status
        if self.manifest.accepted:
            self.notice(f"without effect on one machine: {', '.join(self.manifest.accepted)}")
        await self.executor.open()
        with self._signals(stop):
            try:
                self.state = self._state()
                await self._run()
            except ExperimentError:
                raise
            except Exception as error:
                self._end("Error", defect(error))
            finally:
                await self.executor.close()
        return self.status

    def _state(self) -> State:
        values = self.manifest.globals()
        spec = {
            key: value
            for key, value in self.manifest.spec.items()
            if key not in ("templates", "arguments")
        }
        logs = self.logs
        if logs is not None:
            logs = logs.absolute()
            logs.mkdir(parents=True, exist_ok=True)
        return State(
            manifest=self.manifest, status=self.status, globals=values, storage=self.storage,
            logs=logs, executor=self.executor,
            pods=Limit(spec.get("parallelism")), given=self.given, environment=self.environment, notice=self.notice,
            changed=self._changed, spec=replace(spec, values),
        )  # fmt: skip

    async def _run(self) -> None:
        state = self.state
        timer = self._deadline_timer()
        entry = await execute(
            state,
            Call(
                name=self.manifest.name,
                template=state.spec["entrypoint"],
                arguments=self._arguments(),
            ),
        )
        phase = entry.phase
        message = entry.message
        if state.shutdown is not None and state.shutdown.kind != "Deadline":
            message = state.shutdown.retry_message
        if phase in ("Skipped", "Omitted"):
            phase = "Succeeded"
        if state.spec.get("onExit") and not (state.shutdown and state.shutdown.kind == "Terminate"):
            phase, message = await self._exit_handler(phase, message)
        if timer is not None:
            timer.cancel()
        # Stopped pods may still save when their nodes and the exit handler have ended.
        while state.winding_down:
            await asyncio.wait(state.winding_down)
        self._end(phase, message)

    def _end(self, phase: str, message: str) -> None:
        """Give the workflow its final status. A node that was left without an end has none of its own."""
        status = self.status
        for node in status.nodes.values():
            if not node.ended:
                node.phase = "Error"
                node.message = node.message or message
                node.ends_now()
        status.phase, status.message, status.finished = phase, message, now()
        self._announce()

    def _arguments(self) -> list[dict[str, Any]]:
        return [dict(parameter) for parameter in self.manifest.parameters]

    def _deadline_timer(self) -> asyncio.TimerHandle | None:
        if self.deadline_s is None:
            return None
        ends = self.manifest.created + datetime.timedelta(seconds=self.deadline_s)
        left_s = max(0.0, (ends - now()).total_seconds())
        return asyncio.get_running_loop().call_later(left_s, lambda: self._on_deadline(ends))

    def _on_deadline(self, ends: datetime.datetime) -> None:
        if self.state.shutdown is None:
            self.state.stop(Shutdown("Deadline", ends))

    async def _exit_handler(self, phase: str, message: str) -> tuple[str, str]:
        """Run the exit handler. A workflow that Succeeded takes over its failure."""
        state = self.state
        name = f"{self.manifest.name}.onExit"
        failures = [
            {"displayName": node.display_name, "message": node.message, "templateName": node.template, "phase": node.phase,
             "podName": node.pod, "finishedAt": whole_seconds(node.finished)}
            for node in self.status.nodes.values() if node.failed
        ]  # fmt: skip
        state.globals |= {
            "workflow.status": phase,
            # Argo quotes the list twice, as a text inside of a text.
            "workflow.failures": f'"{quote(to_json(failures))}"',
        }
        node = await execute(
            state,
            Call(
                name=name, template=state.spec["onExit"], arguments=[], on_exit=True, display=name
            ),
        )
        if phase == "Succeeded" and node.failed:
            return (node.phase, node.message)
        return (phase, message)

    @contextlib.contextmanager
    def _signals(self, stop: Callable[[Callable[[], None]], None] | None) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        if stop is not None:
            stop(functools.partial(_call_soon, loop, self._stop))
        before: dict[signal.Signals, Any] = {}
        waking: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        # Python sets signal handlers in the main thread only.
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.getsignal(number) for number in SIGNALS}
            waking = _woken_by_signals(loop)
        numbers = [
            number
            for number in before
            if number not in OF_A_TERMINAL or before[number] is not signal.SIG_IGN
        ]
        for number in numbers:
            signal.signal(number, lambda *_: self._signalled(loop))
        try:
            with waking:
                yield
        finally:
            # After a stop the caller has only to end: a late repetition must not change how.
            if self.status.interrupted:
                before = dict.fromkeys(numbers, signal.SIG_IGN)
            for number in numbers:
                signal.signal(number, before[number])

    def _signalled(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle all signals that arrived before this call. If every signal queued a call of its
        own, somebody who sends them without a pause would block everything else.
        """
        if not self.stop_is_due:
            self.stop_is_due = True
            _call_soon(loop, self._stop)

    def _stop(self) -> None:
        """Do what `argo stop` does. When called again more than two seconds later, do what `argo
        terminate` does, and kill the pods.
        """
        self.stop_is_due = False
        if self.status.finished is not None:
            return
        self.status.interrupted = True
        current_s = time.monotonic()
        if self.first_signal_s is None:
            self.first_signal_s = current_s
            self.notice(
                "stopping: running pods get SIGTERM, then the exit handler runs; once more kills them"
            )
            self.state.stop(Shutdown("Stop"))
        elif current_s - self.first_signal_s > REPEATED_WITHIN_S:
            self.notice("terminating: running pods are killed, the exit handler too")
            self.state.stop(Shutdown("Terminate"))

    def _changed(self) -> None:
        """Announce all changes of this moment at once."""
        if self.on_change is not None and self.announcement is None:
            loop = asyncio.get_running_loop()
            self.announcement = loop.call_at(
                max(loop.time(), self.announced_s + BETWEEN_ANNOUNCEMENTS_S), self._announce
            )

    def _announce(self) -> None:
        if self.announcement is not None:
            self.announcement.cancel()
        self.announcement, self.announced_s = None, asyncio.get_running_loop().time()
        if self.on_change is not None:
            self.on_change(self.status)


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Make the event loop return from its wait at every signal.

    Python runs a signal handler only when the main thread executes bytecode. A signal that arrives
    just before the loop begins to wait, or in another thread, would otherwise be handled only after
    the next event, which may be hours later in a training.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        loop.add_reader(reader, reader.recv, 4096)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reader)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Schedule a call from another thread; does nothing if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
