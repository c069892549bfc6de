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
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from agents.devices import Ferry, is_accelerator, numbers
from config.errors import Diverged

log = logging.getLogger(__name__)

Made = TypeVar("Made")
"""What an update leaves."""

Measured = Mapping[str, float | Tensor]
"""Metrics by name; tensors [] where they have not been looked at yet."""
Generator = torch.Generator | np.random.Generator
FINITE = "finite"
"""The name under which a block's own number travels with the metrics."""


class Block(Generic[Made]):
    """The updates between two looks. tensors: all that they change, where they stay; generators:
    from which they draw, on the CPU.

    looks_at_each: whether an update has to look at its loss and norm before its step; else it has to
    `note` them.
    """

    def __init__(
        self, device: torch.device, tensors: Sequence[Tensor], generators: Sequence[Generator] = ()
    ) -> None:
        self._device = device
        self._on_cpu = not is_accelerator(device)
        self.looks_at_each = self._on_cpu
        self._tensors = list(tensors)
        self._generators = generators
        self._copies = list[Tensor]()
        self._states = list[Any]()
        self._noted = list[Tensor]()
        self._made = list[Made]()
        self._updates: Callable[[], list[Made]] = list
        self._ferry = Ferry(device)

    def constant(self, number: float) -> float | Tensor:
        """A number that an update depends on: on a GPU as a tensor [], since a CUDA graph would keep
        a number as it was.
        """
        return number if self._on_cpu else torch.full((), number, device=self._device)

    def note(self, loss: Tensor, norm: Tensor) -> None:
        """The loss [] and the gradient's norm [] of an update that nobody has looked at."""
        self._noted.append(loss + norm)

    def make(self, updates: Callable[[], list[Made]]) -> list[Made]:
        """Make these updates, and return what they return, in a list that changes if they have to be
        made again. They must find the same then, until `look`, `fetch` or `settle` has been called.
        """
        if self.looks_at_each:
            return updates()
        self.settle()
        self._keep()
        self._updates = updates
        self._made = updates()
        return self._made

    def look(self, measure: Callable[[], Measured]) -> dict[str, float]:
        """The numbers that `measure` gives of the updates, in one wait with whether they are finite.
        Raises `Diverged` if one is not; on a GPU the updates have changed nothing then.
        """
        if not self._noted:
            return numbers(measure())
        found = numbers({**measure(), FINITE: self._all_finite()})
        if found.pop(FINITE):
            return found
        self._again()
        return numbers(measure())

    def settle(self) -> None:
        """`look` at nothing else."""
        if self._noted:
            self.look(dict)

    def fetch(self, act: Callable[[], Tensor]) -> np.ndarray:
        """The tensor of the device that `act` gives, as an array; for the price of this wait the
        updates before it are looked at. Raises as `look` does.
        """
        tensor = act()
        if not self._noted:
            return self._ferry.fetch(tensor)
        flag = self._all_finite().to(tensor.dtype).reshape(1)
        found = self._ferry.fetch(torch.cat((tensor.reshape(-1), flag)))
        if found[-1]:
            return found[:-1].reshape(tensor.shape)
        self._again()
        return self.fetch(act)

    def _again(self) -> None:
        """The same updates with a look at each."""
        self._go_back()
        self.looks_at_each = True
        try:
            # Whoever waits for actions has switched gradients off.
            with torch.inference_mode(mode=False), torch.enable_grad():
                self._made[:] = self._updates()
        except Diverged:
            self._go_back()
            raise
        finally:
            self.looks_at_each = False
        # The sums of a GPU need not be the same twice, and one may have been at the edge.
        log.warning(
            "an update was not finite, and was when it was repeated; the repeated one counts"
        )

    def _all_finite(self) -> Tensor:
        """[], 1 or 0: whether all that was noted is finite. It is forgotten."""
        noted = self._noted
        self._noted = []
        return torch.stack(noted).isfinite().all()

    @torch.no_grad()
    def _keep(self) -> None:
        if not self._copies:
            self._copies = [torch.empty_like(one) for one in self._tensors]
        torch._foreach_copy_(self._copies, self._tensors)
        self._states = [
            one.get_state() if isinstance(one, torch.Generator) else one.bit_generator.state
            for one in self._generators
        ]

    @torch.no_grad()
    def _go_back(self) -> None:
        torch._foreach_copy_(self._tensors, self._copies)
        for generator, state in zip(self._generators, self._states, strict=True):
            if isinstance(generator, torch.Generator):
                generator.set_state(state)
            else:
                generator.bit_generator.state = state


def mean_norm(norms: Sequence[Any]) -> float | Tensor:
    """The mean of gradients' norms: numbers, or tensors [] that nobody has looked at."""
    if isinstance(norms[0], Tensor):
        return torch.stack(list(norms)).mean(dtype=torch.float64)
    return math.fsum(norms) / len(norms)
