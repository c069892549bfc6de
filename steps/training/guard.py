"""The guard against attempts that never get further: the same step reached again without a newer
checkpoint ends with exit 3.

An exception at the same step twice is a fact. A killed attempt says nothing about why: a node that
vanished, memory that ran out. So it takes `KILLS` of them in a row that died at the same row of
`train.csv`, or as many in a row that died before the training had begun: an environment may kill
the process while it is made. A preemption (SIGTERM, exit 75) never counts, a newer checkpoint or
another workflow starts anew, and so does a repeat after exit 3, because a person asked for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from config.errors import ExperimentError, NoProgress
from steps.directory.status import Status

KILLS = 10
"""Five were too few: on a slow machine, five random kills in a row hit a training before its first
row.
"""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """The record of attempts that began at one checkpoint, kept in the status file.

    checkpoint: the step from which they start. owner: the workflow. began: whether the present one
    has begun to train. failed_at: the step at which one raised an exception. killed_at, kills: the
    last row of those that were killed, and how many in a row. unbegun: how many in a row were
    killed before they had begun.
    """

    checkpoint: int
    owner: str | None
    began: bool = False
    failed_at: int | None = None
    killed_at: int | None = None
    kills: int = 0
    unbegun: int = 0


def after(
    previous: Status | None, *, checkpoint: int, owner: str | None, reached: int, memory: str
) -> Guard:
    """The guard of the attempt that starts now.

    reached: the step of the last row of the previous attempt. memory: a remark about its memory.
    Raises `NoProgress`.
    """
    fresh = Guard(checkpoint=checkpoint, owner=owner)
    before = _read(previous)
    if (
        previous is None
        or before is None
        or before.checkpoint != checkpoint
        or before.owner != owner
        or previous.exit_code == 3
    ):
        return fresh
    if previous.state != "running":
        return replace(before, began=False)
    if not before.began:
        unbegun = before.unbegun + 1
        if unbegun >= KILLS:
            raise NoProgress(
                f"no progress: killed {unbegun} times while the training was being made, from step {checkpoint}; {memory}"
            )
        return replace(before, unbegun=unbegun)
    kills = before.kills + 1 if before.killed_at == reached else 1
    if kills >= KILLS:
        raise NoProgress(
            f"no progress: killed {kills} times at step {reached}, continuing from step {checkpoint}; {memory}"
        )
    return replace(before, began=False, killed_at=reached, kills=kills, unbegun=0)


def failed(guard: Guard, step: int, error: Exception) -> Guard:
    """The guard after an exception at a step. Raises `NoProgress` if the last attempt ended there,
    too.
    """
    if isinstance(error, ExperimentError) and error.exit_code != 1:
        return guard
    if guard.failed_at == step:
        message = f"no progress: step {step} was reached twice from step {guard.checkpoint}: {type(error).__name__}: {error}"
        raise NoProgress(message) from error
    return replace(guard, failed_at=step)


def as_details(guard: Guard) -> dict[str, Any]:
    """The guard as details of the status file."""
    return asdict(guard)


def _read(previous: Status | None) -> Guard | None:
    try:
        return Guard(**previous.details["guard"]) if previous is not None else None
    except (KeyError, TypeError):
        return None
