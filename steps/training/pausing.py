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
        help="epoch after which the training pauses; empty: it goes on to its end",
    )


def asked_pause(context: StepContext) -> int | None:
    """The epoch after which this start pauses; None if it trains to the end. Raises `BadInput`."""
    last = context.resolved.epochs
    text: str = context.arguments.until
    if not text:
        return None
    try:
        epoch = int(text)
    except ValueError:
        epoch = 0
    if epoch < 1:
        raise BadInput(
            f"--until cannot be {shown(text)}; allowed: an epoch from 1 on, or nothing for all {last}"
        )
    return epoch if epoch < last else None


def is_far_enough(context: StepContext, status: Status) -> bool:
    """Whether a training with this status, which has ended well, has all that this start asks for."""
    if status.state != "paused":
        return True
    pause = asked_pause(context)
    return pause is not None and (status.number("epoch") or 0) >= pause


def up_to(pause: int | None, training: Iterator[Yielded]) -> Iterator[Yielded]:
    """What a training yields until it pauses; everything without a pause."""
    for progress in training:
        yield progress
        # Not after the last epoch of all: a learner then still says to its actors that it ends.
        if pause is not None and progress is not None and progress.epoch >= pause:
            return
