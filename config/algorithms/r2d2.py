"""The hyperparameters of R2D2, Kapturowski et al. 2019 (openreview.net/forum?id=r1lyTjAqYX).
Presets adapt them to each game.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms import common_hyperparameters as common
from config.algorithms.descriptor import ACTOR_LEARNER, Algorithm
from config.algorithms.replay_ratio import ReplayRatio
from config.environment import EnvironmentSettings
from config.imports import IMPORT_PATH
from config.parameters import cannot_be, parameter


@dataclass(frozen=True, kw_only=True)
class R2D2:
    """The defaults suit small environments. A loss is a mean over rows, where the paper has a sum."""

    unroll_length: int = parameter(
        20,
        low=2,
        high=65_536,
        unit="steps",
        help="consecutive steps of one environment that are replayed as one sequence",
    )
    burn_in: int = parameter(
        5,
        low=0,
        high=65_535,
        unit="steps",
        help="first steps of a sequence that only update the recurrent state; they overlap "
        "with the previous sequence and are not learnt from",
    )
    n_step: int = common.n_step(3)
    batch_size: int = parameter(
        32,
        low=1,
        high=65_536,
        unit="sequences",
        help="sequences drawn from the replay for one update",
    )
    epoch_updates: int = common.epoch_updates(100)
    replay_ratio: float = parameter(
        4.0, low=1e-3, high=10_000, help="average number of times that each step is learnt from"
    )
    max_ahead: int = parameter(
        16,
        low=1,
        high=10**6,
        unit="updates",
        help="updates by which the learner or the actors may be ahead of the replay ratio "
        "before they wait",
    )
    replay_size: int = parameter(
        150_000,
        low=1,
        high=10**9,
        unit="steps",
        help="steps in the replay; the oldest are overwritten",
    )
    learning_starts: int = parameter(
        5000, low=1, high=10**9, unit="steps", help="steps of all actors before the first update"
    )
    target_every: int = parameter(
        200,
        low=1,
        high=10**8,
        unit="updates",
        help="updates between two copies of the network to the target network",
    )
    learning_rate: float = common.learning_rate(5e-4)
    anneal_learning_rate: bool = common.anneal_learning_rate(False)
    adam_epsilon: float = common.adam_epsilon(5e-5)
    max_gradient_norm: float = common.max_gradient_norm(40.0)
    discount: float = common.discount(0.99)
    rescale_values: bool = parameter(
        True,
        help="learn values on a compressed scale (h, close to the square root) instead of "
        "clipping rewards",
    )
    priority_exponent: float = parameter(
        0.9,
        low=0,
        high=2,
        help="alpha: how strongly a sequence's priority decides its sampling; 0: uniform sampling",
    )
    priority_mix: float = parameter(
        0.9,
        low=0,
        high=1,
        help="eta: weight of a sequence's largest error in its priority; the mean error has "
        "the rest",
    )
    importance_exponent: float = parameter(
        0.6, low=0, high=1, help="beta: exponent of the importance weights; 0: no weights"
    )
    epsilon: float = parameter(
        0.4, low=0, high=1, help="probability of a random action in the first environment"
    )
    epsilon_exponent: float = parameter(
        7.0,
        low=0,
        high=100,
        help="alpha: the last environment of the last actor acts with probability epsilon to "
        "the power of 1 + alpha at random",
    )
    dueling: bool = parameter(True, help="separate layers for value and advantages after the LSTM")
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso, which may be recurrent; empty: ReLU layers, or for images a "
        "convolutional network, followed by an LSTM",
    )
    lstm_size: int = parameter(
        64, low=1, high=8192, help="units of the LSTM and of each layer after it"
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (64,),
        low=1,
        high=8192,
        help="units of the layers before the LSTM for vector observations; not used for images",
    )

    @property
    def learnt_rows(self) -> int:
        """Number of rows of a sequence that no earlier sequence contains."""
        return self.unroll_length - self.burn_in

    @property
    def ratio(self) -> ReplayRatio:
        """How often each row is learnt from, as a replay ratio."""
        batch = self.batch_size * self.learnt_rows
        return ReplayRatio(
            ratio=self.replay_ratio, starts=self.learning_starts, batch=batch,
            unroll=self.learnt_rows, slack=self.max_ahead * batch,
        )  # fmt: skip

    @property
    def replay_slots(self) -> int:
        """Number of sequences that the replay holds."""
        return self.replay_size // max(1, self.learnt_rows)

    @property
    def final_epsilon(self) -> float:
        """The smallest epsilon of any actor; evaluation uses it if its policy samples."""
        return float(self.epsilon ** (1 + self.epsilon_exponent))

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        """Environment steps that arrive while the updates of one epoch are due, rounded down so
        that the updates that are due never exceed them.
        """
        return int(self.epoch_updates * self.ratio.batch / self.replay_ratio)

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        """Environment steps before the first update."""
        return self.learning_starts

    tied_to_length = common.falling_learning_rate

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        if self.burn_in >= self.unroll_length:
            raise cannot_be(
                "burn_in", self.burn_in, allowed=f"less than unroll_length, {self.unroll_length}"
            )
        self.ratio.check(environment.count)
        if self.steps_per_epoch(environment) < 1:
            most = self.epoch_updates * self.ratio.batch
            raise cannot_be(
                "replay_ratio", self.replay_ratio, allowed=f"at most {most}, one step in an epoch"
            )
        least = max(self.learning_starts, self.unroll_length * environment.count)
        if self.replay_size < least:
            others = (
                f"learning_starts={self.learning_starts}, unroll_length={self.unroll_length}, "
                f"envs_per_actor={environment.count}"
            )
            raise cannot_be(
                "replay_size", self.replay_size, allowed=f"at least {least}, for {others}"
            )
        common.refuse_normalised_rewards(environment)


ALGORITHM = Algorithm(
    name="r2d2",
    hyperparameters=R2D2,
    trainer="agents.algorithms.r2d2:R2D2Trainer",
    policy="agents.evaluation.value_policy:RecurrentValuePolicy",
    actor="agents.algorithms.r2d2_acting:make_actor",
    families=("discrete",),
    precision_probe="agents.checks.precision:measure",
    replay_bytes="agents.algorithms.r2d2:replay_bytes",
    remembers=True,
    topology=ACTOR_LEARNER,
)
