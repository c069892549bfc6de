"""What the hyperparameters of all algorithms with a replay have in common."""

from __future__ import annotations

from typing import ClassVar

from config.environment import EnvironmentSettings
from config.errors import BadInput


class OffPolicy:
    """Base of these dataclasses. Steps are counted over all environments.

    multiples: the hyperparameters that are a number of such steps and must be whole steps of every
    environment.
    """

    epoch_steps: int
    train_every: int
    learning_starts: int
    multiples: ClassVar[tuple[str, ...]] = ("epoch_steps", "train_every")

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        """Environment steps of one epoch, over all environments."""
        return self.epoch_steps

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        """Zero: the random steps before `learning_starts` belong to the first epochs."""
        return 0

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        for name in self.multiples:
            if getattr(self, name) % environment.count:
                raise BadInput(
                    f"parameter {name!r} cannot be {getattr(self, name)}; "
                    f"allowed: a multiple of num_envs, {environment.count}"
                )
        if environment.normalise_rewards:
            raise BadInput(
                "parameter 'normalise_rewards' cannot be true: the rewards of a replay are learnt "
                "as they are; allowed: false"
            )
        if environment.normalise_observations and self.learning_starts < self.epoch_steps:
            raise BadInput(
                f"parameter 'learning_starts' cannot be {self.learning_starts} with "
                "normalise_observations=true: their statistics are those of finished epochs; "
                f"allowed: at least epoch_steps, {self.epoch_steps}"
            )
