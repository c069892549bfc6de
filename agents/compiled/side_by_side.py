"""Tensors that share one flat array, which compiled functions work on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from agents.compiled.lanes import LANES


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
