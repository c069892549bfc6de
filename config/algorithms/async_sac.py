"""The hyperparameters of asynchronous SAC (agents/algorithms/async_sac.py): those of SAC, and how
learner and actors keep pace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from config.algorithms import sac
from config.algorithms.descriptor import ACTOR_LEARNER
from config.algorithms.replay_ratio import ReplayRatio
from config.environment import EnvironmentSettings
from config.parameters import cannot_be, parameter


@dataclass(frozen=True, kw_only=True)
class AsyncSAC(sac.SAC):
    """The defaults are SAC's. The replay ratio is `updates` for every `train_every` steps; the two
    need not take turns exactly.
    """

    multiples = ()

    unroll_length: int = parameter(
        8,
        low=1,
        high=65_536,
        unit="steps",
        help="consecutive steps of one environment that are sent and stored together",
    )
    max_ahead: int = parameter(
        32,
        low=1,
        high=10**6,
        unit="updates",
        help="updates by which the learner or the actors may be ahead of the ratio of updates "
        "to train_every before they wait",
    )

    @property
    def ratio(self) -> ReplayRatio:
        """How often each row is learnt from, as a replay ratio."""
        return ReplayRatio(
            ratio=self.updates * self.batch_size / self.train_every, starts=self.learning_starts,
            batch=self.batch_size, unroll=self.unroll_length, slack=self.max_ahead * self.batch_size,
        )  # fmt: skip

    @property
    def replay_slots(self) -> int:
        """Number of unrolls that the replay holds."""
        return self.replay_size // self.unroll_length

    def tied_to_length(self) -> list[str]:
        """As SAC."""
        return super().tied_to_length()

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        super().check(environment)
        self.ratio.check(environment.count)
        if self.replay_slots < environment.count:
            least = environment.count * self.unroll_length
            raise cannot_be(
                "replay_size",
                self.replay_size,
                allowed=f"at least {least} (unroll_length * envs_per_actor)",
            )


ALGORITHM = replace(
    sac.ALGORITHM,
    name="async-sac",
    hyperparameters=AsyncSAC,
    trainer="agents.algorithms.async_sac:AsyncSACTrainer",
    actor="agents.algorithms.async_sac_acting:make_actor",
    replay_bytes="agents.algorithms.async_sac:replay_bytes",
    topology=ACTOR_LEARNER,
)
