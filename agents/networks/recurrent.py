"""The torso with a memory: an LSTM on what is seen, a number of layers after it.

For vectors policy and value have an LSTM and layers each, side by side, as rl-baselines3-zoo's tuned
settings have them (`enable_critic_lstm`); for images and small grids they share one, on what the
convolutions make of the pixels, without a layer after it, as CleanRL's ppo_atari_lstm.py does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from agents.networks import lstm
from agents.networks.torsos import Features, FeedForward, Step, Torso, TorsoState, orthogonal
from agents.spaces import Interface


class LSTMTorso(Torso):
    """K LSTMs of H units side by side, then layers of rectified units, K for each.

    eyes: the torso without a memory before it, of images; without one the numbers themselves are
    what is seen, and K is 2, else 1. State: h and c, [B, K, H] each. Initial weights are orthogonal,
    those of an LSTM gate by gate.
    """

    def __init__(
        self,
        spaces: Interface,
        eyes: FeedForward | None,
        lstm_size: int,
        hidden_sizes: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__(spaces)
        self.eyes = eyes
        self.count = 2 if eyes is None else 1
        seen = spaces.observation_size if eyes is None else eyes.features
        self.input_weight = self._gates(seen, lstm_size, generator)
        self.weight = self._gates(lstm_size, lstm_size, generator)
        self.bias = nn.Parameter(torch.zeros(self.count, 1, 4 * lstm_size))
        self.features = hidden_sizes[-1] if hidden_sizes else lstm_size
        self._layers = list[tuple[nn.Parameter, nn.Parameter]]()
        sizes = itertools.pairwise((lstm_size, *hidden_sizes))
        for number, (inputs, outputs) in enumerate(sizes, start=1):
            weight = nn.Parameter(self._side_by_side((outputs, inputs), math.sqrt(2), generator))
            bias = nn.Parameter(torch.zeros(self.count, 1, outputs))
            self.register_parameter(f"weight{number}", weight)
            self.register_parameter(f"bias{number}", bias)
            self._layers.append((weight, bias))

    def _gates(self, inputs: int, size: int, generator: torch.Generator) -> nn.Parameter:
        """[K, inputs, 4 H]."""
        gates = [self._side_by_side((size, inputs), 1.0, generator) for _ in range(4)]
        return nn.Parameter(torch.cat(gates, dim=2))

    def _side_by_side(
        self, shape: tuple[int, int], gain: float, generator: torch.Generator
    ) -> Tensor:
        """[K, in, out]."""
        weights = [orthogonal(shape, gain, generator).T for _ in range(self.count)]
        return torch.stack(weights).contiguous()

    def encode(self, observations: Tensor) -> Tensor:
        """As the eyes' `encode`, if there are any."""
        return super().encode(observations) if self.eyes is None else self.eyes.encode(observations)

    def forward(
        self, encoded: Tensor, state: TorsoState, reset: Tensor
    ) -> tuple[Features, TorsoState]:
        """Encoded [T, B, ...], state, reset [T, B] -> features [T, B, F], a pair where K is 2."""
        steps, rows = reset.shape
        seen = encoded.flatten(0, 1)
        if self.eyes is not None:
            seen = _shared(self.eyes.rows(seen))
        inputs = torch.baddbmm(self.bias, seen.expand(self.count, *seen.shape), self.input_weight)
        # The batched products have the K LSTMs first, states have the rows first.
        before = [part.transpose(0, 1).contiguous() for part in state or self._nothing(rows)]
        hiddens, hidden, cell = lstm.lstm(
            inputs.view(self.count, steps, rows, -1), self.weight, before[0], before[1], ~reset
        )
        features = hiddens.flatten(1, 2)
        for weight, bias in self._layers:
            features = torch.baddbmm(bias, features, weight).relu_()
        of_each = features.view(self.count, steps, rows, -1).unbind()
        after = (hidden.detach().transpose(0, 1), cell.detach().transpose(0, 1))
        if self.count == 2:
            return (of_each[0], of_each[1]), after
        return of_each[0], after

    def _nothing(self, rows: int) -> TorsoState:
        """The state where nothing was seen, [B, K, H] each."""
        zeros = self.bias.new_zeros(rows, self.count, self.weight.shape[1])
        return zeros, zeros

    def step(self) -> Step:
        """On the CPU by numpy, whose calls take a fifth of torch's time on a few rows."""
        if self.bias.device.type != "cpu":
            return super().step()
        # `lstm.step` wants halved weights; they are halved once for all steps.
        input_weight = lstm.halved(self.input_weight.numpy(force=True))
        weight = lstm.halved(self.weight.numpy(force=True))
        bias = lstm.halved(self.bias.numpy(force=True))
        layers = [(one.numpy(force=True), other.numpy(force=True)) for one, other in self._layers]
        look = None if self.eyes is None else self.eyes.frozen()

        def step(encoded: Tensor, state: TorsoState, reset: Tensor) -> tuple[Features, TorsoState]:
            looked_at = encoded if look is None else _shared(look(encoded))
            seen = looked_at.numpy()
            hidden, cell = (
                part.numpy().transpose(1, 0, 2) for part in state or self._nothing(len(seen))
            )
            begins = reset.numpy()
            if begins.any():
                keep = ~begins[:, None]
                hidden = hidden * keep
                cell = cell * keep
            inputs = np.matmul(seen, input_weight)
            inputs += bias
            left = lstm.Step.allocate(inputs)
            lstm.step(inputs, weight, hidden, cell, left)
            features = left.hidden
            # Layers after the LSTMs, K of each side by side.
            for one, other in layers:
                features = np.maximum(np.matmul(features, one) + other, 0)
            of_each = [torch.from_numpy(one) for one in features]
            after = (
                torch.from_numpy(left.hidden.transpose(1, 0, 2)),
                torch.from_numpy(left.cell.transpose(1, 0, 2)),
            )
            if self.count == 2:
                return (of_each[0], of_each[1]), after
            return of_each[0], after

        return step


def _shared(features: Features) -> Tensor:
    """The features of eyes that policy and value share."""
    return features[0] if isinstance(features, tuple) else features
