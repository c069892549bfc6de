"""The hyperparameters of IMPALA, Espeholt et al. 2018 (arXiv:1802.01561). Presets adapt them to
each game.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms import common_hyperparameters as common
from config.algorithms.descriptor import ACTOR_LEARNER, FAMILIES, Algorithm
from config.algorithms.ppo import LARGEST_BATCH
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.imports import IMPORT_PATH
from config.parameters import cannot_be, parameter


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
    epoch_updates: int = common.epoch_updates(10)
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
    optimiser: str = common.optimiser("adam")
    learning_rate: float = common.learning_rate(5e-4)
    anneal_learning_rate: bool = common.anneal_learning_rate(True)
    adam_epsilon: float = common.adam_epsilon(1e-5)
    discount: float = common.discount(0.99)
    reward_scale: float = parameter(
        1.0,
        low=1e-6,
        high=1e6,
        help="factor on the rewards used for learning, applied after clipping; reported "
        "returns are not scaled",
    )
    entropy_coefficient: float = common.entropy_coefficient(0.01)
    value_coefficient: float = common.value_coefficient(0.5)
    max_gradient_norm: float = common.max_gradient_norm(0.5)
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
    log_std_init: float = common.log_std_init(0.0)

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

    tied_to_length = common.falling_learning_rate

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        if self.batch_size * self.unroll_length > LARGEST_BATCH:
            raise BadInput(
                f"batch_size * unroll_length = {self.batch_size} * {self.unroll_length} is too "
                f"large; allowed: at most {LARGEST_BATCH}"
            )
        if self.c_bar > self.rho_bar:
            raise cannot_be("c_bar", self.c_bar, allowed=f"at most rho_bar, {self.rho_bar:g}")
        if environment.normalise_rewards:
            raise cannot_be(
                "normalise_rewards",
                True,
                because="each actor would have a scale of its own",
                allowed="false, with reward_scale or clip_rewards=true",
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
