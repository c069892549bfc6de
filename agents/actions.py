"""Choosing actions and their log-probabilities, as plain arithmetic on the policy head's output
[..., P].

Noise is drawn for a whole rollout at once, so that choosing is one addition and one comparison per
step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from agents.environments.spaces import Interface


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
        """Policy [B, P], actions [B] or [B, A] -> log π(a), [B]."""

    def evaluate(self, policy: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Gradient]:
        """Policy [B, P], actions [B] or [B, A] -> log π(a) [B], entropies H [B] in nats, and the
        gradient of both.
        """


Gradient = Callable[[Tensor, float], Tensor]
"""(∂L/∂log π(a) [B], ∂L/∂H, the same for all rows) -> ∂L/∂policy [B, P]."""


FORBIDDEN = -1e9
"""A logit whose probability is exactly 0, also in bf16, and finite: 0 · log 0 would be NaN."""


def masked(policy: Tensor, masks: Tensor | None) -> Tensor:
    """The logits [..., P] with those that a mask, bool [..., P], does not allow at `FORBIDDEN`:
    never drawn, no part of the entropy, and without a gradient.
    """
    return policy if masks is None else torch.where(masks, policy, FORBIDDEN)


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
        """Log softmax(logits)[a]."""
        return policy.log_softmax(dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def evaluate(self, policy: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Gradient]:
        """∂log π(a)/∂logits = onehot(a) − p;  H = −Σ p log p, ∂H/∂logits = −p (log p + H)."""
        column = actions.unsqueeze(-1)
        logarithms = policy.log_softmax(dim=-1)
        probabilities = logarithms.exp()
        entropy = -(probabilities * logarithms).sum(dim=-1)

        def gradient(by_log_probability: Tensor, by_entropy: float) -> Tensor:
            weight = by_log_probability.unsqueeze(-1)
            both = (
                weight + by_entropy * (logarithms + entropy.unsqueeze(-1)) if by_entropy else weight
            )
            return (both * probabilities).neg_().scatter_add_(-1, column, weight)

        return logarithms.gather(-1, column).squeeze(-1), entropy, gradient


class MultiDiscreteActions:
    """Independent categorical distributions of A components; P = Σ choices logits, those of one
    component after the other's.

    They are computed side by side as [..., A, K], K the most choices of any component; where one
    has fewer, its logits are `FORBIDDEN`.
    """

    def __init__(self, choices: Sequence[int]) -> None:
        self.parameters, self._each = sum(choices), DiscreteActions(max(choices))
        logits, most = iter(range(self.parameters)), max(choices)
        # A component's missing logits are the one behind all others, which `_components` adds.
        self._columns = torch.tensor(
            [[next(logits) for _ in range(n)] + [self.parameters] * (most - n) for n in choices]
        )
        self._places = torch.flatten(self._columns < self.parameters).nonzero().squeeze(1)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Gumbel noise for every logit."""
        return DiscreteActions(self.parameters).noise(shape, generator)

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Gumbel-max in every component."""
        return self.mode(policy + noise)

    def mode(self, policy: Tensor) -> Tensor:
        """The largest logit of every component."""
        return self._components(policy).argmax(dim=-1)

    def log_probability(self, policy: Tensor, actions: Tensor) -> Tensor:
        """Σ over components."""
        return self._each.log_probability(self._components(policy), actions).sum(dim=-1)

    def evaluate(self, policy: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Gradient]:
        """Log π and H are sums over components, so that each has its own gradient."""
        each = self._each.evaluate(self._components(policy), actions)
        log_probabilities, entropies, gradients = each

        def gradient(by_log_probability: Tensor, by_entropy: float) -> Tensor:
            weights = by_log_probability.unsqueeze(-1).expand_as(log_probabilities)
            return gradients(weights, by_entropy).flatten(1)[:, self._places]

        return log_probabilities.sum(dim=-1), entropies.sum(dim=-1), gradient

    def _components(self, policy: Tensor) -> Tensor:
        """[..., P] -> [..., A, K]."""
        return functional.pad(policy, (0, 1), value=FORBIDDEN)[..., self._columns]


class ContinuousActions:
    """Independent normal distributions of A components; P = 2 A: means μ, then log standard
    deviations log σ.

    Actions are learnt unclipped; the environment clips what it gets
    (`Interface.environment_actions`).
    """

    def __init__(self, count: int) -> None:
        self.parameters, self._count = 2 * count, count

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal noise."""
        return torch.empty(*shape, self._count).normal_(generator=generator)

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """μ + σ · noise."""
        mean, log_std = policy.chunk(2, dim=-1)
        return mean + log_std.exp() * noise

    def mode(self, policy: Tensor) -> Tensor:
        """The mean."""
        return policy[..., : self._count]

    def log_probability(self, policy: Tensor, actions: Tensor) -> Tensor:
        """Σ over components of −½ z² − log σ − ½ log 2π, with z = (a − μ)/σ."""
        mean, log_std = policy.chunk(2, dim=-1)
        deviations = (actions - mean) * (-log_std).exp()
        return (
            -(0.5 * deviations.square() + log_std).sum(dim=-1)
            - 0.5 * math.log(2 * math.pi) * self._count
        )

    def evaluate(self, policy: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Gradient]:
        """∂log π/∂μ = z/σ, ∂log π/∂log σ = z² − 1;  H = Σ (log σ + ½ log 2πe), ∂H/∂log σ = 1."""
        mean, log_std = policy.chunk(2, dim=-1)
        precision = (-log_std).exp()
        deviations = (actions - mean) * precision
        entropy = log_std.sum(dim=-1) + 0.5 * math.log(2 * math.pi * math.e) * self._count

        def gradient(by_log_probability: Tensor, by_entropy: float) -> Tensor:
            weight = by_log_probability.unsqueeze(-1)
            return torch.cat(
                (weight * deviations * precision, weight * (deviations.square() - 1) + by_entropy),
                dim=-1,
            )

        return self.log_probability(policy, actions), entropy, gradient


def make_actions(spaces: Interface) -> Actions:
    """The kind that these spaces need."""
    if spaces.choices:
        return MultiDiscreteActions(spaces.choices)
    return DiscreteActions(spaces.actions) if spaces.discrete else ContinuousActions(spaces.actions)
