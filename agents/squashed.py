"""Actions between −1 and 1: a = tanh(u), u ~ N(μ, σ²), with the exact log-density.

Haarnoja et al. 2018 (arXiv:1812.05905), appendix C. That is the unit in which bounded actions are
learnt (`Interface.environment_actions`): the scale of the environment's range would only add a
constant, Σ log scale, to every log-density and to the target entropy alike.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agents.devices import on_device

LEAST_LOG_STD, LARGEST_LOG_STD = -20.0, 2.0
"""As in the authors' code: beyond, log σ has no effect and gets no gradient."""


class SquashedActions:
    """Independent squashed normal distributions of A components; P = 2 A: means μ, then log
    standard deviations log σ, both of u.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal noise, [*shape, A]."""
        return torch.empty(*shape, self._count).normal_(generator=generator)

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Policy [B, P], noise [B, A] -> sampled actions [B, A]: tanh(μ + σ · noise)."""
        mean, log_std = self._split(policy)
        return (mean + log_std.exp() * noise).tanh()

    def uniform(self, rows: int, generator: np.random.Generator) -> np.ndarray:
        """Actions [rows, A], float32, each as likely as any other: before anything is learnt."""
        return generator.uniform(-1, 1, (rows, self._count)).astype(np.float32)

    def drawn(self, policy: Tensor, generator: np.random.Generator) -> np.ndarray:
        """Policy [B, P] -> sampled actions [B, A], float32, by noise of this generator."""
        noise = generator.standard_normal((len(policy), self._count), np.float32)
        return self.choose(policy, on_device(torch.from_numpy(noise), policy.device)).numpy(
            force=True
        )

    def mode(self, policy: Tensor) -> Tensor:
        """Policy [B, P] -> tanh(μ), [B, A]: the median, which the field calls deterministic."""
        return policy[..., : self._count].tanh()

    def sample(self, policy: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """What `choose` gives, and log π of it, [B]; differentiable by the policy.

        Equation 26, where log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u)), which never saturates.
        """
        mean, log_std = self._split(policy)
        unsquashed = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        slope = 2 * (math.log(2) - unsquashed - functional.softplus(-2 * unsquashed))
        return unsquashed.tanh(), (normal - slope).sum(dim=-1)

    def _split(self, policy: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ, [B, A] each."""
        mean, log_std = policy.chunk(2, dim=-1)
        return mean, log_std.clamp(LEAST_LOG_STD, LARGEST_LOG_STD)
