"""What one of several learners knows of the others: `agents.transport.group.Group` between machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class PeersLost(Exception):
    """One of the learners has ended, or does not answer."""


class Peers(Protocol):
    """The learners of a run, seen by one of them; number: its own, from 0 to count − 1."""

    number: int
    count: int

    def sum(self, values: Tensor) -> None:
        """Add up in place, over all learners, each of which calls this with the same shape, type and
        kind of device; all have the same bits then. Blocks until all have come. Raises `PeersLost`; the
        values are worth nothing then.
        """
