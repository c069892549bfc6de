"""Torsos of the lab's own, `-p network=my_lab.nets:Residual`: two residual blocks of 32 units; and one that
remembers."""

from __future__ import annotations

import math
from typing import Any

import torch
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


class Gated(nn.Module):
    """Remembers: `-p network=my_lab.nets:Gated` with ppo-lstm, a gated recurrent unit of 32."""

    def __init__(self, shape: tuple[int, ...], units: int = 32) -> None:
        super().__init__()
        self.cell = nn.GRUCell(math.prod(shape), units)

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> tuple[Tensor, Any]:
        """Step by step; `state` is () at first, then what this returned."""
        steps, rows = reset.shape
        hidden = state[0] if state else encoded.new_zeros(rows, self.cell.hidden_size)
        features = []
        for t in range(steps):
            hidden = hidden * ~reset[t, :, None]
            hidden = self.cell(encoded[t].flatten(1), hidden)
            features.append(hidden)
        return torch.stack(features), (hidden,)
