"""Pausing a training: with `--until EPOCH` it ends well after that epoch, and goes on when it is started
again with a later one, or without.

The length of the training stays what the parameters say, so no schedule depends on where it pauses. Its
members get the same option: they must know whether a pause that they find is the end of what they help
with, or one that this training is about to leave.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from config.errors import BadInput, shown
from steps.command.context import StepContext
from steps.directory.status import Status

if TYPE_CHECKING:
    from agents.interfaces import Progress

Yielded = TypeVar("Yielded", bound="Progress | None")


def add_until(parser: argparse.ArgumentParser) -> None:
    """Add `--until` to a step's options."""
    parser.add_argument(
        "--until",
        default="",
        metavar="EPOCH",
        help="pause after this epoch of the training; empty: train to the end",
    )


def until(context: StepContext) -> int:
    """The epoch after which this start ends: the last one, or an earlier one that `--until` names.
    Raises `BadInput`.
    """
    last = context.resolved.epochs
    text: str = context.arguments.until
    if not text:
        return last
    try:
        epoch = int(text)
    except ValueError:
        epoch = 0
    if epoch < 1:
        raise BadInput(
            f"--until cannot be {shown(text)}; allowed: an epoch from 1 on, or nothing for all {last}"
        )
    return min(epoch, last)


def is_far_enough(context: StepContext, status: Status) -> bool:
    """Whether a training with this status, which has ended well, has all that this start asks for."""
    return status.state != "paused" or (status.number("epoch") or 0) >= until(context)


def up_to(epoch: int, training: Iterator[Yielded]) -> Iterator[Yielded]:
    """What a training yields, ended after this epoch."""
    for progress in training:
        yield progress
        if progress is not None and progress.epoch >= epoch:
            return
