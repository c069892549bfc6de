"""The networks: towers of tanh layers for vectors, the Nature CNN for images, a smaller one for
small images.

All answer `network(encoded) -> (policy [B, P], value [B])`, where `encoded` is what `encode` made
of observations, once, when they came from the environment; rollouts store that. P: logits of
discrete actions, or means and log standard deviations of continuous ones. Initial weights are
orthogonal, √2 in hidden layers, 0.01 for the policy, 1 for the value.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.environments.spaces import Interface
from agents.networks.network import Backward, Forward, Network, orthogonal

BLOCK = 2
"""The side of the blocks that space-to-depth folds into channels: half the first convolution's
stride."""


class MLP(Network):
    """Separate towers for policy and value, computed side by side as one batched product: half the
    calls of two MLPs.

    On small networks the calls cost more than the arithmetic; for the same reason the towers'
    gradient is written out.
    """

    def __init__(
        self,
        spaces: Interface,
        hidden_sizes: Sequence[int],
        log_std_init: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__(spaces, log_std_init)
        sizes = (spaces.observation_size, *hidden_sizes)
        self._layers = list[tuple[nn.Parameter, nn.Parameter]]()
        for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes), start=1):
            weight, bias = (
                nn.Parameter(_two_towers(inputs, outputs, generator)),
                nn.Parameter(torch.zeros(2, 1, outputs)),
            )
            self.register_parameter(f"weight{number}", weight)
            self.register_parameter(f"bias{number}", bias)
            self._layers.append((weight, bias))
        self.policy_weight = nn.Parameter(
            orthogonal((spaces.policy_outputs, sizes[-1]), 0.01, generator).T.contiguous()
        )
        self.policy_bias = nn.Parameter(torch.zeros(spaces.policy_outputs))
        self.value_weight = nn.Parameter(orthogonal((1, sizes[-1]), 1.0, generator).T.contiguous())
        self.value_bias = nn.Parameter(torch.zeros(1))

    def encode(self, observations: Tensor) -> Tensor:
        """[N, ...] -> [N, observation_size], float32."""
        return observations.reshape(-1, self.spaces.observation_size).to(torch.float32)

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded [B, observation_size] -> policy [B, P], value [B]."""
        return self._heads(self._towers(encoded)[-1])

    def differentiate(self, encoded: Tensor) -> tuple[Tensor, Tensor, Backward]:
        """The chain rule by hand, with d tanh(x) = 1 − tanh(x)²."""
        outputs = self._towers(encoded)

        def backward(by_policy: Tensor, by_value: Tensor) -> None:
            if self.log_std is not None:
                by_policy, by_log_std = by_policy.chunk(2, dim=1)
                torch.sum(by_log_std, 0, out=self.log_std.grad)
            gradient = torch.empty_like(outputs[-1])
            heads = (
                (self.policy_weight, self.policy_bias, by_policy),
                (self.value_weight, self.value_bias, by_value.unsqueeze(1)),
            )
            for tower, (weight, bias, by_output) in enumerate(heads):
                torch.mm(outputs[-1][tower].T, by_output, out=weight.grad)
                torch.sum(by_output, 0, out=bias.grad)
                torch.mm(by_output, weight.T, out=gradient[tower])
            for number in range(len(self._layers) - 1, -1, -1):
                (weight, bias), output = self._layers[number], outputs[number + 1]
                gradient.addcmul_(gradient * output, output, value=-1)
                torch.bmm(outputs[number].transpose(1, 2), gradient, out=weight.grad)
                torch.sum(gradient, 1, keepdim=True, out=bias.grad)
                if number > 0:
                    gradient = torch.bmm(gradient, weight.transpose(1, 2))

        return *self._heads(outputs[-1]), backward

    def _towers(self, encoded: Tensor) -> list[Tensor]:
        """What enters and what leaves every layer of both towers, [2, B, units].

        tanh(x) = 2 σ(2x) − 1: three times as fast as torch's tanh (measured on AVX2), to 1e-7;
        baddbmm doubles x for nothing.
        """
        outputs = [encoded.expand(2, *encoded.shape)]
        for weight, bias in self._layers:
            outputs.append(
                torch.baddbmm(bias, outputs[-1], weight, beta=2, alpha=2).sigmoid_().mul(2).sub_(1)
            )
        return outputs

    def _heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.addmm(self.value_bias, hidden[1], self.value_weight)
        return self.policy(
            torch.addmm(self.policy_bias, hidden[0], self.policy_weight)
        ), value.squeeze(1)


class NatureCNN(Network):
    """Mnih et al. 2015: convolutions 32 x 8/4, 64 x 4/2, 64 x 3/1, then 512 units shared by policy
    and value.

    Observations are stored as space-to-depth, uint8 [N, H/2, W/2, 4 C]: 2 x 2 blocks of pixels
    become channels, so that the first convolution (8 x 8, stride 4, C channels) is exactly a 4 x 4
    one of stride 2 over 4 C channels. Measured (AVX2, one thread, 256 x 4 channels): its forward
    pass 21 ms and its weights' gradient 32 ms; as the plain convolution, channels-last, 27 and 31;
    over 4 x 4 blocks 20 and 42. Everything is channels-last, and the pixels' 1/255 is folded into
    the first weights instead of touching every pixel.
    """

    def __init__(
        self, spaces: Interface, log_std_init: float, precision: str, generator: torch.Generator
    ) -> None:
        super().__init__(spaces, log_std_init)
        self.precision = precision
        channels, height, width = spaces.observation_shape
        first = (32, BLOCK * BLOCK * channels, 8 // BLOCK, 8 // BLOCK)
        self.weight1, self.bias1 = _convolution(first, generator), nn.Parameter(torch.zeros(32))
        self.weight2, self.bias2 = (
            _convolution((64, 32, 4, 4), generator),
            nn.Parameter(torch.zeros(64)),
        )
        self.weight3, self.bias3 = (
            _convolution((64, 64, 3, 3), generator),
            nn.Parameter(torch.zeros(64)),
        )
        units = 64 * math.prod((((size - 8) // 4 + 1 - 4) // 2 + 1) - 2 for size in (height, width))
        self.weight4 = nn.Parameter(orthogonal((512, units), math.sqrt(2), generator))
        self.bias4 = nn.Parameter(torch.zeros(512))
        self.policy_weight = nn.Parameter(orthogonal((spaces.policy_outputs, 512), 0.01, generator))
        self.policy_bias = nn.Parameter(torch.zeros(spaces.policy_outputs))
        self.value_weight = nn.Parameter(orthogonal((1, 512), 1.0, generator))
        self.value_bias = nn.Parameter(torch.zeros(1))

    def encode(self, observations: Tensor) -> Tensor:
        """uint8 [N, C, H, W], or [N, H, W, C] as the environment gives it -> uint8 [N, H//2, W//2,
        4 C].

        A last odd row or column is one that the strided convolution never reads either.
        """
        return space_to_depth(
            observations.permute(0, 3, 1, 2) if self.spaces.channels_last else observations
        )

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """encoded, uint8 [B, H/2, W/2, 4 C] -> policy [B, P], value [B]."""
        return self._forward(self._layers(), encoded)

    def frozen(self) -> Forward:
        """The weights are cast to bf16 once: per call it costs as much as everything else for 4
        rows (1.14 ms against 0.62).
        """
        with torch.inference_mode():
            return functools.partial(self._forward, self._layers())

    def _layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of the convolutions and the hidden layer, as they are computed
        with.
        """
        weights = (self.weight1 * (1 / 255), self.weight2, self.weight3, self.weight4)
        biases = (self.bias1, self.bias2, self.bias3, self.bias4)
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        return [
            (weight.to(dtype), bias.to(dtype)) for weight, bias in zip(weights, biases, strict=True)
        ]

    def _forward(
        self, layers: list[tuple[Tensor, Tensor]], encoded: Tensor
    ) -> tuple[Tensor, Tensor]:
        first, second, third, last = layers
        pixels = encoded.permute(0, 3, 1, 2).to(first[0].dtype)
        hidden = functional.conv2d(pixels, *first, stride=4 // BLOCK).relu_()
        hidden = functional.conv2d(hidden, *second, stride=2).relu_()
        hidden = functional.conv2d(hidden, *third).relu_()
        hidden = functional.linear(hidden.permute(0, 2, 3, 1).flatten(1), *last).relu_().float()
        value = functional.linear(hidden, self.value_weight, self.value_bias)
        return self.policy(
            functional.linear(hidden, self.policy_weight, self.policy_bias)
        ), value.squeeze(1)


class SmallCNN(Network):
    """For images that are too small for the Nature CNN (MinAtar's 10 x 10, MiniGrid's 7 x 7):
    convolutions 16 x 3/1 and 32 x 3/2, padded by one pixel, then 256 units shared by policy and
    value.

    Its pixels are numbers like those of a vector, normalised by the same statistics: what a small
    grid holds is more often a kind of thing than a brightness.
    """

    def __init__(self, spaces: Interface, log_std_init: float, generator: torch.Generator) -> None:
        super().__init__(spaces, log_std_init)
        channels, height, width = spaces.observation_shape
        units = 32 * -(-height // 2) * -(-width // 2)
        self.weight1 = nn.Parameter(orthogonal((16, channels, 3, 3), math.sqrt(2), generator))
        self.bias1 = nn.Parameter(torch.zeros(16))
        self.weight2 = nn.Parameter(orthogonal((32, 16, 3, 3), math.sqrt(2), generator))
        self.bias2 = nn.Parameter(torch.zeros(32))
        self.weight3 = nn.Parameter(orthogonal((256, units), math.sqrt(2), generator))
        self.bias3 = nn.Parameter(torch.zeros(256))
        self.policy_weight = nn.Parameter(orthogonal((spaces.policy_outputs, 256), 0.01, generator))
        self.policy_bias = nn.Parameter(torch.zeros(spaces.policy_outputs))
        self.value_weight = nn.Parameter(orthogonal((1, 256), 1.0, generator))
        self.value_bias = nn.Parameter(torch.zeros(1))

    def encode(self, observations: Tensor) -> Tensor:
        """[N, C, H, W], or [N, H, W, C] as the environment gives it -> [N, C, H, W], float32."""
        last = self.spaces.channels_last
        images = observations.permute(0, 3, 1, 2) if last else observations
        return images.to(torch.float32).contiguous()

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded [B, C, H, W] -> policy [B, P], value [B]."""
        hidden = functional.conv2d(encoded, self.weight1, self.bias1, padding=1).relu()
        hidden = functional.conv2d(hidden, self.weight2, self.bias2, stride=2, padding=1).relu()
        hidden = functional.linear(hidden.flatten(1), self.weight3, self.bias3).relu()
        value = functional.linear(hidden, self.value_weight, self.value_bias)
        output = functional.linear(hidden, self.policy_weight, self.policy_bias)
        return self.policy(output), value.squeeze(1)


def space_to_depth(images: Tensor) -> Tensor:
    """uint8 [N, C, H, W] on the CPU -> [N, H//2, W//2, 4 C]; the new channel is 4 c + 2 y + x
    within the block.

    Two neighbouring bytes travel as one 16-bit word, plane by plane: five times as fast as one
    permutation by torch.
    """
    count, channels, height, width = images.shape
    rows, columns = height // BLOCK, width // BLOCK
    pixels = images[:, :, : rows * BLOCK, : columns * BLOCK].contiguous().numpy()
    words = pixels.view(np.int16).reshape(count, channels, rows, BLOCK, columns)
    blocks = np.empty((count, rows, columns, channels, BLOCK), np.int16)
    for channel, row in itertools.product(range(channels), range(BLOCK)):
        blocks[:, :, :, channel, row] = words[:, channel, :, row]
    return torch.from_numpy(blocks.view(np.uint8).reshape(count, rows, columns, -1))


def _two_towers(inputs: int, outputs: int, generator: torch.Generator) -> Tensor:
    return torch.stack(
        [orthogonal((outputs, inputs), math.sqrt(2), generator).T for _ in range(2)]
    ).contiguous()


def _convolution(shape: tuple[int, ...], generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(
        orthogonal(shape, math.sqrt(2), generator).to(memory_format=torch.channels_last)
    )
