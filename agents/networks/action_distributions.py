"""Action distributions as plain arithmetic on the policy head's output [..., P]: categorical, normal
and squashed normal.

Noise is drawn for a whole rollout at once, so that choosing an action is one addition and one
comparison per step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agents.devices import on_device
from agents.spaces import Interface

NOISE_ROWS = 1024
"""Drawn at once, where they are needed one step after the other."""


class Choice(Protocol):
    """How actions of one kind are chosen."""

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """[*shape, A] of standard noise on the CPU."""

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Policy [N, P], noise [N, A] -> sampled actions, [N] or [N, A]."""

    def mode(self, policy: Tensor) -> Tensor:
        """Policy [N, P] -> the most probable actions, [N] or [N, A]."""


class Drawn(NamedTuple):
    """Sampled actions [N] or [N, A], and log π of them [N]."""

    actions: np.ndarray
    log_probability: np.ndarray


class Actions(Choice, Protocol):
    """A `Choice` whose probabilities are known."""

    parameters: int
    """P: numbers in the policy head's output for one observation."""

    def log_probability(self, policy: Tensor, actions: Tensor) -> Tensor:
        """Policy [B, P], actions [B] or [B, A] -> log π(a), [B]."""

    def drawn(self, policy: np.ndarray, noise: np.ndarray) -> Drawn:
        """`choose`, and `log_probability` of that, of a few rows: policy [N, P], noise [N, A]."""
        rows = torch.from_numpy(policy)
        actions = self.choose(rows, torch.from_numpy(noise))
        return Drawn(actions.numpy(), self.log_probability(rows, actions).numpy())

    def entropy(self, policy: Tensor) -> Tensor:
        """Policy [B, P] -> H in nats, [B]."""


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
        # Cross-entropy is −log softmax(logits)[a] in one call.
        rows = functional.cross_entropy(policy.flatten(0, -2), actions.flatten(), reduction="none")
        return -rows.view(actions.shape)

    def drawn(self, policy: np.ndarray, noise: np.ndarray) -> Drawn:
        """As the base class, by numpy, whose calls take a fifth of torch's time on a few rows."""
        actions = (policy + noise).argmax(axis=1)
        # Transposed, because sums along the first axis take half the time.
        logits = policy.T.copy()
        # The largest logit is taken off (log-sum-exp), so that no exponential overflows.
        logits -= np.maximum.reduce(logits, axis=0)
        logarithms = np.log(np.add.reduce(np.exp(logits), axis=0))
        return Drawn(actions, logits[actions, np.arange(len(actions))] - logarithms)

    def entropy(self, policy: Tensor) -> Tensor:
        """−Σ p log p."""
        logarithms = policy.log_softmax(dim=-1)
        return -(logarithms.exp() * logarithms).sum(dim=-1)


class NoiseRows:
    """Noise of actions for one step after the other, drawn for many at once: the row that comes next is
    the same, in however many parts they are taken.
    """

    def __init__(self, actions: Actions, generator: torch.Generator) -> None:
        """The generator is this one's alone."""
        self._actions = actions
        self._generator = generator
        self._rows = self._more()
        self._taken = 0

    def take(self, count: int) -> np.ndarray:
        """The next rows [count, A]."""
        while len(self._rows) - self._taken < count:
            self._rows = np.concatenate((self._rows[self._taken :], self._more()))
            self._taken = 0
        first = self._taken
        self._taken = self._taken + count
        return self._rows[first : self._taken]

    def _more(self) -> np.ndarray:
        rows: np.ndarray = self._actions.noise((NOISE_ROWS,), self._generator).numpy()
        return rows


class MultiDiscreteActions(Actions):
    """Independent categorical distributions of A components; P = Σ choices logits, those of one
    component after the other's.

    They are computed side by side as [..., A, K], K the most choices of any component; where one
    has fewer, its logits are `FORBIDDEN`.
    """

    def __init__(self, choices: Sequence[int]) -> None:
        self.parameters = sum(choices)
        self._each = DiscreteActions(max(choices))
        columns = list[list[int]]()
        first = 0
        for count in choices:
            # Where a component has fewer choices than another, its row is filled up with the number
            # of the logit `FORBIDDEN`, which `_components` adds behind all others.
            missing = [self.parameters] * (max(choices) - count)
            columns.append([*range(first, first + count), *missing])
            first += count
        self._columns = torch.tensor(columns)

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

    def entropy(self, policy: Tensor) -> Tensor:
        """Σ over components."""
        return self._each.entropy(self._components(policy)).sum(dim=-1)

    def _components(self, policy: Tensor) -> Tensor:
        """[..., P] -> [..., A, K]."""
        # Indices on another device than the policy would be copied at every call.
        if self._columns.device != policy.device:
            # The first call comes from acting, in inference mode, whose tensors autograd would
            # refuse in every later update.
            with torch.inference_mode(mode=False):
                self._columns = self._columns.to(policy.device)
        return functional.pad(policy, (0, 1), value=FORBIDDEN)[..., self._columns]


class ContinuousActions(Actions):
    """Independent normal distributions of A components; P = 2 A: means μ, then log standard
    deviations log σ.

    Actions are learnt unclipped; the environment clips what it gets
    (`Interface.environment_actions`).
    """

    def __init__(self, count: int) -> None:
        self.parameters = 2 * count
        self._count = count

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

    def entropy(self, policy: Tensor) -> Tensor:
        """Σ over components of log σ + ½ log 2πe."""
        constant = 0.5 * math.log(2 * math.pi * math.e) * self._count
        return policy[..., self._count :].sum(dim=-1) + constant


def make_actions(spaces: Interface) -> Actions:
    """The kind that these spaces need."""
    if spaces.choices:
        return MultiDiscreteActions(spaces.choices)
    if spaces.discrete:
        return DiscreteActions(spaces.actions)
    return ContinuousActions(spaces.actions)


class BoundedActions(Choice):
    """A independent components between −1 and 1, in which bounded actions are learnt
    (`Interface.environment_actions` rescales them). P is A or more; the first A outputs are the
    most probable actions, before the tanh.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal noise, [*shape, A]."""
        return torch.empty(*shape, self._count).normal_(generator=generator)

    def uniform(self, rows: int, generator: np.random.Generator) -> np.ndarray:
        """Actions [rows, A], float32, each as likely as any other: before anything is learnt."""
        return generator.uniform(-1, 1, (rows, self._count)).astype(np.float32)

    def drawn(self, policy: Tensor, generator: np.random.Generator) -> np.ndarray:
        """Policy [B, P] -> sampled actions [B, A], float32, by noise of this generator."""
        noise = torch.from_numpy(self.standard(len(policy), generator))
        return self.choose(policy, on_device(noise, policy.device)).numpy(force=True)

    def standard(self, rows: int, generator: np.random.Generator) -> np.ndarray:
        """Standard normal noise of this generator, [rows, A], float32."""
        return generator.standard_normal((rows, self._count), np.float32)

    def mode(self, policy: Tensor) -> Tensor:
        """Policy [B, P] -> tanh of its first A outputs, [B, A]: for a distribution the median, which
        the field calls deterministic.
        """
        return policy[..., : self._count].tanh()


LEAST_LOG_STD = -20.0
LARGEST_LOG_STD = 2.0
"""As in the authors' code: beyond, log σ has no effect and gets no gradient."""


class SquashedActions(BoundedActions):
    """Actions between −1 and 1: a = tanh(u), u ~ N(μ, σ²), with the exact log-density; Haarnoja et al.
    2018 (arXiv:1812.05905), appendix C. P = 2 A: means μ, then log standard deviations log σ, both of
    u.

    The scale of the environment's range would add the same constant, Σ log scale, to every
    log-density and to the target entropy.
    """

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Policy [B, P], noise [B, A] -> sampled actions [B, A]: tanh(μ + σ · noise)."""
        mean, log_std = self._split(policy)
        return (mean + log_std.exp() * noise).tanh()

    def sample(self, policy: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """What `choose` gives, and log π of it, [B]; differentiable by the policy.

        Equation 26, where log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u)), which never saturates.
        """
        mean, log_std = self._split(policy)
        unsquashed = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 − tanh²u) itself would be log 0 where tanh u rounds to 1.
        slope = 2 * (math.log(2) - unsquashed - functional.softplus(-2 * unsquashed))
        return unsquashed.tanh(), (normal - slope).sum(dim=-1)

    def _split(self, policy: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ, [B, A] each."""
        mean, log_std = policy.chunk(2, dim=-1)
        return mean, log_std.clamp(LEAST_LOG_STD, LARGEST_LOG_STD)


class NoisyActions(BoundedActions):
    """Deterministic actions tanh(u) that explore: normal noise is added, and the sum cut to −1 … 1;
    Fujimoto et al. 2018 (arXiv:1802.09477), algorithm 1. P = A: u. deviation: of the noise, where
    half the range of an action is 1.
    """

    def __init__(self, count: int, deviation: float) -> None:
        super().__init__(count)
        self._deviation = deviation

    def choose(self, policy: Tensor, noise: Tensor) -> Tensor:
        """Policy [B, A], noise [B, A] -> actions with noise [B, A]."""
        return (self.mode(policy) + self._deviation * noise).clamp(-1, 1)
