"""Several networks of one shape side by side, as one batched product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn


class Perceptrons(nn.Module):
    """K networks of linear layers with ReLU between them, computed together: half the calls of two.

    weight1, weight2, … [K, in, out]; bias1, … [K, 1, out], as `torch.nn.Linear` draws its own:
    uniform in ±1/√in.
    """

    def __init__(self, count: int, sizes: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self._layers = list[tuple[nn.Parameter, nn.Parameter]]()
        for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes), start=1):
            bound = 1 / math.sqrt(inputs)
            weight, bias = (
                nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))
                for shape in ((count, inputs, outputs), (count, 1, outputs))
            )
            self.register_parameter(f"weight{number}", weight)
            self.register_parameter(f"bias{number}", bias)
            self._layers.append((weight, bias))

    def forward(self, rows: Tensor) -> Tensor:
        """[B, in] -> [K, B, out]."""
        return self._answers(rows, self._layers)

    def without_gradients(self, rows: Tensor) -> Tensor:
        """The same; gradients flow to the rows and not to the weights."""
        layers = [(weight.detach(), bias.detach()) for weight, bias in self._layers]
        return self._answers(rows, layers)

    def frozen(self) -> Callable[[Tensor], Tensor]:
        """`forward` for a few rows on the CPU, without gradients: by numpy, whose calls take a
        fifth of torch's time. It follows the weights as long as these are changed in place.
        """
        layers = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in self._layers]

        def answers(rows: Tensor) -> Tensor:
            hidden = rows.numpy()
            for number, (weight, bias) in enumerate(layers):
                hidden = np.maximum(hidden, 0) if number else hidden
                hidden = np.matmul(hidden, weight) + bias
            return torch.from_numpy(hidden)

        return answers

    def _answers(self, rows: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        hidden = rows.expand(len(layers[0][0]), *rows.shape)
        for number, (weight, bias) in enumerate(layers):
            hidden = hidden.relu_() if number else hidden
            hidden = torch.baddbmm(bias, hidden, weight)
        return hidden
