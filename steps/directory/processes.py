"""Which process on which machine: `host:pid:start`, so that a dead owner on this machine is known at once.

start is field 22 of `/proc/<pid>/stat` (clock ticks since boot): a pid that was given out again is another process.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def identity(pid: int | None = None) -> str:
    """Name this process, or another one of this machine, as `host:pid:start`."""
    pid = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}:{pid}:{start_time(pid) or 0}"


def is_alive(process: str) -> bool | None:
    """Whether the process still runs; None if it belongs to another machine or the text is no identity."""
    host, separator, rest = process.rpartition(":")[0].rpartition(":")
    start = process.rpartition(":")[2]
    if not separator or not rest.isdecimal() or host != socket.gethostname():
        return None
    found = start_time(int(rest))
    return found is not None and (start == "0" or _same_start(found, start, int(rest)))


def start_time(pid: int) -> str | None:
    """When a process of this machine started; None if there is none (a zombie has ended, too)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return _start_time_elsewhere(pid)
    except (ProcessLookupError, PermissionError):
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def _start_time_elsewhere(pid: int) -> str | None:
    """Without `/proc` (macOS): psutil's creation time."""
    if Path("/proc/self/stat").exists():
        return None
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return None


def _same_start(found: str, start: str, pid: int) -> bool:
    """Equal ticks; or, written by psutil, a creation time within a second."""
    if found == start:
        return True
    if "." not in start:
        return False
    import psutil

    try:
        return abs(psutil.Process(pid).create_time() - float(start)) < 1
    except (psutil.Error, ValueError):
        return False
