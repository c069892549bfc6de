"""A torso of the lab's own, `-p network=my_lab.nets:Residual`: two residual blocks of 32 units."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, shape: tuple[int, ...], units: int = 32) -> None:
        super().__init__()
        self.inputs = nn.Linear(math.prod(shape), units)
        self.blocks = nn.ModuleList(nn.Linear(units, units) for _ in range(2))
        self.norm = nn.LayerNorm(units)

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> tuple[Tensor, Any]:
        """encoded [T, B, ...] -> features [T, B, units], and the state, which stays empty."""
        features = self.inputs(encoded.flatten(2))
        for block in self.blocks:
            features = features + block(features.relu())
        return self.norm(features), state
