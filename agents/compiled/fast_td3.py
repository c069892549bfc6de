"""TD3 on vectors and a processor without torch (`fast_twin_critics.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from agents.compiled.fast_twin_critics import CompiledTwinCritics, Given
from agents.compiled.side_by_side import moved_side_by_side
from agents.compiled.smoothed_updates import update_actor, update_critics
from agents.compiled.twin_critic_updates import Rows
from agents.networks.action_distributions import NoisyActions
from agents.networks.twin_critics import DeterministicActorCritic


class CompiledTD3(CompiledTwinCritics):
    """The steps of critics and policy. The first one needs noise [B, A], the second one nothing."""

    network = DeterministicActorCritic
    actions = NoisyActions
    numbers_of_actor = 1

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self._slow_actor = moved_side_by_side(list(trainer.network.target_actor.parameters()))
        # The policy climbs the first critic alone, whose parameters come before those of the second in every
        # layer.
        first = self._critics.network._replace(networks=1)
        self._first_critic = self._critics._replace(network=first)

    @property
    def _followed(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [*super()._followed, (self._slow_actor, self._actor.parameters)]

    def _update_critics(
        self, rows: Rows, learning_rate: float, found: np.ndarray, *given: Any
    ) -> bool:
        (noise,) = given
        hyper = self._trainer.hyper
        return update_critics(
            self._critics, self._actor, self._slow_critics, self._slow_actor, rows, noise.numpy(),
            self._chosen, float(hyper.target_noise), float(hyper.target_noise_clip), learning_rate,
            found,
        )  # fmt: skip

    def _update_actor(
        self, rows: Rows, learning_rate: float, found: np.ndarray, *given: Any
    ) -> bool:
        return update_actor(
            self._first_critic, self._actor, rows, self._chosen, learning_rate, found
        )

    def given(self, noise: Tensor) -> tuple[Given, Given]:
        """See the base class."""
        # Wide enough that it is cut, and many an action, too.
        return (3 * noise[1],), ()
