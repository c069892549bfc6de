"""The parent of every pod's process: starts them, reports their ends, and lets none of them survive
the engine.

A program of its own, with the standard library only, run as `python -S supervisor.py <folder>
[<further folder> …]`; the engine talks to it over standard input, a socket, one JSON object a line:
    {"start": id, "arguments": […], "environment": {…}, "folder": path, "log": path or null, "server": {…} or null}
    {"signal": id, "number": n}
and hears `{"ready": true}`, `{"started": id, "pid": n}`, `{"refused": id, "error": text}`,
`{"ended": id, "status": n}`. Texts for a pod are its bytes, read as Latin-1: what they mean, and in
which encoding, is no business of this program.

With a `server` a pod is forked from a process that has loaded its modules (`fork_server.py`), and this
process adopts it: {"program": path, "arguments": [python, …], "environment": {…}, "folder": path,
"load": …, "apart": …}. Pods that name an equal one share it. Without it, when it is gone and where there
is no adoption, a pod's command is executed.

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
import socket
import sys
import time
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
CHANNEL = 0
MOST_SERVERS = 2
"""Each holds its modules in memory."""
PATIENCE_S = 60.0
"""A fork server that has not answered for this long is given up: modules may lie on a slow storage."""
BETWEEN_LOOKS_S = 0.05
ROOM = " " * 4096
"""Room for the command line that a forked pod shows."""


class Server:
    """A fork server and the pods that it is to fork. Raises `OSError` if it cannot be started."""

    def __init__(self, wanted: dict[str, Any], log: str) -> None:
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)
        self.unread = b""
        self.unsent = b""
        self.waiting: dict[int, tuple[float, dict[str, Any]]] = {}
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            arguments = [*wanted["arguments"], wanted["program"], str(theirs.fileno()), ROOM]
            try:
                self.pid, error = launch({**wanted, "arguments": arguments, "log": log})
                if error:
                    raise OSError(error)
                self.send({"load": wanted["load"], "apart": wanted["apart"]})
            except OSError:
                self.channel.close()
                raise

    def ask(self, message: dict[str, Any]) -> None:
        """Ask for the fork of a pod. Raises `OSError` if the server is gone."""
        asked = {name: message[name] for name in ("arguments", "environment", "folder", "log")}
        self.waiting[message["start"]] = (time.monotonic() + PATIENCE_S, message)
        self.send({"fork": message["start"], **asked})

    def send(self, message: dict[str, Any]) -> None:
        """Write one message, the rest of it later if the server does not read now. Raises `OSError`."""
        self.unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what the socket has room for. Raises `OSError` if the server is gone."""
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.channel.send(self.unsent) :]

    def answers(self) -> tuple[list[dict[str, Any]], bool]:
        """The answers that have come, and whether the server is still there."""
        alive = True
        try:
            while received := self.channel.recv(1 << 16):
                self.unread += received
            alive = False
        except BlockingIOError:
            with suppress(ConnectionError):  # the next look reads its end
                self.flush()
        except ConnectionError:
            alive = False
        *lines, self.unread = self.unread.split(b"\n")
        return [json.loads(line) for line in lines], alive


class Supervisor:
    """Holds the running pods, by the engine's number of each."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        self.servers: dict[str, Server | None] = {}  # None for one that is gone or never was
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
            channels: list[Any] = [CHANNEL, wake_read]
            channels += [server.channel for server in self.living()]
            unsent = [server.channel for server in self.living() if server.unsent]
            ready, _, _ = select.select(channels, unsent, [], self.patience_s())
            self.hear_servers()
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
        """Have one pod forked, or execute it."""
        server = self.server_of(message)
        if server is None:
            self.execute(message)
            return
        with suppress(OSError):  # it is gone, which the next look at its answers finds
            server.ask(message)

    def server_of(self, message: dict[str, Any]) -> Server | None:
        """The server that can fork a pod, started for the first one that names it."""
        wanted = message.get("server")
        if wanted is None or LIBC is None:
            return None
        key = json.dumps(wanted, sort_keys=True)
        if key not in self.servers:
            self.servers[key] = None
            if len(self.servers) <= MOST_SERVERS:
                with suppress(OSError):
                    log = os.path.join(sys.argv[1], f"fork-server-{len(self.servers)}.log")  # noqa: PTH118 - no pathlib here
                    self.servers[key] = Server(wanted, log)
        return self.servers[key]

    def living(self) -> list[Server]:
        """The servers that can be asked."""
        return [server for server in self.servers.values() if server is not None]

    def patience_s(self) -> float | None:
        """Seconds until a server has to be given up; None while none is asked."""
        ends = [ends for server in self.living() for ends, _ in server.waiting.values()]
        return max(BETWEEN_LOOKS_S, min(ends) - time.monotonic()) if ends else None

    def hear_servers(self) -> None:
        """Take the pods that were forked, and execute those that no server will fork any more."""
        for server in self.living():
            if any(ends < time.monotonic() for ends, _ in server.waiting.values()):
                # Its channel ends with it, once all that it has answered is read.
                kill_group(server.pid, signal.SIGKILL)
            answers, alive = server.answers()
            for answer in answers:
                if "forked" in answer:
                    del server.waiting[answer["forked"]]
                    self.started(answer["forked"], answer["pid"])
                else:
                    self.execute(server.waiting.pop(answer["failed"])[1])
            if not alive:
                self.lose(server)

    def lose(self, server: Server) -> None:
        """Give up a server that is gone. What it was to fork is executed, and so is what would have
        been.
        """
        self.servers = {key: None if one is server else one for key, one in self.servers.items()}
        server.channel.close()
        for _, message in server.waiting.values():
            self.execute(message)

    def execute(self, message: dict[str, Any]) -> None:
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
        self.started(message["start"], pid)

    def started(self, number: int, pid: int) -> None:
        """Take a pod that has started."""
        self.pids[number] = pid
        send({"started": number, "pid": pid})

    def reap(self) -> None:
        """Report pods that ended. Processes left in a pod's group are killed, as a container's are."""
        by_pid = {pid: number for number, pid in self.pids.items()}
        for pid, number in by_pid.items():
            if (status := collect(pid)) is not None:
                del self.pids[number]
                send({"ended": number, "status": status})
        with suppress(ChildProcessError):
            while LIBC is not None and (ended := ended_child()):
                # A forked pod is reported before it can end, but perhaps not before this look.
                self.hear_servers()
                if ended in self.pids.values():
                    return self.reap()
                os.waitpid(ended, 0)
        return None


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


def ended_child() -> int:
    """A child that ended, adopted ones included; 0 if there is none. Raises `ChildProcessError` without
    any child.
    """
    result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return 0 if result is None else result.si_pid


def become(message: dict[str, Any], failed: int, parent: int) -> None:
    """Turn the forked child into the pod's process. Never returns."""
    try:
        if not die_with(parent):
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
        enter(message)
        arguments = [as_bytes(argument) for argument in message["arguments"]]
        environment = {
            as_bytes(name): as_bytes(value) for name, value in message["environment"].items()
        }
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - a pod's command, no shell
    except BaseException as error:
        os.write(failed, str(error).encode(errors="replace")[:4000])
    finally:
        os._exit(64)


def die_with(parent: int) -> bool:
    """Have this process killed when its parent dies. Returns False if it has another one already: a
    parent that died before will send no signal any more.
    """
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def enter(message: dict[str, Any]) -> None:
    """Give this process the pod's session, standard streams and folder. Raises `OSError`."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if message["log"]:
        log = os.open(as_bytes(message["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    os.chdir(as_bytes(message["folder"]))


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
