"""What the project's own torsos share: features of observations, without a memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from agents.environments.spaces import Interface

Features = Tensor | tuple[Tensor, Tensor]
"""Float32 [..., F]; or a pair, for the policy and for the value."""
FeaturesOf = Callable[[Tensor], Features]


class FeedForward(nn.Module):
    """A torso whose rows are independent of each other, in batches as in time.

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
        """Observations [N, ...] as the environment gives them -> [N, ...] as rollouts store
        them.
        """
        raise NotImplementedError

    def rows(self, encoded: Tensor) -> Features:
        """Encoded [B, ...] -> features [B, F]."""
        raise NotImplementedError

    def frozen(self) -> FeaturesOf:
        """`rows` for a rollout's many small batches: in `torch.inference_mode`, and before the next
        update.
        """
        return self.rows


def orthogonal(shape: tuple[int, ...], gain: float, generator: torch.Generator) -> Tensor:
    """Weights [out, in, ...] with orthogonal rows, scaled by `gain`."""
    return nn.init.orthogonal_(torch.empty(shape), gain, generator=generator)


def planes(observations: Tensor, spaces: Interface) -> Tensor:
    """Images [N, C, H, W], wherever the environment puts the channels."""
    return observations.permute(0, 3, 1, 2) if spaces.channels_last else observations
