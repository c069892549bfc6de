"""The torsos for images: the Nature CNN, and a smaller one for small images.

first_weights, of both: how their layers begin. Those of PPO are orthogonal, those of the algorithms
that learn action values uniform, each as its sources have them.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.torsos import (
    FeaturesOf,
    FeedForward,
    FirstWeights,
    orthogonal_layer,
    planes,
)
from agents.spaces import Interface

BLOCK = 2
"""The side of the blocks that space-to-depth folds into channels: half the first convolution's
stride."""


class NatureCNN(FeedForward):
    """Mnih et al. 2015: convolutions 32 x 8/4, 64 x 4/2, 64 x 3/1, then 512 units.

    Observations are stored as space-to-depth, uint8 [N, H/2, W/2, 4 C]: 2 x 2 blocks of pixels
    become channels, so that the first convolution (8 x 8, stride 4, C channels) is exactly a 4 x 4
    one of stride 2 over 4 C channels. Measured (AVX2, one thread, 256 x 4 channels): its forward
    pass 21 ms and its weights' gradient 32 ms; as the plain convolution, channels-last, 27 and 31;
    over 4 x 4 blocks 20 and 42. Everything is channels-last, and the pixels' 1/255 is folded into
    the first weights instead of touching every pixel.
    """

    def __init__(
        self,
        spaces: Interface,
        precision: str,
        generator: torch.Generator,
        features: int = 512,
        first_weights: FirstWeights = orthogonal_layer,
    ) -> None:
        super().__init__(spaces)
        self.precision = precision
        self.features = features
        channels, height, width = spaces.observation_shape
        first = (32, BLOCK * BLOCK * channels, 8 // BLOCK, 8 // BLOCK)
        self.weight1, self.bias1 = _convolution(first, generator, first_weights)
        self.weight2, self.bias2 = _convolution((64, 32, 4, 4), generator, first_weights)
        self.weight3, self.bias3 = _convolution((64, 64, 3, 3), generator, first_weights)
        # What three convolutions without padding leave of each side: 8/4, 4/2 and 3/1.
        units = 64 * math.prod((((size - 8) // 4 + 1 - 4) // 2 + 1) - 2 for size in (height, width))
        self.weight4, self.bias4 = map(nn.Parameter, first_weights((features, units), generator))

    def encode(self, observations: Tensor) -> Tensor:
        """uint8 [N, C, H, W], or [N, H, W, C] as the environment gives it -> uint8 [N, H//2, W//2,
        4 C].

        A last odd row or column is one that the strided convolution never reads either.
        """
        return space_to_depth(planes(observations, self.spaces))

    def rows(self, encoded: Tensor) -> Tensor:
        """encoded, uint8 [B, H/2, W/2, 4 C] -> features [B, F]."""
        return _convolved(self._layers(), encoded)

    def frozen(self) -> FeaturesOf:
        """The weights are cast to bf16 once: per call it costs as much as everything else for 4
        rows (1.14 ms against 0.62).
        """
        with torch.inference_mode():
            return functools.partial(_convolved, self._layers())

    def _layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of the convolutions and the hidden layer, as they are computed
        with.
        """
        # Pixels are 0 to 255. Scaling the first weights costs less than scaling every pixel.
        weights = (self.weight1 * (1 / 255), self.weight2, self.weight3, self.weight4)
        biases = (self.bias1, self.bias2, self.bias3, self.bias4)
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        return [
            (weight.to(dtype), bias.to(dtype)) for weight, bias in zip(weights, biases, strict=True)
        ]


def _convolved(layers: list[tuple[Tensor, Tensor]], encoded: Tensor) -> Tensor:
    first, second, third, last = layers
    # Only the order of the axes changes: the memory stays channels-last, which convolutions read
    # fastest.
    pixels = encoded.permute(0, 3, 1, 2).to(first[0].dtype)
    hidden = functional.conv2d(pixels, *first, stride=4 // BLOCK).relu_()
    hidden = functional.conv2d(hidden, *second, stride=2).relu_()
    hidden = functional.conv2d(hidden, *third).relu_()
    flat = hidden.permute(0, 2, 3, 1).flatten(1)
    return functional.linear(flat, *last).relu_().float()


class SmallCNN(FeedForward):
    """For images that are too small for the Nature CNN (MinAtar's 10 x 10, MiniGrid's 7 x 7):
    convolutions 16 x 3/1 and 32 x 3/2, padded by one pixel, then 256 units.

    Its pixels are numbers like those of a vector, normalised by the same statistics: what a small
    grid holds is more often a kind of thing than a brightness.
    """

    def __init__(
        self,
        spaces: Interface,
        generator: torch.Generator,
        features: int = 256,
        first_weights: FirstWeights = orthogonal_layer,
    ) -> None:
        super().__init__(spaces)
        self.features = features
        channels, height, width = spaces.observation_shape
        # The second convolution has stride 2 and padding: half of each side, rounded up.
        units = 32 * -(-height // 2) * -(-width // 2)
        shapes = (16, channels, 3, 3), (32, 16, 3, 3), (features, units)
        layers = [map(nn.Parameter, first_weights(shape, generator)) for shape in shapes]
        (self.weight1, self.bias1), (self.weight2, self.bias2), (self.weight3, self.bias3) = layers

    def encode(self, observations: Tensor) -> Tensor:
        """[N, C, H, W], or [N, H, W, C] as the environment gives it -> [N, C, H, W], float32."""
        return planes(observations, self.spaces).to(torch.float32).contiguous()

    def rows(self, encoded: Tensor) -> Tensor:
        """Encoded [B, C, H, W] -> features [B, F]."""
        hidden = functional.conv2d(encoded, self.weight1, self.bias1, padding=1).relu()
        hidden = functional.conv2d(hidden, self.weight2, self.bias2, stride=2, padding=1).relu()
        return functional.linear(hidden.flatten(1), self.weight3, self.bias3).relu()


def space_to_depth(images: Tensor) -> Tensor:
    """uint8 [N, C, H, W] on the CPU -> [N, H//2, W//2, 4 C]; the new channel is 4 c + 2 y + x
    within the block.

    Two neighbouring bytes travel as one 16-bit word, plane by plane: five times as fast as one
    permutation by torch.
    """
    count, channels, height, width = images.shape
    rows = height // BLOCK
    columns = width // BLOCK
    pixels = images[:, :, : rows * BLOCK, : columns * BLOCK].contiguous().numpy()
    # Two neighbouring pixels of a row are one word.
    words = pixels.view(np.int16).reshape(count, channels, rows, BLOCK, columns)
    blocks = np.empty((count, rows, columns, channels, BLOCK), np.int16)
    for channel, row in itertools.product(range(channels), range(BLOCK)):
        blocks[:, :, :, channel, row] = words[:, channel, :, row]
    return torch.from_numpy(blocks.view(np.uint8).reshape(count, rows, columns, -1))


def _convolution(
    shape: tuple[int, ...], generator: torch.Generator, first_weights: FirstWeights
) -> tuple[nn.Parameter, nn.Parameter]:
    weight, bias = first_weights(shape, generator)
    return nn.Parameter(weight.to(memory_format=torch.channels_last)), nn.Parameter(bias)
