"""Becomes the process that a setup describes: `python -I launcher.py SETUP.json`, standard library
only.

The order matters: what only root may do comes first (mounts in a namespace of our own, which end
with us), then limits, then the user, then what belongs to the process itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import pty
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

CLONE_NEWNS = 0x00020000


def main(setup: dict[str, Any]) -> int:
    """Enter every condition of the setup, then be its command; returns only for a terminal, with
    the command's exit code."""
    os.umask(0o022)  # of the folders that `reach` makes
    be_on_the_machine(setup)
    become_the_process(setup)
    os.environ.clear()
    os.environ.update(setup["environment"])
    if setup["terminal"]:
        return os.waitstatus_to_exitcode(pty.spawn(setup["command"]))
    return os.execv(setup["command"][0], setup["command"])  # noqa: S606 - no shell is wanted


def be_on_the_machine(setup: dict[str, Any]) -> None:
    """What is laid over its file system."""
    if setup["mounts"] or setup["reachable"]:
        enter_mount_namespace()
    for kind, target, options in setup["mounts"]:
        subprocess.run(["mount", "-t", kind, "-o", options, "none", target], check=True)
    reach([Path(path) for path in setup["reachable"]])


def become_the_process(setup: dict[str, Any]) -> None:
    """Its limits, its user, its folder, its descriptors."""
    for name, value in setup["limits"].items():
        limited = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(limited, (value, value))
    if setup["cores"]:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: setup["cores"]])
    if setup["uid"] is not None:
        os.setgroups([])
        os.setgid(setup["uid"])
        os.setuid(setup["uid"])
    os.umask(setup["umask"])
    os.chdir(setup["directory"])
    for descriptor in setup["closed"]:
        os.close(descriptor)


def enter_mount_namespace() -> None:
    """From here on no mount is seen outside; raises `OSError` where the machine does not allow
    it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, f"no mount namespace: {os.strerror(number)}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def reach(paths: list[Path]) -> None:
    """Make folders readable whose parents only root may enter: an open parent is laid over, with
    nothing but them in it."""
    while closed := next(filter(None, map(closed_parent, paths)), None):
        inside = [path for path in paths if path.is_relative_to(closed)]
        kept = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in inside]
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", closed], check=True)
        for path, descriptor in zip(inside, kept, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{descriptor}", path],
                check=True,
                pass_fds=[descriptor],
            )
            os.close(descriptor)


def closed_parent(path: Path) -> Path | None:
    """The topmost folder on the way that others may not enter."""
    return next(
        (parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), None
    )


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
