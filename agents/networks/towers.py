"""The torso for vectors: separate towers of tanh layers for policy and value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from agents.networks.torsos import FeaturesOf, FeedForward, orthogonal
from agents.spaces import Interface


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
            # Orthogonal weights with gain √2 for hidden layers, as CleanRL and openai/baselines
            # have them.
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
        if self._layers[0][0].device.type != "cpu":
            return self.rows
        both = self._frozen(slice(None))

        def features(encoded: Tensor) -> tuple[Tensor, Tensor]:
            of_policy, of_value = both(encoded.numpy())
            return torch.from_numpy(of_policy), torch.from_numpy(of_value)

        return features

    def frozen_for_policy(self) -> FeaturesOf:
        """As `frozen`, for the policy's tower only."""
        one = self.by_numpy()
        if one is None:
            return super().frozen_for_policy()
        return lambda encoded: torch.from_numpy(one(encoded.numpy()))

    def by_numpy(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """The policy's tower."""
        if self._layers[0][0].device.type != "cpu":
            return None
        return self._frozen(0)

    def _frozen(self, towers: int | slice) -> Callable[[np.ndarray], np.ndarray]:
        layers = [
            (weight.numpy(force=True)[towers], bias.numpy(force=True)[towers])
            for weight, bias in self._layers
        ]

        def features(hidden: np.ndarray) -> np.ndarray:
            for weight, bias in layers:
                hidden = np.matmul(hidden, weight)
                hidden += bias
                np.tanh(hidden, out=hidden)
            return hidden

        return features
