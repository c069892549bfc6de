"""What self-play asks of a network: policy and value of a board's planes. The heads on a person's own
torso; `agents.networks.board_games` has ours.
"""

from __future__ import annotations

import copy
import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as multiplied
from torch.nn.utils.fusion import fuse_conv_bn_eval

from agents.devices import on_device
from agents.games.rules import Booleans, Floats, Game
from agents.networks.own import make_torso
from agents.networks.torsos import linear
from agents.search.evaluator import Evaluate


class BoardNetwork(nn.Module):
    """`network(encoded [B, C, H, W]) -> (logits [B, A], values [B])`, values in -1 … 1 for the
    mover.
    """

    def frozen(self) -> Self:
        """A copy for inference, which later updates do not change."""
        return copy.deepcopy(self).eval().requires_grad_(False)


class OwnHeads(BoardNetwork):
    """A layer for the policy and one for the value, on a person's torso; all weights drawn from
    `generator` alone. Raises `BadInput` for a torso that breaks its promises.
    """

    def __init__(self, path: str, game: Game, generator: torch.Generator) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            # A person's torso draws its weights from torch's global generator, which is put back
            # afterwards.
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            made = make_torso(path, game.planes, may_remember=False)
        self.torso = made.torso
        self.policy_weight, self.policy_bias = linear(made.features, game.actions, generator)
        self.value_weight, self.value_bias = linear(made.features, 1, generator)

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """See `BoardNetwork`."""
        # A torso's contract is about sequences: these rows are one step of as many sequences.
        reset = torch.zeros(1, len(encoded), dtype=torch.bool, device=encoded.device)
        features: Tensor = self.torso(encoded[None], (), reset)[0][0]
        values = multiplied(features, self.value_weight, self.value_bias)
        return multiplied(features, self.policy_weight, self.policy_bias), values.tanh().squeeze(1)


def evaluator(network: BoardNetwork) -> Evaluate:
    """A copy of the network as the search asks it, on its device; later updates do not change it."""
    frozen = network.frozen()
    device = next(frozen.parameters()).device

    def evaluate(encoded: Floats, legal: Booleans) -> tuple[Floats, Floats]:
        with torch.inference_mode():
            planes = on_device(torch.from_numpy(encoded), device)
            logits, values = frozen(planes.contiguous(memory_format=torch.channels_last))
        return logits.cpu().numpy(), values.cpu().numpy()

    return evaluate


POLICY_PLANES = 2
VALUE_PLANES = 1
VALUE_UNITS = 256
"""Sizes of the heads, as published."""


class Normalised(nn.Module):
    """A convolution that keeps the board's size, and batch normalisation."""

    def __init__(self, inputs: int, outputs: int, size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
        # He et al. 2015: a rectifier halves the variance, which the factor 2 makes up for.
        deviation = math.sqrt(2 / (inputs * size * size))
        nn.init.normal_(self.convolution.weight, std=deviation, generator=generator)
        self.normalisation: nn.Module = nn.BatchNorm2d(outputs)

    def forward(self, planes: Tensor) -> Tensor:
        """[B, inputs, H, W] -> [B, outputs, H, W]."""
        normalised: Tensor = self.normalisation(self.convolution(planes))
        return normalised

    def fold(self) -> None:
        """Make the statistics a part of the convolution: for inference only."""
        if isinstance(self.normalisation, nn.BatchNorm2d):
            self.convolution = fuse_conv_bn_eval(self.convolution, self.normalisation)
            self.normalisation = nn.Identity()


class Block(nn.Module):
    """Two convolutions, and what came in added before the last rectifier."""

    def __init__(self, channels: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = Normalised(channels, channels, 3, generator)
        self.second = Normalised(channels, channels, 3, generator)

    def forward(self, planes: Tensor) -> Tensor:
        """[B, channels, H, W], as it comes out."""
        added: Tensor = planes + self.second(self.first(planes).relu())
        return added.relu()


class ResidualTower(BoardNetwork):
    """`network(encoded [B, C, H, W]) -> (logits [B, A], values [B])`, its weights drawn from
    `generator` alone.
    """

    def __init__(
        self,
        planes: tuple[int, int, int],
        actions: int,
        *,
        blocks: int,
        channels: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        cells = planes[1] * planes[2]
        self.stem = Normalised(planes[0], channels, 3, generator)
        self.tower = nn.Sequential(*(Block(channels, generator) for _ in range(blocks)))
        self.policy = Normalised(channels, POLICY_PLANES, 1, generator)
        self.policy_weight, self.policy_bias = linear(POLICY_PLANES * cells, actions, generator)
        self.value = Normalised(channels, VALUE_PLANES, 1, generator)
        self.hidden_weight, self.hidden_bias = linear(VALUE_PLANES * cells, VALUE_UNITS, generator)
        self.value_weight, self.value_bias = linear(VALUE_UNITS, 1, generator)

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Values in -1 … 1, for the mover."""
        features = self.tower(self.stem(encoded).relu())
        policy = self.policy(features).relu().flatten(1)
        logits = nn.functional.linear(policy, self.policy_weight, self.policy_bias)
        value = self.value(features).relu().flatten(1)
        hidden = nn.functional.linear(value, self.hidden_weight, self.hidden_bias).relu()
        values = nn.functional.linear(hidden, self.value_weight, self.value_bias)
        return logits, values.tanh().squeeze(1)

    def frozen(self) -> Self:
        """As of a `BoardNetwork`, with the running statistics folded into the convolutions, whose
        pixels lie channels-last.
        """
        # Running statistics are constants in inference, so batch normalisation is a scale and a
        # shift of the convolution's output.
        made = super().frozen()
        for module in made.modules():
            if isinstance(module, Normalised):
                module.fold()
        return made.to(memory_format=torch.channels_last)
