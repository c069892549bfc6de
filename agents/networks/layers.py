"""The torso for vectors of algorithms that learn values of actions: one row of ReLU layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.environments.spaces import Interface
from agents.networks.torsos import FeaturesOf, FeedForward


class Layers(FeedForward):
    """weight1, weight2, … [out, in] and bias1, … [out], drawn as torch's own linear layers are, for
    which the published settings were found.
    """

    small = True

    def __init__(
        self, spaces: Interface, hidden_sizes: Sequence[int], generator: torch.Generator
    ) -> None:
        super().__init__(spaces)
        self.features = hidden_sizes[-1]
        self._layers = list[tuple[nn.Parameter, nn.Parameter]]()
        sizes = itertools.pairwise((spaces.observation_size, *hidden_sizes))
        for number, (inputs, outputs) in enumerate(sizes, start=1):
            weight, bias = linear(inputs, outputs, generator)
            self.register_parameter(f"weight{number}", weight)
            self.register_parameter(f"bias{number}", bias)
            self._layers.append((weight, bias))

    def rows(self, encoded: Tensor) -> Tensor:
        """Encoded [B, observation_size] -> features [B, F]."""
        hidden = encoded
        for weight, bias in self._layers:
            hidden = functional.linear(hidden, weight, bias).relu_()
        return hidden

    def frozen(self) -> FeaturesOf:
        """On the CPU by numpy, whose calls take a fifth of torch's time on a few rows."""
        if self._layers[0][0].device.type != "cpu":
            return self.rows
        layers = [
            (weight.numpy(force=True).T, bias.numpy(force=True)) for weight, bias in self._layers
        ]

        def features(encoded: Tensor) -> Tensor:
            hidden = encoded.numpy()
            for weight, bias in layers:
                hidden = hidden @ weight + bias
                np.maximum(hidden, 0, out=hidden)
            return torch.from_numpy(hidden)

        return features


def linear(
    inputs: int, outputs: int, generator: torch.Generator
) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight [out, in] and bias [out], uniform in ±1/√in as `torch.nn.Linear` draws them."""
    bound = 1 / math.sqrt(inputs)
    weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(outputs).uniform_(-bound, bound, generator=generator)
    return nn.Parameter(weight), nn.Parameter(bias)
