"""The control groups that limit what this process may use of the machine, from its own group up to
the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def own_groups(controller: str) -> Iterator[Path]:
    """The folders of the control groups that may limit this process for one controller, in versions
    2 and 1. Inside a container the own group appears as the root of the hierarchy, or (version 1)
    under a path of the host.
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
    """The text of a file, or the empty text if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
