"""The hyperparameters of IMPALA, Espeholt et al. 2018 (arXiv:1802.01561). Presets adapt them to
each game.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms.common_hyperparameters import falling_learning_rate
from config.algorithms.descriptor import ACTOR_LEARNER, FAMILIES, Algorithm
from config.algorithms.ppo import LARGEST_BATCH
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.imports import IMPORT_PATH
from config.parameters import parameter


@dataclass(frozen=True, kw_only=True)
class IMPALA:
    """The defaults suit small environments. A loss is a mean over rows, where the paper has a sum."""

    unroll_length: int = parameter(
        20,
        low=1,
        high=65_536,
        unit="steps",
        help="consecutive steps of one environment that are sent and learnt from together",
    )
    batch_size: int = parameter(
        16,
        low=1,
        high=65_536,
        unit="unrolls",
        help="unrolls in one update, over all learners together",
    )
    epoch_updates: int = parameter(
        10, low=1, high=10**6, unit="updates", help="updates of the network in one epoch"
    )
    inference: str = parameter(
        "actor",
        choices=("actor", "learner"),
        help="which process chooses actions: each actor with its copy of the policy, or the "
        "learner for all actors in batches (SEED)",
    )
    max_lag: int = parameter(
        100,
        low=0,
        high=10**6,
        unit="updates",
        help="largest age of the weights that acted; experience from older weights is discarded",
    )
    vtrace: bool = parameter(
        True,
        help="correct for experience from older weights (V-trace); false: no correction, as in A3C",
    )
    rho_bar: float = parameter(
        1.0, low=0, high=1000, help="largest importance weight of a step in its own target"
    )
    c_bar: float = parameter(
        1.0,
        low=0,
        high=1000,
        help="largest importance weight with which later steps enter a target; at most rho_bar",
    )
    trace_lambda: float = parameter(
        1.0,
        low=0,
        high=1,
        help="lambda: additional factor on the weight of later steps in a target",
    )
    optimiser: str = parameter(
        "adam", choices=("adam", "rmsprop"), help="gradient-descent algorithm"
    )
    learning_rate: float = parameter(5e-4, low=1e-8, high=1.0, help="step size of the optimiser")
    anneal_learning_rate: bool = parameter(
        True, help="whether the learning rate falls linearly to 0 over the training"
    )
    adam_epsilon: float = parameter(
        1e-5, low=1e-12, high=0.1, help="constant added to the optimiser's denominator"
    )
    discount: float = parameter(
        0.99,
        low=0,
        high=1,
        help="gamma: factor by which a reward loses weight for each step that it lies in the "
        "future",
    )
    reward_scale: float = parameter(
        1.0,
        low=1e-6,
        high=1e6,
        help="factor on the rewards used for learning, applied after clipping; reported "
        "returns are not scaled",
    )
    entropy_coefficient: float = parameter(
        0.01, low=0, high=1, help="weight of the entropy bonus in the loss"
    )
    value_coefficient: float = parameter(
        0.5,
        low=0,
        high=100,
        help="weight of the value loss, half the mean squared error, in the loss",
    )
    max_gradient_norm: float = parameter(
        0.5,
        low=1e-3,
        high=1000,
        help="largest norm of a gradient; a larger gradient is scaled down to it",
    )
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso, which may be recurrent; empty: PPO's network, with an LSTM if "
        "lstm_size is not 0",
    )
    lstm_size: int = parameter(
        0, low=0, high=8192, help="units of the LSTM that gives the network a memory; 0: no LSTM"
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (64, 64),
        low=1,
        high=8192,
        help="units of the hidden layers for vector observations, after the LSTM if there is "
        "one; not used for images",
    )
    log_std_init: float = parameter(
        0.0,
        low=-5,
        high=2,
        help="continuous actions: initial logarithm of the policy's standard deviation",
    )

    @property
    def remembers(self) -> bool:
        """Whether the network processes sequences. A user's own network may do either."""
        return self.lstm_size > 0 or self.network is not None

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        """Rows that are learnt from in one epoch, over all actors."""
        return self.epoch_updates * self.batch_size * self.unroll_length

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        """Zero: the statistics of observations come from the rows that are learnt from, including
        the newest.
        """
        return 0

    tied_to_length = falling_learning_rate

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        if self.batch_size * self.unroll_length > LARGEST_BATCH:
            raise BadInput(
                f"batch_size * unroll_length = {self.batch_size} * {self.unroll_length} is too "
                f"large; allowed: at most {LARGEST_BATCH}"
            )
        if self.c_bar > self.rho_bar:
            raise BadInput(
                f"parameter 'c_bar' cannot be {self.c_bar:g}; allowed: at most rho_bar, "
                f"{self.rho_bar:g}"
            )
        if environment.normalise_rewards:
            raise BadInput(
                "parameter 'normalise_rewards' cannot be true: each actor would have a scale of its "
                "own; allowed: false, with reward_scale or clip_rewards=true"
            )


ALGORITHM = Algorithm(
    name="impala",
    hyperparameters=IMPALA,
    trainer="agents.algorithms.impala:IMPALATrainer",
    policy="agents.evaluation.policies:actor_critic_policy",
    actor="agents.algorithms.impala_acting:make_actor",
    families=FAMILIES,
    precision_probe="agents.checks.precision:measure",
    rollout_bytes="agents.experience.rollout_sizes:of_batches",
    remembers=True,
    topology=ACTOR_LEARNER,
    several_learners=True,
)
