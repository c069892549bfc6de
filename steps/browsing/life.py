"""Whether a workflow works on a directory, as far as one look can tell.

For people alone: the age of the last sign of life is measured with this machine's clock, which may
differ from that of the storage. What deletes or claims a directory asks `steps.directory.owner`, which
compares no clocks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from config.errors import WrongDirectory
from steps.directory import owner, processes

MISSED_LEASES = 3
"""After so many times its lease without a sign of life, an owner is called silent."""


@dataclass(frozen=True)
class Life:
    """free: nobody owns the directory. ended: its owner has released it. silent_s: how long ago the last
    sign of life of a silent owner was.
    """

    state: Literal["free", "running", "silent", "ended"]
    silent_s: float = 0.0


def look(owner_json: Path) -> Life:
    """What the owner's file says now. A file that cannot be read says that nobody owns the directory."""
    try:
        present = owner.read_owner(owner_json)
        modified_s = owner_json.stat().st_mtime
    except (OSError, WrongDirectory):
        return Life("free")
    if present is None:
        return Life("free")
    if present.released:
        return Life("ended")
    age_s = max(0.0, time.time() - modified_s)
    is_alive = processes.is_alive(present.process) if present.process else None
    if is_alive is None:
        is_alive = age_s < MISSED_LEASES * present.lease_s
    return Life("running") if is_alive else Life("silent", age_s)
