"""The contract of torsos, which make features of observations, and what those without a memory
share.

    forward(encoded, state, reset) -> (features, state)

Time first: encoded [T, B, ...] as `encode` made it, features [T, B, F]. state: what is remembered
before the first row, () where nothing was ever seen, and what is after the last one; reset bool
[T, B]: whether row t begins an episode, which clears the state before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.spaces import Interface

Features = Tensor | tuple[Tensor, Tensor]
"""Float32 [..., F]; or a pair, for the policy and for the value."""
FeaturesOf = Callable[[Tensor], Features]
TorsoState = tuple[Tensor, ...]
"""The recurrent state of B rows, float32 [B, ...] each; () without a memory."""
Step = Callable[[Tensor, TorsoState, Tensor], tuple[Features, TorsoState]]
"""`Torso.forward` for T = 1, without that dimension: encoded [B, ...], state, reset [B] -> features
[B, F], state."""


class Torso(nn.Module):
    """Features of observations; a row's depend on no other row of the batch.

    features: F. precision: with "bf16" a network for images computes in that, while its weights
    stay in fp32; the others know fp32 only. small: to call its operations costs more than their arithmetic,
    and they are the same for all numbers.
    """

    features: int
    precision = "fp32"
    small = False

    def __init__(self, spaces: Interface) -> None:
        super().__init__()
        self.spaces = spaces

    def encode(self, observations: Tensor) -> Tensor:
        """Observations [N, ...] as the environment gives them -> [N, ...] as rollouts store them:
        [N, observation_size], float32, where a torso for images has nothing else to say. Both are on
        the CPU, wherever the network is.
        """
        return observations.reshape(-1, self.spaces.observation_size).to(torch.float32)

    def forward(
        self, encoded: Tensor, state: TorsoState, reset: Tensor
    ) -> tuple[Features, TorsoState]:
        """The contract of this module."""
        raise NotImplementedError

    def step(self) -> Step:
        """`forward` for a rollout's many single steps: in `torch.inference_mode`, and before the
        next update.
        """

        def step(encoded: Tensor, state: TorsoState, reset: Tensor) -> tuple[Features, TorsoState]:
            features, after = self.forward(encoded[None], state, reset[None])
            return each(lambda one: one[0], features), after

        return step

    def first_state(self, encoded: Tensor) -> TorsoState:
        """The state before the first observation, for these rows [N, ...]: zeros [N, ...] each."""
        reset = torch.ones(len(encoded), dtype=torch.bool, device=encoded.device)
        # One step is tried to see which parts the state has, and of which shapes.
        with torch.inference_mode():
            after = self.step()(encoded, (), reset)[1]
        return tuple(torch.zeros(part.shape, device=encoded.device) for part in after)


class FeedForward(Torso):
    """A torso without a memory: its rows are independent of each other in time, too."""

    def forward(
        self, encoded: Tensor, state: TorsoState, reset: Tensor
    ) -> tuple[Features, TorsoState]:
        """Every row by itself."""
        features = self.rows(encoded.flatten(0, 1))
        return each(lambda one: one.view(*encoded.shape[:2], -1), features), state

    def rows(self, encoded: Tensor) -> Features:
        """Encoded [B, ...] -> features [B, F]."""
        raise NotImplementedError

    def frozen(self) -> FeaturesOf:
        """`rows` for a rollout's many small batches: in `torch.inference_mode`, and before the next
        update.
        """
        return self.rows

    def frozen_for_policy(self) -> FeaturesOf:
        """As `frozen`, or only the policy's features if the value has others."""
        return self.frozen()

    def by_numpy(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """`frozen_for_policy` without a tensor, [B, observation_size] -> [B, F]: of small networks on the
        CPU, whose few rows each of torch's calls costs more than numpy's; None: of others.
        """
        return None


def each(change: Callable[[Tensor], Tensor], features: Features) -> Features:
    """Both of a pair, or the only ones, changed."""
    if isinstance(features, tuple):
        return change(features[0]), change(features[1])
    return change(features)


def orthogonal(shape: tuple[int, ...], gain: float, generator: torch.Generator) -> Tensor:
    """Weights [out, in, ...] with orthogonal rows, scaled by `gain`."""
    return nn.init.orthogonal_(torch.empty(shape), gain, generator=generator)


FirstWeights = Callable[[tuple[int, ...], torch.Generator], tuple[Tensor, Tensor]]
"""Draws the first weights [out, in, ...] of a layer, and its biases [out]."""


def orthogonal_layer(shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Orthogonal weights, scaled by √2, and biases of 0, as the sources of PPO have them."""
    return orthogonal(shape, math.sqrt(2), generator), torch.zeros(shape[0])


def uniform_layer(shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weights and biases uniform in ±1/√inputs, as `torch.nn.Linear` and `torch.nn.Conv2d` draw them,
    and with them the sources of DQN and SAC.
    """
    bound = 1 / math.sqrt(math.prod(shape[1:]))
    weight = torch.empty(shape).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(shape[0]).uniform_(-bound, bound, generator=generator)


def planes(observations: Tensor, spaces: Interface) -> Tensor:
    """Images [N, C, H, W], wherever the environment puts the channels."""
    return observations.permute(0, 3, 1, 2) if spaces.channels_last else observations


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
    """Weight [out, in] and bias [out] of a `uniform_layer`."""
    weight, bias = uniform_layer((outputs, inputs), generator)
    return nn.Parameter(weight), nn.Parameter(bias)
