"""Which process on which machine: `host:pid:start:world`, so that a dead owner on this machine is
known at once.

start is field 22 of `/proc/<pid>/stat` (clock ticks since boot): a pid that was given out again is
another process. world is the boot of the kernel and the PID namespace: a container that shares its
host's name counts processes of its own, and of one that it cannot see it knows nothing.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path


def identity(pid: int | None = None) -> str:
    """Name this process, or another one of this machine, as `host:pid:start:world`."""
    pid = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}:{pid}:{start_time(pid) or 0}:{world()}"


def is_alive(process: str) -> bool | None:
    """Whether the process still runs; None if that cannot be known from here, or if the text is not
    an identity.

    It can be known only on the same host, in the same boot and the same PID namespace.
    """
    parts = process.rsplit(":", 3)
    if len(parts) != 4 or not parts[1].isdecimal():
        return None
    host, pid, start, its_world = parts
    if host != socket.gethostname() or its_world != world():
        return None
    found = start_time(int(pid))
    return found is not None and (start == "0" or _same_start(found, start, int(pid)))


@lru_cache(maxsize=1)
def world() -> str:
    """The kernel's boot and this process's PID namespace: `1f2e3d4c-4026531836`; `-` without
    `/proc`.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - `pid:[4026531836]`, no path
    except OSError:
        return "-"
    return f"{boot[:8]}-{''.join(filter(str.isdecimal, namespace))}"


def start_time(pid: int) -> str | None:
    """When a process of this machine started; None if there is none. A zombie counts as ended."""
    try:
        # The second field is the program's name in brackets, in which spaces and brackets may stand.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return _start_time_elsewhere(pid)
    except (ProcessLookupError, PermissionError):
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def _start_time_elsewhere(pid: int) -> str | None:
    """The start time without `/proc` (macOS): psutil's creation time."""
    if Path("/proc/self/stat").exists():
        return None
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return None


def _same_start(found: str, start: str, pid: int) -> bool:
    """Whether two start times are equal in ticks or, if psutil wrote them, within a second."""
    if found == start:
        return True
    if "." not in start:
        return False
    import psutil

    try:
        return abs(psutil.Process(pid).create_time() - float(start)) < 1
    except (psutil.Error, ValueError):
        return False
