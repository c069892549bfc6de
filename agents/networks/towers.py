"""The torso for vectors: separate towers of tanh layers for policy and value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from agents.environments.spaces import Interface
from agents.networks.torsos import FeaturesOf, FeedForward, orthogonal


class Towers(FeedForward):
    """Both towers side by side as one batched product: half the calls of two networks, which on
    small ones cost more than the arithmetic.

    weight1, weight2, … [2, in, out]; bias1, … [2, 1, out]; the policy's tower comes first.
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
            towers = [orthogonal((outputs, inputs), math.sqrt(2), generator).T for _ in range(2)]
            weight = nn.Parameter(torch.stack(towers).contiguous())
            bias = nn.Parameter(torch.zeros(2, 1, outputs))
            self.register_parameter(f"weight{number}", weight)
            self.register_parameter(f"bias{number}", bias)
            self._layers.append((weight, bias))

    def rows(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded [B, observation_size] -> the features of both towers, [B, F] each."""
        hidden = encoded.expand(2, *encoded.shape)
        for weight, bias in self._layers:
            hidden = torch.baddbmm(bias, hidden, weight).tanh_()
        of_policy, of_value = hidden.unbind()
        return of_policy, of_value

    def frozen(self) -> FeaturesOf:
        """On the CPU by numpy, whose calls take a fifth of torch's time on a few rows."""
        if self._layers[0][0].is_cuda:
            return self.rows
        layers = [
            (weight.numpy(force=True), bias.numpy(force=True)) for weight, bias in self._layers
        ]

        def features(encoded: Tensor) -> tuple[Tensor, Tensor]:
            hidden = encoded.numpy()
            for weight, bias in layers:
                hidden = np.tanh(np.matmul(hidden, weight) + bias)
            return torch.from_numpy(hidden[0]), torch.from_numpy(hidden[1])

        return features
