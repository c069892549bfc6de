"""What all networks share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from agents.environments.spaces import Interface

Forward = Callable[[Tensor], tuple[Tensor, Tensor]]
Backward = Callable[[Tensor, Tensor], None]


class Network(nn.Module):
    """What all networks share: the state-independent log standard deviation of continuous actions.

    precision: "bf16" changes how an image's network computes, never what it keeps; the others are
    always in fp32.
    """

    precision = "fp32"

    def __init__(self, spaces: Interface, log_std_init: float) -> None:
        super().__init__()
        self.spaces = spaces
        self.log_std = (
            nn.Parameter(torch.full((spaces.actions,), log_std_init)) if spaces.continuous else None
        )

    def encode(self, observations: Tensor) -> Tensor:
        """Observations [N, ...] as the environment gives them -> [N, ...] as rollouts store
        them.
        """
        raise NotImplementedError

    def differentiate(self, encoded: Tensor) -> tuple[Tensor, Tensor, Backward]:
        """Policy [B, P], value [B], and the backward pass: (∂L/∂policy, ∂L/∂value) -> every
        parameter's `grad`, from 0.
        """
        with torch.enable_grad():
            policy, value = self(encoded)

        def backward(by_policy: Tensor, by_value: Tensor) -> None:
            torch.autograd.backward((policy, value), (by_policy, by_value))

        return policy.detach(), value.detach(), backward

    def frozen(self) -> Forward:
        """`forward` with the weights of now, for a rollout's many small batches."""
        return self

    def policy(self, output: Tensor) -> Tensor:
        """The policy head's output [B, A] -> [B, P]."""
        return (
            output
            if self.log_std is None
            else torch.cat((output, self.log_std.expand_as(output)), dim=1)
        )


def orthogonal(shape: tuple[int, ...], gain: float, generator: torch.Generator) -> Tensor:
    """Weights [out, in, ...] with orthogonal rows, scaled by `gain`."""
    return nn.init.orthogonal_(torch.empty(shape), gain, generator=generator)
