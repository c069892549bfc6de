"""Choosing actions and their log-probabilities, as plain arithmetic on the policy head's output [..., P].

Noise is drawn for a whole rollout at once, so that choosing is one addition and one comparison per step.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from agents.spaces import Interface


class Actions(Protocol):
    """One kind of actions."""

    parameters: int
    """P: numbers in the policy head's output for one observation."""

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """[*shape, A] of standard noise on the CPU."""

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Policy [N, P], noise [N, A] -> sampled actions, [N] or [N, A]."""

    def mode(self, policy: Tensor) -> Tensor:
        """Policy [N, P] -> the most probable actions, [N] or [N, A]."""

    def log_probability(self, policy: Tensor, actions: Tensor) -> Tensor:
        """Policy [B, P], actions [B] or [B, A] -> [B]."""

    def log_probability_and_entropy(self, policy: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Policy [B, P], actions [B] or [B, A] -> [B] and [B], in nats."""


class DiscreteActions:
    """A categorical distribution over A actions; P = A logits."""

    def __init__(self, count: int) -> None:
        self.parameters = self._count = count

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Gumbel noise: −log of exponential noise."""
        return torch.empty(*shape, self._count).exponential_(generator=generator).log_().neg_()

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Gumbel-max: argmax(logits + noise) is distributed as softmax(logits)."""
        return (policy + noise).argmax(dim=-1)

    def mode(self, policy: Tensor) -> Tensor:
        """The largest logit."""
        return policy.argmax(dim=-1)

    def log_probability(self, policy: Tensor, actions: Tensor) -> Tensor:
        """Log softmax(logits)[action]."""
        return policy.log_softmax(dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def log_probability_and_entropy(self, policy: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log softmax(logits)[action] and −Σ p log p."""
        logarithms = policy.log_softmax(dim=-1)
        log_probability = logarithms.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        return log_probability, -(logarithms.exp() * logarithms).sum(dim=-1)


class ContinuousActions:
    """Independent normal distributions of A components; P = 2 A: means, then log standard deviations.

    Actions are learnt unclipped; the environment clips what it gets (`Interface.environment_actions`).
    """

    def __init__(self, count: int) -> None:
        self.parameters, self._count = 2 * count, count

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal noise."""
        return torch.empty(*shape, self._count).normal_(generator=generator)

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Mean + deviation · noise."""
        mean, log_std = policy.chunk(2, dim=-1)
        return mean + log_std.exp() * noise

    def mode(self, policy: Tensor) -> Tensor:
        """The mean."""
        return policy[..., : self._count]

    def log_probability(self, policy: Tensor, actions: Tensor) -> Tensor:
        """Σ of the components' log densities."""
        mean, log_std = policy.chunk(2, dim=-1)
        deviations = (actions - mean) * (-log_std).exp()
        return -(0.5 * deviations.square() + log_std).sum(dim=-1) - 0.5 * math.log(2 * math.pi) * self._count

    def log_probability_and_entropy(self, policy: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Σ of the components' log densities, and Σ (log deviation + ½ log 2πe)."""
        entropy = policy[..., self._count :].sum(dim=-1) + 0.5 * math.log(2 * math.pi * math.e) * self._count
        return self.log_probability(policy, actions), entropy


def make_actions(spaces: Interface) -> Actions:
    """The kind that these spaces need."""
    return DiscreteActions(spaces.actions) if spaces.discrete else ContinuousActions(spaces.actions)
