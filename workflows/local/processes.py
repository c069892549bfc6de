"""The engine's side of the supervisor: start a process, signal its group, wait for its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflows.local.errors import PodError

PROGRAM = Path(__file__).with_name("supervisor.py")


class Process:
    """One running pod's main process."""

    def __init__(self, owner: Processes, number: int) -> None:
        loop = asyncio.get_running_loop()
        self._owner, self._number = owner, number
        self._started: asyncio.Future[int] = loop.create_future()  # its pid
        self._ended: asyncio.Future[int] = loop.create_future()

    async def wait(self) -> int:
        """Its exit code; 128 + s if signal s killed it."""
        return await asyncio.shield(self._ended)

    def signal(self, number: signal.Signals) -> None:
        """To its whole process group, as Argo's emissary does; no effect after its end."""
        self._owner.send({"signal": self._number, "number": int(number)})


class Processes:
    """A supervisor and its processes; `folder` is removed when it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[int, Process] = {}
        self._last = 0

    async def open(self) -> None:
        """Start the supervisor, in a session of its own: a Ctrl-C in the terminal reaches the engine only."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), str(self._folder)],
                stdin=theirs.fileno(),
                start_new_session=True,
                env={"LC_ALL": "C.UTF-8"},
            )
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listener = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Kill what is left, and wait until it is gone."""
        self._writer.close()
        await asyncio.get_running_loop().run_in_executor(None, self._supervisor.wait)
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)

    async def start(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path | None) -> Process:
        """Start a process in its own session; raises `PodError` if it cannot be executed."""
        self._last += 1
        process = self._known[self._last] = Process(self, self._last)
        self.send({
            "start": self._last, "arguments": list(arguments), "environment": dict(environment), "folder": str(folder),
            "log": None if log is None else str(log),
        })  # fmt: skip
        await asyncio.shield(process._started)
        return process

    def send(self, message: dict[str, Any]) -> None:
        """One line to the supervisor."""
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._heard(json.loads(line))
        except ConnectionError:
            pass
        for process in self._known.values():
            if process._started.done() and not process._started.exception():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process._started.result(), signal.SIGKILL)  # the supervisor was killed, nobody else is left to do it
            for future in (process._started, process._ended):
                if not future.done():
                    future.set_exception(PodError("the supervisor of the pods was killed"))
                    future.exception()  # a pod that nobody waits for any more is no news

    def _heard(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self._known[message["started"]]._started.set_result(message["pid"])
        elif "refused" in message:
            self._known.pop(message["refused"])._started.set_exception(PodError(message["error"]))
        else:
            status = message["status"]
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self._known.pop(message["ended"])._ended.set_result(code)
