"""The state of a run, which `steps.prune` may delete, and how that is known afterwards.

State is what only a further training or evaluation reads: checkpoints, snapshots, the networks and games
of self-play, and the segments of growing streams such as a replay. Before the first byte of it is deleted,
`pruned.json` appears in the run's directory; from then on the run counts as without a state, whatever is
still there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from config.errors import BadInput, NoUsableState
from steps.directory.files import read_bytes, write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.segments import NAME, NOT_STREAMS, SEGMENT_NAME
from steps.directory.status import now

LIMIT_BYTES = 65536
UNKNOWN = "an unknown date"


@dataclass(frozen=True)
class Pruned:
    """time: ISO 8601 in UTC. bytes: how much was deleted, as far as known before."""

    time: str
    bytes: int


def mark(run: RunDirectory, size_bytes: int) -> None:
    """Record that the state of a run is deleted from now on."""
    before = read_pruned(run)
    deleted = size_bytes + (before.bytes if before is not None else 0)
    write_atomically(run.pruned_json, json.dumps(asdict(Pruned(now(), deleted))) + "\n")


def read_pruned(run: RunDirectory) -> Pruned | None:
    """What was recorded; None for a run that still has its state. A damaged file says that it has none."""
    try:
        written = json.loads(read_bytes(run.pruned_json, LIMIT_BYTES))
        return Pruned(str(written["time"]), int(written["bytes"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, BadInput, ValueError, TypeError, LookupError, RecursionError):
        return Pruned(UNKNOWN, 0)


def refuse_pruned(run: RunDirectory) -> None:
    """Raise `NoUsableState` for a run whose state was deleted: a training must not begin anew in silence."""
    found = read_pruned(run)
    if found is not None:
        raise NoUsableState(
            f"the state of run {run.index} was deleted by steps.prune ({found.time}): its results "
            "can be read, but it can be trained, evaluated and filmed no more; choose another outdir"
        )


def state_folders(run: RunDirectory) -> list[Path]:
    """The folders with state that a run has. No link is among them."""
    found = [run.checkpoints, run.snapshots, run.networks, run.positions]
    return [path for path in found if _is_folder(path)] + [
        path for path in _folders(run.root) if path not in found and _is_stream(path)
    ]


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if _is_folder(path)]
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_stream(folder: Path) -> bool:
    """Whether a folder holds segments and nothing else."""
    if folder.name in NOT_STREAMS or not NAME.fullmatch(folder.name):
        return False
    names = [path.name for path in folder.iterdir()]
    return bool(names) and all(SEGMENT_NAME.fullmatch(name) for name in names)
