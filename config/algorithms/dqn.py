"""The hyperparameters of DQN, Mnih et al. 2015 (doi:10.1038/nature14236), and of what was added to it
later; the presets give each game its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms.descriptor import Algorithm
from config.algorithms.off_policy import OffPolicy
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.imports import IMPORT_PATH
from config.parameters import parameter

STACKED_FRAMES = 64
"""More than any stack has: so many steps and n_step of them can never be sampled."""


@dataclass(frozen=True, kw_only=True)
class DQN(OffPolicy):
    """Defaults: those of Stable-Baselines3, with a replay that fits anywhere; every addition to the
    algorithm of 2015 is off.
    """

    multiples = (*OffPolicy.multiples, "target_every")

    epoch_steps: int = parameter(
        1000, low=1, high=10**7, unit="steps", help="of all environments in one epoch"
    )
    replay_size: int = parameter(
        100_000, low=100, high=10**8, unit="steps", help="the last ones are learnt from"
    )
    learning_starts: int = parameter(
        1000, low=0, high=10**8, unit="steps", help="with random actions, before the first update"
    )
    train_every: int = parameter(
        4, low=1, high=10**6, unit="steps", help="of all environments between two rounds of updates"
    )
    updates: int = parameter(1, low=1, high=10_000, help="in one round")
    batch_size: int = parameter(32, low=1, high=65_536, help="transitions in one update")
    target_every: int = parameter(
        10_000,
        low=1,
        high=10**8,
        unit="steps",
        help="of all environments between two copies of the network to the target network, never within a round",
    )
    learning_rate: float = parameter(1e-4, low=1e-8, high=1.0, help="of Adam")
    anneal_learning_rate: bool = parameter(
        False, help="the learning rate falls linearly to 0 over the training"
    )
    adam_epsilon: float = parameter(
        1e-8, low=1e-12, high=0.1, help="of Adam, added to the denominator"
    )
    max_gradient_norm: float = parameter(
        10.0, low=1e-3, high=1000, help="gradients are scaled down to this norm"
    )
    discount: float = parameter(
        0.99, low=0, high=1, help="gamma: weight of a reward one step later"
    )
    exploration_fraction: float = parameter(
        0.1,
        low=0,
        high=1,
        help="of the training, in which epsilon, the probability of a random action, falls linearly from 1",
    )
    final_epsilon: float = parameter(
        0.05, low=0, high=1, help="probability of a random action from then on"
    )
    double: bool = parameter(
        False, help="double DQN: the network chooses the action whose target value is learnt"
    )
    dueling: bool = parameter(
        False, help="a stream for the value and one for the advantages, of the last hidden layer on"
    )
    n_step: int = parameter(
        1, low=1, high=100, unit="steps", help="whose rewards are summed before the target's value"
    )
    prioritised: bool = parameter(
        False, help="transitions with a large error are learnt more often"
    )
    priority_exponent: float = parameter(
        0.6, low=0, high=2, help="prioritised: alpha; 0 is uniform sampling"
    )
    importance_exponent: float = parameter(
        0.4,
        low=0,
        high=1,
        help="prioritised: beta of the importance weights, which rises to 1 over the training",
    )
    quantiles: int = parameter(
        0, low=0, high=1000, help="of the return, learnt by QR-DQN; 0: its mean, by DQN"
    )
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="a torso of your own; empty: ReLU layers, for images the Nature CNN or a smaller one",
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (64, 64),
        low=1,
        high=8192,
        help="units of the hidden layers for vector observations; images have convolutions",
    )

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        super().check(environment)
        count = environment.count
        least = max(self.learning_starts, self.batch_size, (self.n_step + STACKED_FRAMES) * count)
        if self.replay_size < least:
            raise BadInput(
                f"parameter 'replay_size' cannot be {self.replay_size}; allowed: at least {least}, "
                f"for learning_starts={self.learning_starts}, batch_size={self.batch_size}, n_step={self.n_step}, num_envs={count}"
            )


ALGORITHM = Algorithm(
    name="dqn",
    hyperparameters=DQN,
    trainer="agents.algorithms.dqn:DQNTrainer",
    policy="agents.evaluation.value_policy:ValuePolicy",
    precision_probe="agents.probe:measure",
    replay_bytes="agents.experience.replay:replay_bytes",
    families=("discrete",),
)
