"""The hyperparameters of SAC, Haarnoja et al. 2018 (arXiv:1812.05905). Presets adapt them to each
game.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms import common_hyperparameters as common
from config.algorithms.descriptor import Algorithm
from config.algorithms.off_policy import TwinCritics
from config.environment import EnvironmentSettings
from config.parameters import cannot_be, parameter


@dataclass(frozen=True, kw_only=True)
class SAC(TwinCritics):
    """The defaults are those of Stable-Baselines3, which are the paper's, with its later
    `learning_starts`.
    """

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

    tied_to_length = common.falling_learning_rate

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        super().check(environment)
        if self.alpha is not None and self.target_entropy is not None:
            fixed = f"with a fixed alpha, {self.alpha:g}"
            raise cannot_be("target_entropy", self.target_entropy, fixed, allowed="empty")


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
