"""Values of discrete actions: a head on a torso, dueling or not, of means or of quantiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.action_distributions import masked
from agents.networks.torsos import FeedForward, Torso, TorsoState, linear
from agents.spaces import Interface

Values = Callable[[Tensor], Tensor]
"""Encoded, or features, [B, ...] -> Q [B, A]."""
ValuesStep = Callable[[Tensor, TorsoState, Tensor], tuple[Tensor, TorsoState]]
"""Encoded [B, ...], state, reset [B] -> Q [B, A], state."""


class Head(nn.Module):
    """Q [B, A] of a torso's features, with `quantiles` M > 0 the quantiles θ [B, A, M] of the return
    (Dabney et al. 2018, arXiv:1710.10044).

    dueling: Q = V + A − mean_a A (Wang et al. 2016, arXiv:1511.06581, eq. 9), V from the first half
    of the torso's features and A from the other one, if they are in two streams. Quantiles are
    combined like means, each for itself.
    """

    torso: Torso

    def __init__(
        self,
        spaces: Interface,
        torso: Torso,
        *,
        dueling: bool,
        streams: int,
        quantiles: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.spaces = spaces
        self.torso = torso
        self.dueling = dueling
        self.streams = streams
        self.quantiles = quantiles
        features = torso.features // streams
        each = max(1, quantiles)
        self.weight, self.bias = linear(features, spaces.actions * each, generator)
        if dueling:
            self.value_weight, self.value_bias = linear(features, each, generator)

    @property
    def is_small(self) -> bool:
        """Whether it is one of our own, on the CPU, whose calls cost more than the arithmetic."""
        return self.torso.small and self.weight.device.type == "cpu"

    def encode(self, observations: Tensor) -> Tensor:
        """Observations [N, ...] as the environment gives them -> [N, ...] as `forward` takes
        them.
        """
        return self.torso.encode(observations)

    def means(self, values: Tensor) -> Tensor:
        """Q [B, A] from what `forward` gave."""
        return values.mean(dim=2) if self.quantiles else values

    def frozen_head(self) -> Values:
        """Q [B, A] of features [B, F] of a few rows: in `torch.inference_mode`, and before the next
        update. On the CPU it is numpy's, whose calls take a fifth of torch's time on a few rows.
        """
        if self.weight.device.type != "cpu" or self.dueling or self.quantiles:
            return lambda features: self.means(self._head(features))
        weight = self.weight.numpy(force=True).T
        bias = self.bias.numpy(force=True)
        return lambda features: torch.from_numpy(features.numpy() @ weight + bias)

    def _head(self, features: Tensor) -> Tensor:
        of_value = features
        of_actions = features
        if self.streams == 2:
            of_value, of_actions = features.chunk(2, dim=1)
        values = functional.linear(of_actions, self.weight, self.bias)
        if self.quantiles:
            values = values.view(-1, self.spaces.actions, self.quantiles)
        if not self.dueling:
            return values
        value = functional.linear(of_value, self.value_weight, self.value_bias)
        if self.quantiles:
            value = value[:, None]
        # The mean is taken off, because a constant could move between V and A otherwise.
        return value + values - values.mean(dim=1, keepdim=True)


class ActionValues(Head):
    """`network(encoded) -> Q [B, A]`, or quantiles, of rows that are independent of each other."""

    torso: FeedForward

    def forward(self, encoded: Tensor) -> Tensor:
        """Encoded [B, ...] -> [B, A] or [B, A, M]."""
        return self._head(cast(Tensor, self.torso.rows(encoded)))

    def frozen(self) -> Values:
        """Q for a few rows at a time: in `torch.inference_mode`, and before the next update."""
        features_of = self.torso.frozen()
        head = self.frozen_head()
        return lambda encoded: head(cast(Tensor, features_of(encoded)))


class RecurrentActionValues(Head):
    """`network(encoded, state, reset) -> (Q [T, B, A], state)`, of sequences."""

    def forward(
        self, encoded: Tensor, state: TorsoState, reset: Tensor
    ) -> tuple[Tensor, TorsoState]:
        """As a torso's `forward`: encoded [T, B, ...], state [B, ...] each, reset bool [T, B]."""
        features, after = self.torso(encoded, state, reset)
        values = self._head(features.flatten(0, 1))
        return values.view(*reset.shape, -1), after

    def frozen(self) -> ValuesStep:
        """Make one step of N environments. To be called in `torch.inference_mode` and before the
        next update.
        """
        step = self.torso.step()
        head = self.frozen_head()

        def values(encoded: Tensor, state: TorsoState, reset: Tensor) -> tuple[Tensor, TorsoState]:
            features, after = step(encoded, state, reset)
            return head(cast(Tensor, features)), after

        return values


def taken(values: Tensor, actions: Tensor) -> Tensor:
    """Values [B, A] or [B, A, M], actions [B] -> those of the actions, [B] or [B, M]."""
    places = actions.view(-1, *[1] * (values.dim() - 1))
    return values.gather(1, places.expand(-1, 1, *values.shape[2:])).squeeze(1)


def bootstrapped(values: Tensor, choosing: Tensor, masks: Tensor | None) -> Tensor:
    """Q⁻(o', argmax_a) of values [B, A] or [B, A, M], the maximum over choosing [B, A], of the actions
    that the masks [B, A] allow; where one allows nothing, as some do at the end, of all.
    """
    if masks is not None:
        # Some environments allow nothing at the end of an episode. Then all actions count, whose
        # value is multiplied by 0 after a termination.
        masks = masks | ~masks.any(dim=1, keepdim=True)
    return taken(values, masked(choosing, masks).argmax(dim=1))


def linear_epsilon(step: int, *, starts: int, length: float, final: float) -> float:
    """ε: 1 for the first `starts` steps, and on the line from 1 at step 0 to `final` at `length`."""
    if step < starts:
        return 1.0
    if step >= length:
        return final
    return 1 + (final - 1) * step / length


def random_actions(
    count: int, actions: int, masks: np.ndarray | None, generator: np.random.Generator
) -> np.ndarray:
    """[count], each of those that the masks [count, A] allow equally likely."""
    if masks is None:
        return generator.integers(actions, size=count)
    # The largest of independent uniform numbers is equally likely at every allowed place.
    chosen: np.ndarray = np.where(masks, generator.random(masks.shape), -1.0).argmax(axis=1)
    return chosen


def epsilon_of_actor(number: int, count: int, *, largest: float, exponent: float) -> float:
    """ε_i = ε^(1 + α i / (N − 1)) of actor i of N, Horgan et al. 2018 (arXiv:1803.00933): the same
    throughout the training, and different for each, so that all degrees of exploring are seen.
    """
    power = 1 + exponent * number / max(1, count - 1)
    return float(largest**power)
