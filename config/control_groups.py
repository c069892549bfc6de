"""The control groups that this process is in, those above its own included: what a container or a
service may use of its machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def own_groups(controller: str) -> Iterator[Path]:
    """The folders of those that may limit what this controller controls, in version 2 and 1.

    A container sees its own group as the root of the hierarchy, or (version 1) under a path that is
    the host's.
    """
    for line in read(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / controllers
        inside = Path(path.lstrip("/"))
        yield root / inside
        yield from (root / parent for parent in inside.parents)


def read(path: Path) -> str:
    """The text of a file; empty without it."""
    try:
        return path.read_text()
    except OSError:
        return ""
