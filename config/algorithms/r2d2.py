"""The hyperparameters of R2D2, Kapturowski et al. 2019 (openreview.net/forum?id=r1lyTjAqYX); the
presets give each game its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms.descriptor import ACTOR_LEARNER, Algorithm
from config.algorithms.replay_ratio import ReplayRatio
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.imports import IMPORT_PATH
from config.parameters import parameter


@dataclass(frozen=True, kw_only=True)
class R2D2:
    """Defaults: for small environments; a loss is a mean over rows, where the paper has a sum."""

    unroll_length: int = parameter(
        20, low=2, high=65_536, unit="steps", help="of one environment, replayed as one sequence"
    )
    burn_in: int = parameter(
        5,
        low=0,
        high=65_535,
        unit="steps",
        help="of a sequence's beginning, which only bring what is remembered up to date; the sequence before has them, too",
    )
    n_step: int = parameter(
        3, low=1, high=100, unit="steps", help="whose rewards are summed before the target's value"
    )
    batch_size: int = parameter(32, low=1, high=65_536, unit="sequences", help="of one update")
    epoch_updates: int = parameter(
        100, low=1, high=10**6, unit="updates", help="of the optimiser in one epoch"
    )
    replay_ratio: float = parameter(
        4.0, low=1e-3, high=10_000, help="how often each step is learnt from"
    )
    max_ahead: int = parameter(
        16,
        low=1,
        high=10**6,
        unit="updates",
        help="by which learner or actors may be ahead of the replay ratio; then they wait",
    )
    replay_size: int = parameter(
        150_000, low=1, high=10**9, unit="steps", help="the last ones, to learn from"
    )
    learning_starts: int = parameter(
        5000, low=1, high=10**9, unit="steps", help="of all actors, before the first update"
    )
    target_every: int = parameter(
        200, low=1, high=10**8, unit="updates", help="between two copies to the target network"
    )
    learning_rate: float = parameter(5e-4, low=1e-8, high=1.0, help="of Adam")
    anneal_learning_rate: bool = parameter(
        False, help="the learning rate falls linearly to 0 over the training"
    )
    adam_epsilon: float = parameter(
        5e-5, low=1e-12, high=0.1, help="of Adam, added to the denominator"
    )
    max_gradient_norm: float = parameter(
        40.0, low=1e-3, high=1000, help="gradients are scaled down to this norm"
    )
    discount: float = parameter(
        0.99, low=0, high=1, help="gamma: weight of a reward one step later"
    )
    rescale_values: bool = parameter(
        True, help="learn values on the scale of their square roots, h, in place of clipped rewards"
    )
    priority_exponent: float = parameter(
        0.9, low=0, high=2, help="of a sequence's priority; 0 is uniform sampling"
    )
    priority_mix: float = parameter(
        0.9, low=0, high=1, help="eta: weight of a sequence's largest error, beside the mean one"
    )
    importance_exponent: float = parameter(
        0.6, low=0, high=1, help="beta of the importance weights; 0: none"
    )
    epsilon: float = parameter(
        0.4, low=0, high=1, help="probability of a random action in the first environment"
    )
    epsilon_exponent: float = parameter(
        7.0,
        low=0,
        high=100,
        help="alpha: the last environment of the last actor acts by epsilon to the power of 1 + alpha",
    )
    dueling: bool = parameter(
        True, help="a layer for the value and one for the advantages, after the LSTM"
    )
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="a torso of your own, which may remember; empty: an LSTM on ReLU layers, for images on a convolution's features",
    )
    lstm_size: int = parameter(
        64, low=1, high=8192, help="units of the LSTM, and of each layer after it"
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (64,),
        low=1,
        high=8192,
        help="units of the layers before the LSTM for vector observations; images have convolutions",
    )

    @property
    def learnt_rows(self) -> int:
        """Of a sequence: those that are new with it."""
        return self.unroll_length - self.burn_in

    @property
    def ratio(self) -> ReplayRatio:
        """Of rows that are learnt from."""
        batch = self.batch_size * self.learnt_rows
        return ReplayRatio(
            ratio=self.replay_ratio, starts=self.learning_starts, batch=batch,
            unroll=self.learnt_rows, slack=self.max_ahead * batch,
        )  # fmt: skip

    @property
    def replay_slots(self) -> int:
        """Sequences in the replay."""
        return self.replay_size // max(1, self.learnt_rows)

    @property
    def final_epsilon(self) -> float:
        """Of the most careful actor, by which a policy is evaluated that samples."""
        return float(self.epsilon ** (1 + self.epsilon_exponent))

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        """Steps that come in while so many updates are due, rounded down: what is due is never more
        than the updates.
        """
        return int(self.epoch_updates * self.ratio.batch / self.replay_ratio)

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        """Those before the first update."""
        return self.learning_starts

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        if self.burn_in >= self.unroll_length:
            raise BadInput(
                f"parameter 'burn_in' cannot be {self.burn_in}; allowed: less than unroll_length, "
                f"{self.unroll_length}"
            )
        self.ratio.check(environment.count)
        if self.steps_per_epoch(environment) < 1:
            raise BadInput(
                f"parameter 'replay_ratio' cannot be {self.replay_ratio:g}; allowed: at most "
                f"{self.epoch_updates * self.ratio.batch}, one step in an epoch"
            )
        least = max(self.learning_starts, self.unroll_length * environment.count)
        if self.replay_size < least:
            raise BadInput(
                f"parameter 'replay_size' cannot be {self.replay_size}; allowed: at least {least}, "
                f"for learning_starts={self.learning_starts}, unroll_length={self.unroll_length}, "
                f"envs_per_actor={environment.count}"
            )
        if environment.normalise_rewards:
            raise BadInput(
                "parameter 'normalise_rewards' cannot be true: the rewards of a replay are learnt "
                "as they are; allowed: false"
            )


ALGORITHM = Algorithm(
    name="r2d2",
    hyperparameters=R2D2,
    trainer="agents.algorithms.r2d2:R2D2Trainer",
    policy="agents.evaluation.value_policy:RecurrentValuePolicy",
    actor="agents.algorithms.r2d2_acting:make_actor",
    families=("discrete",),
    precision_probe="agents.probe:measure",
    replay_bytes="agents.algorithms.r2d2:replay_bytes",
    remembers=True,
    topology=ACTOR_LEARNER,
)
