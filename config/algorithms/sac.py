"""The hyperparameters of SAC, Haarnoja et al. 2018 (arXiv:1812.05905). Presets adapt them to each
game.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms.descriptor import Algorithm
from config.algorithms.off_policy import OffPolicy
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.imports import IMPORT_PATH
from config.parameters import parameter


@dataclass(frozen=True, kw_only=True)
class SAC(OffPolicy):
    """The defaults are those of Stable-Baselines3, which are the paper's, with its later
    `learning_starts`.
    """

    epoch_steps: int = parameter(
        1000,
        low=1,
        high=10**6,
        unit="steps",
        help="steps of all environments together in one epoch",
    )
    learning_starts: int = parameter(
        10_000,
        low=1,
        high=10**9,
        unit="steps",
        help="steps of all environments with uniformly random actions before the first update",
    )
    train_every: int = parameter(
        1,
        low=1,
        high=10**6,
        unit="steps",
        help="steps of all environments between two rounds of updates",
    )
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
    learning_rate: float = parameter(3e-4, low=1e-8, high=1.0, help="step size of the optimiser")
    anneal_learning_rate: bool = parameter(
        False, help="whether the learning rate falls linearly to 0 over the training"
    )
    discount: float = parameter(
        0.99,
        low=0,
        high=1,
        help="gamma: factor by which a reward loses weight for each step that it lies in the "
        "future",
    )
    target_rate: float = parameter(
        0.005,
        low=1e-6,
        high=1,
        help="tau: share by which the target networks move towards the critics in each update",
    )
    alpha: float | None = parameter(
        None,
        low=0,
        high=1000,
        optional=True,
        help="temperature: weight of the policy's entropy; empty: learnt, starting from 1",
    )
    target_entropy: float | None = parameter(
        None,
        low=-1e6,
        high=1e6,
        optional=True,
        unit="nats",
        help="entropy at which a learnt temperature keeps the policy, for actions scaled to -1 "
        "... 1; empty: minus the number of actions",
    )
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso below policy and critics; empty: none, or for images the Nature "
        "CNN or a smaller one",
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (256, 256),
        low=1,
        high=8192,
        help="units of the hidden layers of the policy and of each critic, after the torso",
    )

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
                raise BadInput(
                    f"parameter {name!r} cannot be {getattr(self, name)}; "
                    f"allowed: at least {least} ({reason})"
                )
        if self.alpha is not None and self.target_entropy is not None:
            raise BadInput(
                f"parameter 'target_entropy' cannot be {self.target_entropy:g} with a fixed alpha, "
                f"{self.alpha:g}; allowed: empty"
            )


ALGORITHM = Algorithm(
    name="sac",
    hyperparameters=SAC,
    trainer="agents.algorithms.sac:SACTrainer",
    policy="agents.evaluation.policies:SquashedPolicy",
    precision_probe="agents.checks.precision:measure",
    replay_bytes="agents.experience.replay:replay_bytes",
    families=("continuous",),
    bounded_actions=True,
)
