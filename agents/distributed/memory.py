"""What an actor's network remembers of the episodes of its environments."""

from __future__ import annotations

import numpy as np
import torch

from agents.devices import on_device
from agents.distributed.interfaces import Columns, Spec, Specs
from agents.networks.torsos import TorsoState

CPU = torch.device("cpu")
STATE = "state"
"""With this the names of columns begin: the parts of what is remembered before an unroll's first
row."""


class ActingMemory:
    """E environments'; specs: of the columns, none without a memory."""

    def __init__(self, first_state: TorsoState) -> None:
        """Zeros [E, ...] each."""
        self._parts = [part.numpy(force=True) for part in first_state]
        self.specs: Specs = {
            f"{STATE}{number}": Spec("float32", part.shape[1:])
            for number, part in enumerate(self._parts)
        }

    def columns(self, environments: slice | np.ndarray) -> Columns:
        """A copy of what is remembered of their episodes, whether or not these have ended."""
        parts = zip(self.specs, self._parts, strict=True)
        return {name: part[environments].copy() for name, part in parts}

    def parts(self, environments: slice) -> tuple[np.ndarray, ...]:
        """The same where it is kept, [n, ...] each."""
        return tuple(part[environments] for part in self._parts)

    def keep(self, environments: slice, after: TorsoState) -> None:
        """What is remembered from now on."""
        for kept, part in zip(self._parts, after, strict=True):
            kept[environments] = part.numpy(force=True)


def as_state(columns: Columns, names: Specs, device: torch.device = CPU) -> TorsoState:
    """The columns of these names as a network takes them."""
    return tuple(on_device(torch.from_numpy(columns[name]), device) for name in names)
