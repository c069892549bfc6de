"""The hyperparameters of PPO, Schulman et al. 2017 (arXiv:1707.06347), and of A2C, which is PPO
with some of them fixed. Presets adapt them to each game.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from config.algorithms import common_hyperparameters as common
from config.algorithms.descriptor import FAMILIES, Algorithm
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.imports import IMPORT_PATH
from config.parameters import cannot_be, parameter

LARGEST_BATCH = 2**22


@dataclass(frozen=True, kw_only=True)
class PPO:
    """The defaults are CleanRL's for classic control, without value clipping."""

    rollout_length: int = parameter(
        128, low=2, high=65_536, unit="steps", help="steps of each environment in one epoch"
    )
    update_epochs: int = parameter(4, low=1, high=100, help="passes over the batch in one epoch")
    minibatches: int = parameter(
        4,
        low=1,
        high=65_536,
        help="equal parts into which the batch is split, with one update each",
    )
    optimiser: str = common.optimiser("adam")
    learning_rate: float = common.learning_rate(2.5e-4)
    anneal_learning_rate: bool = common.anneal_learning_rate(True)
    adam_epsilon: float = common.adam_epsilon(1e-5)
    discount: float = common.discount(0.99)
    gae_lambda: float = parameter(
        0.95, low=0, high=1, help="lambda of generalised advantage estimation"
    )
    normalise_advantages: bool = parameter(
        True, help="scale advantages to mean 0 and standard deviation 1 in each minibatch"
    )
    clip: float = parameter(
        0.2, low=1e-3, high=1, help="clip range of the probability ratio: 1 - clip ... 1 + clip"
    )
    anneal_clip: bool = parameter(
        False, help="whether the clip range falls linearly to 0 over the training"
    )
    clip_value_loss: bool = parameter(
        False, help="whether the change of the value estimate is clipped to the clip range, too"
    )
    entropy_coefficient: float = common.entropy_coefficient(0.01)
    value_coefficient: float = common.value_coefficient(0.5)
    max_gradient_norm: float = common.max_gradient_norm(0.5)
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso; empty: two towers of hidden layers, or for images the Nature CNN "
        "or a smaller one",
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (64, 64),
        low=1,
        high=8192,
        help="units of the hidden layers for vector observations; not used for images",
    )
    log_std_init: float = common.log_std_init(0.0)

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        """Environment steps of one epoch, over all environments: the rows of the batch."""
        return environment.count * self.rollout_length

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        """Environment steps of the first rollout, which is not learnt from and fills the statistics
        of observations.
        """
        return self.steps_per_epoch(environment) if environment.normalise_observations else 0

    def tied_to_length(self) -> list[str]:
        """Learning rate and clip range, where they fall."""
        return [name for name in ("anneal_learning_rate", "anneal_clip") if getattr(self, name)]

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        batch = self.steps_per_epoch(environment)
        sizes = f"{environment.count} * {self.rollout_length}"
        product = f"num_envs * rollout_length = {sizes} = {batch}"
        if batch > LARGEST_BATCH:
            raise BadInput(f"{product} is too large; allowed: at most {LARGEST_BATCH}")
        if batch % self.minibatches or batch // self.minibatches < 2:
            raise cannot_be(
                "minibatches",
                self.minibatches,
                allowed=f"a divisor of {product} that leaves 2 rows in each",
            )


ALGORITHM = Algorithm(
    name="ppo",
    hyperparameters=PPO,
    trainer="agents.algorithms.ppo:PPOTrainer",
    policy="agents.evaluation.policies:TrainedPolicy",
    families=FAMILIES,
    precision_probe="agents.checks.precision:measure",
    rollout_bytes="agents.experience.rollout_sizes:of_rollout",
)

A2C = replace(ALGORITHM, name="a2c")
"""Mnih et al. 2016 (arXiv:1602.01783), its workers in step: PPO with one pass over one minibatch, whose
ratios are 1, so that eq. 7 has the gradient of the policy and nothing is clipped (Huang et al. 2022,
arXiv:2205.09123). What makes it so stands in config/algorithms/a2c.yaml.
"""
