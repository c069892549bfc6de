"""The engine's side of the supervisor: start a process, signal its group, wait for its end.

If a supervisor dies (killed for lack of memory), its pods die with it, as on a lost node: they end
with `LostPod`, and the next pod gets a new supervisor. Every wait for a supervisor has a time
limit, so that a stop always gets through.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.local.errors import LostPod, PodError
from workflows.local.machine.pod_spec import PROGRESS_VARIABLE

PROGRAM = Path(__file__).with_name("supervisor.py")
FOR_PYTHON = ("PATH", "PYTHONHOME", "LANG", "LC_", "LD_", "DYLD_")
"""Prefixes of variables without which an interpreter may not even start (modules of a cluster, a
shared libpython).
"""
FORK_SERVER = Path(__file__).with_name("fork_server.py")
ANSWER_S = 120.0
"""A supervisor that has not answered for this long is given up. Starting a process includes reading
its program from the disk.
"""
CLOSE_S = 60.0
POLL_S = 0.005


@dataclass(frozen=True, kw_only=True)
class Preloading:
    """What a fork server loads for the pods of one workflow.

    modules: of each program, a module that pods run by `python -m`, the modules that it may find
    loaded; in this order, so that the first pods can start while more is loaded. apart: variables in
    which the pods differ, and which no module reads while it is loaded. Pods with other differences
    in their environment have servers of their own.
    """

    modules: Mapping[str, Sequence[str]]
    apart: Sequence[str]


class Process:
    """The main process of one running pod."""

    def __init__(self, owner: Processes, number: int) -> None:
        loop = asyncio.get_running_loop()
        self._owner = owner
        self._number = number
        # The results are its pid and its exit code.
        self._started: asyncio.Future[int] = loop.create_future()
        self._ended: asyncio.Future[int] = loop.create_future()

    async def wait(self) -> int:
        """Return its exit code, 128 + s if signal s killed it. Raises `LostPod`."""
        return await asyncio.shield(self._ended)

    def signal(self, number: signal.Signals) -> None:
        """Signal its whole process group, as Argo's emissary does. Has no effect after its end."""
        self._owner.send({"signal": self._number, "number": int(number)})

    def lost(self, error: PodError) -> None:
        """Note that its supervisor is gone and cannot kill it any more."""
        if self._started.done() and not self._started.exception():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._started.result(), signal.SIGKILL)
        for future in (self._started, self._ended):
            if not future.done():
                future.set_exception(error)
                # Asyncio complains of exceptions that nobody has looked at; nobody may be waiting.
                future.exception()


class Processes:
    """A supervisor and its processes. folder: removed at the end. fleeting: folders that are
    removed if this engine is killed.
    """

    def __init__(self, folder: Path, fleeting: Sequence[Path] = ()) -> None:
        self._folder = folder
        self._fleeting = fleeting
        self._known: dict[int, Process] = {}
        self._last = 0
        self._opening = asyncio.Lock()
        self._listener: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start a supervisor unless one lives, in a session of its own, so that a Ctrl-C in the
        terminal reaches only the engine.

        Raises `LostPod` if that is not possible.
        """
        async with self._opening:
            if self._is_alive:
                return
            if self._listener is not None:
                # The last supervisor may still be killing its pods and removing the folder.
                await self._gone(CLOSE_S)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                await self._start_supervisor()
            except OSError as error:
                raise LostPod(f"the supervisor of the pods cannot be started: {error}") from None

    async def _start_supervisor(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._supervisor = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-s",
                        "-S",
                        str(PROGRAM),
                        str(self._folder),
                        *map(str, self._fleeting),
                    ],
                    stdin=theirs.fileno(),
                    start_new_session=True,
                    env={
                        name: value
                        for name, value in os.environ.items()
                        if name.startswith(FOR_PYTHON)
                    },
                )
        except BaseException:
            ours.close()
            raise
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            ready = await asyncio.wait_for(self._reader.readline(), ANSWER_S)
        except (TimeoutError, ConnectionError):
            ready = b""
        if not ready:
            self._writer.close()
            await self._gone(0.0)
            raise LostPod(
                f"the supervisor of the pods does not start: exit code {self._supervisor.returncode}"
            )
        self._listener = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Kill the processes that are left, and wait until they are gone."""
        self.send({"closing": True})
        self._writer.close()
        await self._gone(CLOSE_S)
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        # The supervisor removes the folder itself, unless it was killed.
        shutil.rmtree(self._folder, ignore_errors=True)

    async def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path | None,
        preloading: Preloading | None = None,
    ) -> Process:
        """Start a process in its own session. preloading: modules that some programs may find loaded.
        Raises `PodError` if it cannot be executed, `LostPod` if the supervisor dies.
        """
        self._last += 1
        process = self._known[self._last] = Process(self, self._last)
        if not self._is_alive:
            raise LostPod("the supervisor of the pods was killed")
        self.send({
            "start": self._last,
            "arguments": [_raw(argument) for argument in arguments],
            "environment": {_raw(name): _raw(value) for name, value in environment.items()},
            "folder": _raw(folder),
            "log": None if log is None else _raw(log),
            "server": _server(preloading, arguments, environment, folder) if log and preloading else None,
        })  # fmt: skip
        try:
            await asyncio.wait_for(asyncio.shield(process._started), ANSWER_S)
        except TimeoutError:
            self._supervisor.kill()
            raise LostPod(
                f"the supervisor of the pods has not answered for {ANSWER_S:g} s"
            ) from None
        return process

    def send(self, message: dict[str, Any]) -> None:
        """Write one line to the supervisor; does nothing if it is dead."""
        if self._is_alive:
            self._writer.write(json.dumps(message).encode() + b"\n")

    @property
    def _is_alive(self) -> bool:
        return self._listener is not None and not self._listener.done()

    async def _gone(self, patience_s: float) -> None:
        """Wait for the supervisor's end, and kill it when the patience is over. No thread is used,
        because there may be no memory for another.
        """
        ends_s = time.monotonic() + patience_s
        while self._supervisor.poll() is None:
            if time.monotonic() >= ends_s:
                self._supervisor.kill()
            await asyncio.sleep(POLL_S)

    async def _listen(self) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await self._reader.readline():
                self._heard(json.loads(line))
        self._writer.close()
        lost = self._known
        self._known = {}
        for process in lost.values():
            process.lost(LostPod("the supervisor of the pods was killed"))

    def _heard(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self._known[message["started"]]._started.set_result(message["pid"])
        elif "refused" in message:
            self._known.pop(message["refused"])._started.set_exception(PodError(message["error"]))
        else:
            status = message["status"]
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self._known.pop(message["ended"])._ended.set_result(code)


def _server(
    preloading: Preloading,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
) -> dict[str, Any] | None:
    """The fork server that can start a pod; None if its command is not `python -m <program>` of a
    program with known modules.
    """
    if len(arguments) < 3 or arguments[2] not in preloading.modules:
        return None
    if (arguments[0], arguments[1]) != (sys.executable, "-m"):
        return None
    apart = [*preloading.apart, PROGRESS_VARIABLE]
    common = {name: value for name, value in environment.items() if name not in apart}
    return {
        "program": _raw(FORK_SERVER),
        "arguments": [_raw(sys.executable)],
        "environment": {_raw(name): _raw(value) for name, value in common.items()},
        "folder": _raw(folder),
        "load": [[program, list(modules)] for program, modules in preloading.modules.items()],
        "apart": apart,
    }


def _raw(text: str | Path) -> str:
    """Encode text to the bytes that the kernel is to see, as Latin-1, because the supervisor's
    encoding may differ from this process's.
    """
    return os.fsencode(text).decode("latin-1")
