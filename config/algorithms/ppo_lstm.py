"""The hyperparameters of recurrent PPO (agents/algorithms/ppo_lstm.py): those of PPO and a few
more.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.algorithms.descriptor import FAMILIES, Algorithm
from config.algorithms.ppo import PPO
from config.environment import EnvironmentSettings
from config.imports import IMPORT_PATH
from config.parameters import cannot_be, parameter


@dataclass(frozen=True, kw_only=True)
class RecurrentPPO(PPO):
    """The defaults are PPO's, with the network that the tuned settings of rl-baselines3-zoo share."""

    sequence_length: int = parameter(
        32,
        low=1,
        high=65_536,
        unit="steps",
        help="steps of one environment that are learnt from as one sequence",
    )
    minibatches: int = parameter(
        4,
        low=1,
        high=65_536,
        help="equal parts of whole sequences into which the batch is split, with one update each",
    )
    lstm_size: int = parameter(64, low=1, high=8192, help="units of each LSTM")
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso, which may be recurrent; empty: one LSTM each for policy and "
        "value, or for images one LSTM after a convolutional network",
    )
    hidden_sizes: tuple[int, ...] = parameter(
        (64,),
        low=1,
        high=8192,
        help="units of the layers after the LSTM for vector observations; not used for images",
    )

    def tied_to_length(self) -> list[str]:
        """As PPO."""
        return super().tied_to_length()

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""
        super().check(environment)
        if self.rollout_length % self.sequence_length:
            raise cannot_be(
                "sequence_length",
                self.sequence_length,
                allowed=f"a divisor of rollout_length, {self.rollout_length}",
            )
        sequences = environment.count * self.rollout_length // self.sequence_length
        if sequences % self.minibatches:
            product = f"num_envs * rollout_length / sequence_length = {sequences}"
            raise cannot_be("minibatches", self.minibatches, allowed=f"a divisor of {product}")


ALGORITHM = Algorithm(
    name="ppo-lstm",
    hyperparameters=RecurrentPPO,
    trainer="agents.algorithms.ppo_lstm:RecurrentPPOTrainer",
    policy="agents.evaluation.policies:TrainedRecurrentPolicy",
    families=FAMILIES,
    precision_probe="agents.checks.precision:measure",
    rollout_bytes="agents.experience.rollout_sizes:of_rollout",
    remembers=True,
)
