"""How long this machine may see an old state of the storage.

A client of a network file system answers from its cache: with NFS's defaults a file that another pod
has written may appear up to 60 seconds late, and the directory's owner may be an earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from config.errors import BadInput, WrongDirectory
from steps.directory.owner import from_environment

LAG_S = 5.0
"""On a storage of this machine, where nothing should be late."""
NETWORK_LAG_S = 75.0
"""NFS's longest caching (acregmax, acdirmax: 60 s), and some more."""
NETWORK_TYPES = ("nfs", "cifs", "smb", "ceph", "lustre", "gluster", "gpfs", "beegfs", "fuse.")
MOUNTS = Path("/proc/self/mountinfo")


def lag_s(path: Path) -> float:
    """For how long a file that another pod has written may be missing here, in seconds."""
    return NETWORK_LAG_S if may_be_late(path) else LAG_S


def longest_wait_s(path: Path, *, is_written: bool) -> float:
    """How long to look again for a file that another step makes, in seconds. is_written: that step's
    status says that it has succeeded. In a workflow a step is started after those that it needs, so on
    a network file system the status itself may be late.
    """
    if is_written:
        return lag_s(path)
    is_expected = from_environment() is not None and may_be_late(path)
    return NETWORK_LAG_S if is_expected else 0.0


def may_be_late(path: Path) -> bool:
    """Whether a path lies on a network file system."""
    return _type_of(path).startswith(NETWORK_TYPES)


def wait_until_seen(look: Callable[[], object], check_stop: Callable[[], None], what: str) -> None:
    """Call `look` again for NETWORK_LAG_S while it raises `BadInput` or `WrongDirectory`. what: is
    waited for.
    """
    end = time.monotonic() + NETWORK_LAG_S
    has_said = False
    while True:
        try:
            look()
            return
        except (BadInput, WrongDirectory) as error:
            if time.monotonic() >= end:
                raise
            if not has_said:
                print(f"waiting up to {NETWORK_LAG_S:g} s for {what}: {error}", flush=True)
                has_said = True
        check_stop()
        time.sleep(min(1.0, NETWORK_LAG_S / 50))


def _type_of(path: Path) -> str:
    """The type of the file system that a path lies on; empty if that is not known."""
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    absolute = path.absolute()
    found = ("", "")
    for line in lines:
        # 36 35 98:0 /root /mount/point options … - type source options
        before, _, after = line.partition(" - ")
        place = before.split(" ")[4].replace("\\040", " ") if before.count(" ") >= 4 else ""
        if place and absolute.is_relative_to(place) and len(place) >= len(found[0]):
            found = (place, after.partition(" ")[0])
    return found[1]
