"""Policy and value of observations: two linear heads on a torso, as PPO and its kin learn them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.environments.spaces import Interface
from agents.networks.torsos import Features, FeedForward, orthogonal

Forward = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Encoded [B, ...] -> policy [B, P], value [B]."""


class ActorCritic(nn.Module):
    """`network(encoded) -> (policy [B, P], value [B])`.

    encoded: what `encode` made of observations, once, when they came from the environment; rollouts
    store that. P: logits of discrete actions, or means and log standard deviations of continuous
    ones, the latter the same for every observation. Initial weights of the heads are orthogonal,
    scaled by 0.01 for the policy and 1 for the value.
    """

    def __init__(
        self,
        spaces: Interface,
        torso: FeedForward,
        log_std_init: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.spaces, self.torso = spaces, torso
        outputs, features = spaces.policy_outputs, torso.features
        self.policy_weight = nn.Parameter(orthogonal((outputs, features), 0.01, generator))
        self.policy_bias = nn.Parameter(torch.zeros(outputs))
        self.value_weight = nn.Parameter(orthogonal((1, features), 1.0, generator)[0])
        self.value_bias = nn.Parameter(torch.zeros(1))
        self.log_std = (
            nn.Parameter(torch.full((spaces.actions,), log_std_init)) if spaces.continuous else None
        )

    @property
    def is_small(self) -> bool:
        """Whether it is one of our own, on the CPU, whose calls cost more than the arithmetic."""
        return self.torso.small and self.policy_weight.device.type == "cpu"

    def encode(self, observations: Tensor) -> Tensor:
        """Observations [N, ...] as the environment gives them -> [N, ...] as rollouts store
        them.
        """
        return self.torso.encode(observations)

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded [B, ...] -> policy [B, P], value [B]."""
        return self._heads(self.torso.rows(encoded))

    def frozen(self) -> Forward:
        """`forward` for a rollout's many small batches: to be called in `torch.inference_mode`, and
        before the next update. On the CPU by numpy, whose calls take a fifth of torch's time on a
        few rows.
        """
        features_of = self.torso.frozen()
        if self.policy_weight.is_cuda:
            return lambda encoded: self._heads(features_of(encoded))
        policy_weight, policy_bias, value_weight, value_bias = (
            parameter.numpy(force=True)
            for parameter in (
                self.policy_weight, self.policy_bias, self.value_weight, self.value_bias,
            )
        )  # fmt: skip

        def forward(encoded: Tensor) -> tuple[Tensor, Tensor]:
            of_policy, of_value = _pair(features_of(encoded))
            output = torch.from_numpy(of_policy.numpy() @ policy_weight.T + policy_bias)
            value = torch.from_numpy(of_value.numpy() @ value_weight + value_bias)
            return self._with_deviations(output), value

        return forward

    def _heads(self, features: Features) -> tuple[Tensor, Tensor]:
        of_policy, of_value = _pair(features)
        output = functional.linear(of_policy, self.policy_weight, self.policy_bias)
        value = torch.addmv(self.value_bias, of_value, self.value_weight)
        return self._with_deviations(output), value

    def _with_deviations(self, output: Tensor) -> Tensor:
        """The policy head's output [B, A] -> [B, P]."""
        if self.log_std is None:
            return output
        return torch.cat((output, self.log_std.expand_as(output)), dim=1)


def _pair(features: Features) -> tuple[Tensor, Tensor]:
    return features if isinstance(features, tuple) else (features, features)
