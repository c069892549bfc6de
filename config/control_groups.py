"""The control groups that limit what this process may use of the machine, from its own group up to
the root.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def processors() -> float:
    """How many processors this process may use: those of its affinity, or fewer where a control
    group has a quota, which need not be whole.
    """
    if hasattr(os, "sched_getaffinity"):
        affinity = len(os.sched_getaffinity(0))
    else:
        affinity = os.cpu_count() or 1
    return min([float(affinity), *map(_quota_of, own_groups("cpu"))])


def _quota_of(group: Path) -> float:
    """The quota of one group: `cpu.max` in version 2, two files in version 1; infinite without a
    limit.
    """
    texts = read(group / "cpu.max").split() or [
        read(group / "cpu.cfs_quota_us"),
        read(group / "cpu.cfs_period_us"),
    ]
    try:
        quota, period = (float(text) for text in texts)
    except ValueError:
        # The kernel writes "max" for no limit, and without this controller there is no file.
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf


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
