"""The hyperparameters of TD3, Fujimoto et al. 2018 (arXiv:1802.09477). Presets adapt them to each
game.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms import common_hyperparameters as common
from config.algorithms.descriptor import Algorithm
from config.algorithms.off_policy import TwinCritics, hidden_layers, random_steps
from config.parameters import parameter


@dataclass(frozen=True, kw_only=True)
class TD3(TwinCritics):
    """The defaults are those of Stable-Baselines3, with the paper's noise of exploration, which
    Stable-Baselines3 leaves to its user. The paper differs from them in its batches, of 100, and in
    the steps with random actions, 1,000 or 10,000.
    """

    learning_starts: int = random_steps(100)
    learning_rate: float = common.learning_rate(1e-3)
    hidden_sizes: tuple[int, ...] = hidden_layers((400, 300))
    policy_delay: int = parameter(
        2,
        low=1,
        high=10**6,
        unit="updates",
        help="updates of the critics for one of the policy, after which the target networks move",
    )
    exploration_noise: float = parameter(
        0.1,
        low=0,
        high=10,
        help="standard deviation of the noise on the policy's actions, for actions scaled to -1 ... 1",
    )
    target_noise: float = parameter(
        0.2,
        low=0,
        high=10,
        help="standard deviation of the noise on the target policy's actions, for actions scaled to "
        "-1 ... 1",
    )
    target_noise_clip: float = parameter(
        0.5,
        low=0,
        high=10,
        help="largest size of the noise on the target policy's actions, for actions scaled to -1 "
        "... 1",
    )

    tied_to_length = common.falling_learning_rate


ALGORITHM = Algorithm(
    name="td3",
    hyperparameters=TD3,
    trainer="agents.algorithms.td3:TD3Trainer",
    policy="agents.evaluation.policies:NoisyPolicy",
    precision_probe="agents.checks.precision:measure",
    replay_bytes="agents.experience.replay:replay_bytes",
    families=("continuous",),
    bounded_actions=True,
)
