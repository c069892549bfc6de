"""What self-play asks of a network: policy and value of a board's planes. The heads on a person's own
torso; `agents.networks.residual` has ours.
"""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as multiplied

from agents.devices import on_device
from agents.games.interfaces import Booleans, Floats, Game
from agents.networks.layers import linear
from agents.networks.own import make_torso
from agents.search.interfaces import Evaluate


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
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            made = make_torso(path, game.planes, may_remember=False)
        self.torso = made.torso
        self.policy_weight, self.policy_bias = linear(made.features, game.actions, generator)
        self.value_weight, self.value_bias = linear(made.features, 1, generator)

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """See `BoardNetwork`."""
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
