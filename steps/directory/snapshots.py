"""Snapshots of a policy in the course of its training, and the episodes that were played with them.

    snapshots/000000012000/                what the policy needs of the training's state at that step, as a
                                           directory like a checkpoint's: complete and with checksums,
                                           or absent
    snapshot-evaluations/000000012000.csv  its episodes, a row each, with the digest of the snapshot that
                                           played them
    snapshot-evaluations/000000012000-actions.safetensors
                                           the actions of the first of them, which is filmed

The training is the only writer of snapshots. It takes them after fixed epochs (`Resolved.snapshot_epochs`)
and before the checkpoint of the same epoch: a training that continues from a checkpoint finds all
earlier snapshots taken. Later ones belong to an attempt that died and are removed.

A snapshot is evaluated as a whole by one process, whichever that is, and then never again: a table
counts as long as it has the digest of its snapshot and as many rows as are wanted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import BadInput, NoUsableState
from config.resolved import Resolved
from steps.directory import checkpoints
from steps.directory.arrays import DamagedError
from steps.directory.checkpoints import Checkpoint
from steps.directory.files import read_bytes, remove, remove_temporaries
from steps.directory.layout import RunDirectory
from steps.directory.pruned import refuse_pruned
from steps.directory.tables import read_rows

if TYPE_CHECKING:
    from agents.interfaces import State

REMEDY = "delete it, and the curve of this run does without it"
DIGEST = "snapshot"
"""The column of a table of episodes with the digest of the snapshot that played them."""
NOT_HOW = ("evaluation_episodes", "video_episodes", "evaluate_above", "opponents")
"""Parameters of later steps that change nothing in how a snapshot plays."""
MOST_IN_A_PART = 5
MOST_PARTS = 8
"""A part is what one pod evaluates. Loading torch takes seconds, so a pod gets a few snapshots; a
workflow's status grows with every pod, so of more than 40 snapshots a pod gets more than 5.
"""


def pack(*, step: int, epoch: int, state: State, identity: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a snapshot, copied: the training may go on while they are written."""
    return checkpoints.pack(step=step, state=state, identity=identity, record={"epoch": epoch})


def write(run: RunDirectory, step: int, packed: Mapping[str, bytes]) -> None:
    """Write a snapshot so that it appears as a whole. Raises `ExperimentError` if the disk is full."""
    checkpoints.write_directory(run.snapshot(step), packed)


def discard_after(run: RunDirectory, step: int) -> None:
    """Remove what a dead attempt took after the checkpoint from which this one continues. Called by
    their only writer when it starts.
    """
    remove_temporaries(run.snapshots)
    for newer in [present for present in run.snapshot_steps() if present > step]:
        remove(run.snapshot(newer))


def load(run: RunDirectory, step: int, resolved: Resolved) -> Checkpoint:
    """One verified snapshot. Raises `NoUsableState`, which says what to do, for a damaged one, and
    `WrongDirectory` for one of another experiment.
    """
    refuse_pruned(run)
    path = run.snapshot(step)
    try:
        return checkpoints.belonging(checkpoints.load(path), resolved.identity())
    except DamagedError as error:
        raise NoUsableState(f"{path} is damaged ({error}); {REMEDY}") from error


def digest(run: RunDirectory, step: int, resolved: Resolved) -> str:
    """Sixteen digits that tell one snapshot, and how it is played, from another one of the same step;
    empty if there is none.
    """
    try:
        content = read_bytes(run.snapshot(step) / checkpoints.MANIFEST)
    except (OSError, BadInput):
        return ""
    how: dict[str, Any] = {}
    for section in resolved.later().values():
        how |= {name: value for name, value in section.items() if name not in NOT_HOW}
    return hashlib.sha256(content + json.dumps(how, sort_keys=True).encode()).hexdigest()[:16]


def parts(steps: Sequence[int]) -> list[list[int]]:
    """The snapshots, divided among pods: parts of equal sizes, as far as possible."""
    count = min(MOST_PARTS, -(-len(steps) // MOST_IN_A_PART))
    ends = [len(steps) * part // count for part in range(count + 1)] if count else [0]
    return [list(steps[first:end]) for first, end in pairwise(ends)]


def table(run: RunDirectory, step: int) -> Path:
    """The table with the episodes of a snapshot."""
    return run.snapshot_evaluations / f"{run.snapshot(step).name}.csv"


def actions(run: RunDirectory, step: int) -> Path:
    """The actions of the first of them."""
    return run.snapshot_evaluations / f"{run.snapshot(step).name}-actions.safetensors"


def evaluated(run: RunDirectory, step: int, resolved: Resolved) -> list[dict[str, str]] | None:
    """The rows of a snapshot's episodes; None if it is still to be evaluated, or again: other
    weights were evaluated, or otherwise, or another number of episodes.
    """
    try:
        rows = read_rows(table(run, step))
    except (OSError, ValueError, BadInput):
        return None
    expected = digest(run, step, resolved)
    is_current = expected and all(row.get(DIGEST) == expected for row in rows)
    return rows if is_current and len(rows) == resolved.snapshot_rows else None
