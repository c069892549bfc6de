"""Updates whose numbers are looked at together, where each look would have to wait for a device.

On the CPU the loss and the norm of every update are looked at before its step, so that one that is
not finite is never made. A GPU has done nothing yet when its work is asked for: a look waits until
it has, and then it waits for the next work. There a block of updates is made without a look and
looked at once, at its end. If one was not finite, everything goes back to the beginning of the
block, whose updates are made again, now with a look at each: they are the same, and the error is
the one that the CPU would have raised. After it everything goes back to the beginning once more, so
that no number of a refused block is ever kept.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.devices import is_accelerator, numbers
from config.errors import Diverged

log = logging.getLogger(__name__)

Measured = Mapping[str, float | Tensor]
"""Metrics by name; tensors [] where they have not been looked at yet."""
FINITE = "finite"
"""The name under which a block's own number travels with the metrics."""


class Block:
    """The updates between two looks. tensors: all that they change, where they stay; generators:
    from which they draw, on the CPU.

    looks_at_each: whether an update has to look at its loss and norm before its step; else it has to
    `note` them.
    """

    def __init__(
        self,
        device: torch.device,
        tensors: Sequence[Tensor],
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        self.looks_at_each = not is_accelerator(device)
        self._tensors = list(tensors)
        self._generators = generators
        self._kept: tuple[list[Tensor], list[Tensor]] | None = None
        self._noted = list[Tensor]()

    def note(self, loss: Tensor, norm: Tensor) -> None:
        """The loss [] and the gradient's norm [] of an update that nobody has looked at."""
        self._noted.append(loss + norm)

    def learn(self, updates: Callable[[], Measured]) -> dict[str, float]:
        """Make these updates, and return their metrics as numbers. Raises `Diverged` where an update
        is not finite; on a GPU nothing has changed then.
        """
        if self.looks_at_each:
            return numbers(updates())
        self._keep()
        found = numbers({**updates(), FINITE: self._all_finite()})
        if found.pop(FINITE):
            return found
        self._go_back()
        return self._again(updates)

    def _again(self, updates: Callable[[], Measured]) -> dict[str, float]:
        """The same updates with a look at each."""
        self.looks_at_each = True
        try:
            found = numbers(updates())
        except Diverged:
            self._go_back()
            raise
        finally:
            self.looks_at_each = False
        # The sums of a GPU need not be the same twice, and one may have been at the edge.
        log.warning(
            "an update was not finite, and was when it was repeated; the repeated one counts"
        )
        return found

    def _all_finite(self) -> Tensor:
        """[], 1 or 0: whether all that was noted is finite. It is forgotten."""
        noted = self._noted
        self._noted = []
        return torch.stack(noted).isfinite().all()

    @torch.no_grad()
    def _keep(self) -> None:
        if self._kept is None:
            self._kept = [torch.empty_like(one) for one in self._tensors], []
        copies, states = self._kept
        torch._foreach_copy_(copies, self._tensors)
        states[:] = [one.get_state() for one in self._generators]

    @torch.no_grad()
    def _go_back(self) -> None:
        copies, states = self._kept or ([], [])
        torch._foreach_copy_(self._tensors, copies)
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


def mean_norm(norms: Sequence[Any]) -> float | Tensor:
    """The mean of gradients' norms: numbers, or tensors [] that nobody has looked at."""
    if isinstance(norms[0], Tensor):
        return torch.stack(list(norms)).mean(dtype=torch.float64)
    return math.fsum(norms) / len(norms)
