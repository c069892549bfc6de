"""Tensors, and what an optimiser remembers of them, that share flat arrays on which compiled functions
work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from agents.compiled.descent import ADAM, Descent
from agents.compiled.lanes import LANES
from agents.compiled.parts import collection_paused
from agents.optimisation.optimiser import Adam

log = logging.getLogger(__name__)

TOLERANCE = 1e-5
"""Relative, of the norm of a gradient."""
DRAWS = 3
"""Of rows to compare, one of which must agree: where the input of a ReLU is 0 up to rounding, its
derivative is 0 or 1 by chance.
"""


def places(tensors: Sequence[Tensor]) -> tuple[list[int], int]:
    """Where each begins, at multiples of 16 numbers, and how many numbers there are in all."""
    found = list[int]()
    place = 0
    for tensor in tensors:
        found.append(place)
        place += -(-tensor.numel() // LANES) * LANES
    return found, place


def moved_side_by_side(tensors: Sequence[Tensor]) -> np.ndarray:
    """Move the memory of float32 tensors on the CPU into one array [n], which is returned; they stay the
    same objects with the same numbers. Between them are zeros.
    """
    begins, size = places(tensors)
    flat = torch.zeros(size)
    for tensor, begin in zip(tensors, begins, strict=True):
        part = flat[begin : begin + tensor.numel()].view(tensor.shape)
        part.copy_(tensor.detach())
        tensor.data = part
    return flat.numpy()


def adam_side_by_side(optimiser: Adam, largest_norm: float) -> Descent:
    """Adam's state as compiled functions change it; its tensors stay the same objects."""
    return Descent(
        ADAM, float(optimiser.epsilon), largest_norm, moved_side_by_side(optimiser.moments_1),
        moved_side_by_side(optimiser.moments_2), optimiser.updates.view(1).numpy(),
    )  # fmt: skip


def gradients_side_by_side(parameters: Sequence[Tensor]) -> np.ndarray:
    """What autograd has left, 0 for what a loss does not depend on, at the places of the parameters; it
    is taken away from them.
    """
    begins, size = places(parameters)
    flat = np.zeros(size, np.float32)
    for parameter, begin in zip(parameters, begins, strict=True):
        if parameter.grad is not None:
            flat[begin : begin + parameter.numel()] = parameter.grad.numpy().ravel()
            parameter.grad = None
    return flat


def apart(name: str, found: np.ndarray, expected: np.ndarray) -> str:
    """What differs by more than `TOLERANCE` of the expected numbers' norm, in words; empty if they do
    not.
    """
    difference = float(np.linalg.norm(found - expected))
    if difference <= TOLERANCE * float(np.linalg.norm(expected)):
        return ""
    return f"the compiled {name} differs from autograd's by {difference:.3g}"


def first_difference(compare: Callable[[int], str]) -> str:
    """What `compare` finds in rows drawn with a seed; empty if it finds nothing with one of `DRAWS`
    seeds.
    """
    found = ""
    for seed in range(DRAWS):
        difference = compare(seed)
        if not difference:
            return ""
        found = found or difference
    return found


def equals_torch(compare: Callable[[int], str]) -> bool:
    """Whether `first_difference` finds none; what it finds is logged."""
    with collection_paused():
        difference = first_difference(compare)
    if difference:
        log.warning("%s: torch goes on without machine code", difference)
    return not difference


def no_steps(parameters: np.ndarray) -> Descent:
    """The state of an Adam of these parameters that has made no step, and whose epsilon is 1."""
    nothing = np.zeros_like(parameters)
    return Descent(ADAM, 1.0, np.inf, nothing, nothing.copy(), np.zeros(1, np.float32))
