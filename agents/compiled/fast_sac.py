"""Soft actor-critic on vectors and a processor without torch (`fast_twin_critics.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.compiled.fast_twin_critics import (
    CompiledTwinCritics,
    Given,
    gradient_by_torch,
)
from agents.compiled.side_by_side import adam_side_by_side, apart, moved_side_by_side, no_steps
from agents.compiled.soft_updates import update_actor, update_critics, update_temperature
from agents.compiled.twin_critic_updates import Rows
from agents.networks.action_distributions import SquashedActions
from agents.networks.twin_critics import SoftActorCritic
from agents.optimisation.optimiser import Adam


class CompiledSAC(CompiledTwinCritics):
    """The steps of critics, policy and temperature. The first two need noise [B, A] and α []."""

    network = SoftActorCritic
    actions = SquashedActions
    numbers_of_actor = 2

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self._log_alpha = moved_side_by_side([trainer.log_alpha])
        self._by_log_alpha = np.zeros_like(self._log_alpha)
        self._of_temperature = no_steps(self._log_alpha)

    def _make_room(self, rows: int) -> None:
        super()._make_room(rows)
        self._log_probabilities = np.zeros(rows, np.float32)

    def begin(self, optimisers: Sequence[Adam]) -> None:
        """Take over the states of the optimisers: of the critics, the policy and the temperature."""
        super().begin(optimisers)
        self._of_temperature = adam_side_by_side(optimisers[2], np.inf)

    def _update_critics(
        self, rows: Rows, learning_rate: float, found: np.ndarray, *given: Any
    ) -> bool:
        noise, alpha = given
        return update_critics(
            self._critics, self._actor, self._slow_critics, rows, noise.numpy(), self._chosen,
            self._log_probabilities, float(alpha), learning_rate, found,
        )  # fmt: skip

    def _update_actor(
        self, rows: Rows, learning_rate: float, found: np.ndarray, *given: Any
    ) -> bool:
        noise, alpha = given
        return update_actor(
            self._critics, self._actor, rows, noise.numpy(), self._chosen, self._log_probabilities,
            float(alpha), learning_rate, found,
        )  # fmt: skip

    def descend_temperature(self, surplus: float, learning_rate: float) -> bool:
        """Make a step of α's optimiser, if it is finite; whether it was made. surplus: of the entropy over
        the one that is aimed at.
        """
        return update_temperature(
            self._log_alpha, self._by_log_alpha, surplus, self._of_temperature, learning_rate
        )

    def given(self, noise: Tensor) -> tuple[Given, Given]:
        """See the base class."""
        alpha = torch.tensor(0.7)
        return (noise[1], alpha), (noise[0], alpha)

    def difference(self, make_batch: Callable[..., Any], seed: int) -> str:
        """See the base class."""
        return super().difference(make_batch, seed) or self._difference_of_temperature()

    def _difference_of_temperature(self) -> str:
        trainer = self._trainer
        if trainer.target_entropy is None:
            return ""
        entropy = torch.tensor(0.3)
        expected = gradient_by_torch(trainer._temperature_loss(entropy)[0], [trainer.log_alpha])
        self.descend_temperature(float(entropy) - trainer.target_entropy, 0.0)
        return apart("gradient of the temperature", self._by_log_alpha, expected)
