"""What the hyperparameters of all algorithms with a replay have in common, and those of SAC and TD3."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from config.algorithms import common_hyperparameters as common
from config.environment import EnvironmentSettings
from config.imports import IMPORT_PATH
from config.parameters import cannot_be, parameter


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
                raise cannot_be(
                    name,
                    getattr(self, name),
                    allowed=f"a multiple of num_envs, {environment.count}",
                )
        common.refuse_normalised_rewards(environment)
        if environment.normalise_observations and self.learning_starts < self.epoch_steps:
            raise cannot_be(
                "learning_starts",
                self.learning_starts,
                "with normalise_observations=true",
                because="their statistics are those of finished epochs",
                allowed=f"at least epoch_steps, {self.epoch_steps}",
            )


random_steps = partial(
    parameter,
    low=1,
    high=10**9,
    unit="steps",
    help="steps of all environments with uniformly random actions before the first update",
)
hidden_layers = partial(
    parameter,
    low=1,
    high=8192,
    help="units of the hidden layers of the policy and of each critic, after the torso",
)


@dataclass(frozen=True, kw_only=True)
class TwinCritics(OffPolicy):
    """Of an actor with twin critics for continuous actions."""

    epoch_steps: int = parameter(
        1000,
        low=1,
        high=10**6,
        unit="steps",
        help="steps of all environments together in one epoch",
    )
    learning_starts: int = random_steps(10_000)
    train_every: int = common.train_every(1)
    updates: int = parameter(1, low=1, high=10**4, help="updates of the networks in one round")
    batch_size: int = parameter(
        256,
        low=1,
        high=65_536,
        unit="transitions",
        help="transitions drawn from the replay for one update",
    )
    replay_size: int = parameter(
        1_000_000,
        low=1,
        high=10**9,
        unit="transitions",
        help="transitions in the replay; the oldest are overwritten",
    )
    learning_rate: float = common.learning_rate(3e-4)
    anneal_learning_rate: bool = common.anneal_learning_rate(False)
    discount: float = common.discount(0.99)
    target_rate: float = parameter(
        0.005,
        low=1e-6,
        high=1,
        help="tau: share by which the target networks move towards the learnt ones, each time that "
        "they move",
    )
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso below policy and critics; empty: none, or for images the Nature "
        "CNN or a smaller one",
    )
    hidden_sizes: tuple[int, ...] = hidden_layers((256, 256))

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        super().check(environment)
        count = environment.count
        counted = environment.counted_by
        for name, least, reason in (
            ("learning_starts", 2 * count, f"2 * {counted}, so that something was answered"),
            ("replay_size", max(self.batch_size, 4 * count), f"batch_size, and 4 * {counted}"),
        ):
            if getattr(self, name) < least:
                raise cannot_be(name, getattr(self, name), allowed=f"at least {least} ({reason})")
