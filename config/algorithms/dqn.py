"""The hyperparameters of DQN, Mnih et al. 2015 (doi:10.1038/nature14236), and of later additions to
it. Presets adapt them to each game.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms import common_hyperparameters as common
from config.algorithms.descriptor import Algorithm
from config.algorithms.off_policy import OffPolicy
from config.environment import EnvironmentSettings
from config.imports import IMPORT_PATH
from config.parameters import cannot_be, parameter

STACKED_FRAMES = 64
"""More than any stack has: so many steps and n_step of them can never be sampled."""


@dataclass(frozen=True, kw_only=True)
class DQN(OffPolicy):
    """The defaults are those of Stable-Baselines3, with a smaller replay. Every addition to the
    algorithm of 2015 is off.
    """

    multiples = (*OffPolicy.multiples, "target_every")

    epoch_steps: int = parameter(
        1000,
        low=1,
        high=10**7,
        unit="steps",
        help="steps of all environments together in one epoch",
    )
    replay_size: int = parameter(
        100_000,
        low=100,
        high=10**8,
        unit="steps",
        help="transitions in the replay; the oldest are overwritten",
    )
    learning_starts: int = parameter(
        1000,
        low=0,
        high=10**8,
        unit="steps",
        help="steps of all environments with random actions before the first update",
    )
    train_every: int = common.train_every(4)
    updates: int = parameter(1, low=1, high=10_000, help="updates of the network in one round")
    batch_size: int = parameter(32, low=1, high=65_536, help="transitions in one update")
    target_every: int = parameter(
        10_000,
        low=1,
        high=10**8,
        unit="steps",
        help="steps of all environments between two copies of the network to the target "
        "network; a copy waits for the end of a round of updates",
    )
    learning_rate: float = common.learning_rate(1e-4)
    anneal_learning_rate: bool = common.anneal_learning_rate(False)
    adam_epsilon: float = common.adam_epsilon(1e-8)
    max_gradient_norm: float = common.max_gradient_norm(10.0)
    discount: float = common.discount(0.99)
    exploration_fraction: float = parameter(
        0.1,
        low=0,
        high=1,
        help="share of the training in which epsilon, the probability of a random action, "
        "falls linearly from 1 to final_epsilon",
    )
    final_epsilon: float = parameter(
        0.05, low=0, high=1, help="probability of a random action after the exploration phase"
    )
    double: bool = parameter(
        False,
        help="double DQN: the online network chooses the action, the target network gives its "
        "value",
    )
    dueling: bool = parameter(
        False, help="separate streams for value and advantages, starting at the last hidden layer"
    )
    n_step: int = common.n_step(1)
    prioritised: bool = parameter(
        False, help="whether transitions with a large error are sampled more often"
    )
    priority_exponent: float = parameter(
        0.6,
        low=0,
        high=2,
        help="alpha: how strongly a transition's priority decides its sampling, with "
        "prioritised; 0: uniform sampling",
    )
    importance_exponent: float = parameter(
        0.4,
        low=0,
        high=1,
        help="beta: exponent of the importance weights, with prioritised; it rises to 1 over "
        "the training",
    )
    quantiles: int = parameter(
        0,
        low=0,
        high=1000,
        help="quantiles of the return that are learnt (QR-DQN); 0: learn only its mean (DQN)",
    )
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso; empty: ReLU layers, or for images the Nature CNN or a smaller one",
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (64, 64),
        low=1,
        high=8192,
        help="units of the hidden layers for vector observations; not used for images",
    )

    def tied_to_length(self) -> list[str]:
        """Epsilon and the learning rate, which fall, and beta, which rises to 1."""
        tied = []
        if self.exploration_fraction > 0 and self.final_epsilon < 1:
            tied.append("exploration_fraction")
        if self.prioritised and self.importance_exponent < 1:
            tied.append("importance_exponent")
        if self.anneal_learning_rate:
            tied.append("anneal_learning_rate")
        return tied

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        super().check(environment)
        count = environment.count
        least = max(self.learning_starts, self.batch_size, (self.n_step + STACKED_FRAMES) * count)
        if self.replay_size < least:
            others = (
                f"learning_starts={self.learning_starts}, batch_size={self.batch_size}, "
                f"n_step={self.n_step}, num_envs={count}"
            )
            raise cannot_be(
                "replay_size", self.replay_size, allowed=f"at least {least}, for {others}"
            )


ALGORITHM = Algorithm(
    name="dqn",
    hyperparameters=DQN,
    trainer="agents.algorithms.dqn:DQNTrainer",
    policy="agents.evaluation.value_policy:ValuePolicy",
    precision_probe="agents.checks.precision:measure",
    replay_bytes="agents.experience.replay:replay_bytes",
    families=("discrete",),
)
