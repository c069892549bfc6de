"""The parent of every pod's process: starts them, reports their ends, and lets none of them survive
the engine.

A program of its own, with the standard library only, run as `python -S supervisor.py <folder>
[<further folder> …]`; the engine talks to it over standard input, a socket, one JSON object a line:
    {"start": id, "arguments": […], "environment": {…}, "folder": path, "log": path or null}   {"signal": id, "number": n}
and hears `{"ready": true}`, `{"started": id, "pid": n}`, `{"refused": id, "error": text}`,
`{"ended": id, "status": n}`. Texts for a pod are its bytes, read as Latin-1: what they mean, and in
which encoding, is no business of this program.

When the engine is gone, however it went, the socket reads end-of-file: everything that descends
from this process is killed, then `folder` (the pods' empty directories) is removed; the further
folders, too, unless the engine has said `{"closing": true}`. On Linux it adopts orphans
(PR_SET_CHILD_SUBREAPER), so that a grandchild in a session of its own is found, too; and each pod
dies with this process (PR_SET_PDEATHSIG), should it be killed itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import sys
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
CHANNEL = 0


class Supervisor:
    """Holds the running pods, by the engine's number of each."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        self.unread = b""
        self.closing = False

    def serve(self) -> None:
        """Obey the engine until it is gone."""
        if LIBC is not None:
            LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        send({"ready": True})
        while True:
            ready, _, _ = select.select([CHANNEL, wake_read], [], [])
            if wake_read in ready:
                with suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                self.reap()
            if CHANNEL in ready and not self.receive():
                return

    def receive(self) -> bool:
        """Handle one message of the engine. Returns False when the engine is gone."""
        try:
            received = os.read(CHANNEL, 1 << 20)
        except ConnectionError:
            return False
        *lines, self.unread = (self.unread + received).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "start" in message:
                self.start(message)
            elif "closing" in message:
                self.closing = True
            elif message["signal"] in self.pids:
                kill_group(self.pids[message["signal"]], message["number"])
        return bool(received)

    def start(self, message: dict[str, Any]) -> None:
        """Start one pod, or report why not. Without a free process or descriptor the other pods go
        on, and this start is tried again.
        """
        try:
            pid, error = launch(message)
        except OSError as problem:
            pid = 0
            error = f"no process can be started: {problem}"
        if error:
            send({"refused": message["start"], "error": error})
            return
        self.pids[message["start"]] = pid
        send({"started": message["start"], "pid": pid})

    def reap(self) -> None:
        """Report pods that ended. Processes left in a pod's group are killed, as a container's are."""
        by_pid = {pid: number for number, pid in self.pids.items()}
        for pid, number in by_pid.items():
            if (status := collect(pid)) is not None:
                del self.pids[number]
                send({"ended": number, "status": status})
        with suppress(ChildProcessError):
            while LIBC is not None and adopted_ended(by_pid):
                pass


def launch(message: dict[str, Any]) -> tuple[int, str]:
    """Fork and execute. The error of a failed `exec` comes back through a pipe, which a successful
    `exec` closes. Raises `OSError`.
    """
    failed_read, failed_write = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            become(message, failed_write, parent)
        os.close(failed_write)
        failed_write = -1
        error = os.read(failed_read, 4096)
    finally:
        for descriptor in (failed_read, failed_write):
            if descriptor >= 0:
                os.close(descriptor)
    if error:
        os.waitpid(pid, 0)
    return pid, error.decode(errors="replace")


def collect(pid: int) -> int | None:
    """The wait status of a child that ended, after the rest of its group was killed; None while it
    runs.
    """
    # macOS has `waitid` since Python 3.13.
    if hasattr(os, "waitid"):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # The group is killed before its leader is collected: until then no other process can have
        # got the same number.
        kill_group(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        return None
    kill_group(pid, signal.SIGKILL)
    return status


def adopted_ended(pods: dict[int, int]) -> bool:
    """Collect one adopted orphan that ended. Returns False if there is none."""
    result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if result is None or result.si_pid in pods:
        return False
    os.waitpid(result.si_pid, 0)
    return True


def become(message: dict[str, Any], failed: int, parent: int) -> None:
    """Turn the forked child into the pod's process. Never returns."""
    try:
        os.setsid()
        if LIBC is not None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # A parent that died before the line above will send no signal any more.
        if os.getppid() != parent:
            os._exit(64)
        signal.set_wakeup_fd(-1)
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGCHLD,
            signal.SIGPIPE,
        ):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        if message["log"]:
            log = os.open(as_bytes(message["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
        os.chdir(as_bytes(message["folder"]))
        arguments = [as_bytes(argument) for argument in message["arguments"]]
        environment = {
            as_bytes(name): as_bytes(value) for name, value in message["environment"].items()
        }
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - a pod's command, no shell
    except BaseException as error:
        os.write(failed, str(error).encode(errors="replace")[:4000])
    finally:
        os._exit(64)


def as_bytes(text: str) -> bytes:
    """The bytes that the engine meant, whatever this program's own encoding is."""
    return text.encode("latin-1")


def send(message: dict[str, Any]) -> None:
    """Write one message to the engine, if it is still there."""
    data = json.dumps(message).encode() + b"\n"
    with suppress(OSError):
        while data:
            data = data[os.write(CHANNEL, data) :]


def kill_group(pid: int, number: int) -> None:
    """Signal a pod's process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_all(pids: list[int]) -> None:
    """Kill the pods' groups, then every adopted process, until none is left."""
    for pid in pids:
        kill_group(pid, signal.SIGKILL)
    while True:
        for pid in children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def children() -> list[int]:
    """Child processes of this process, including adopted ones (Linux only; elsewhere only the
    groups are known).
    """
    found: list[int] = []
    if LIBC is None:
        return found
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - names only
        with suppress(OSError, IndexError):
            status = open(f"/proc/{name}/stat", encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115 - no pathlib here
            with status:
                if status.read().rpartition(")")[2].split()[1] == str(os.getpid()):
                    found.append(int(name))
    return found


if __name__ == "__main__":
    supervisor = Supervisor()
    try:
        supervisor.serve()
    finally:
        kill_all(list(supervisor.pids.values()))
        for path in sys.argv[1:2] if supervisor.closing else sys.argv[1:]:
            shutil.rmtree(path, ignore_errors=True)
