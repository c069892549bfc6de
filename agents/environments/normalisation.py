"""Running statistics of observations and rewards: learnt in training, saved with the agent, frozen
in evaluation.

Statistics change only between rollouts, by `update`. So the policy that acted and the policy that
learns from the same rollout see the same numbers, and the log-probabilities of both belong to one
another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.interfaces import State

if TYPE_CHECKING:
    from agents.spaces import Interface
    from config.resolved import Resolved

CLIP = 10.0
"""Normalised numbers beyond this many deviations are cut: a rare spike must not destroy a
network."""

REWARD_SCALE = tuple(f"reward_normaliser.{name}" for name in ("mean", "variance", "count"))
"""The entry of a training's state with the scale of rewards, in whose unit its values are. The
returns in flight beside it belong to the training's own episodes.
"""


class RunningStatistics:
    """Mean and variance of rows, merged block by block (Chan et al. 1979, parallel variance)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = 0.0

    def update(self, rows: np.ndarray) -> None:
        """Rows [B, *shape]; an empty block changes nothing."""
        if len(rows) == 0:
            return
        # float32 would lose the variance of large numbers.
        rows = rows.astype(np.float64)
        self.merge(rows.mean(axis=0), rows.var(axis=0), float(len(rows)))

    def merge(self, mean: np.ndarray, variance: np.ndarray, count: float) -> None:
        """A block of so many rows with this mean and variance, both [*shape]."""
        if count == 0:
            return
        # Chan et al. 1979: the variances of both blocks, and that between their means.
        total = self.count + count
        shift = mean - self.mean
        self.variance = (
            self.variance * self.count + variance * count + shift**2 * (self.count * count / total)
        ) / total
        self.mean = self.mean + shift * (count / total)
        self.count = total

    def state_dict(self) -> State:
        """mean, variance, count."""
        return {"mean": self.mean.copy(), "variance": self.variance.copy(), "count": self.count}

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave."""
        self.mean = np.array(state["mean"])
        self.variance = np.array(state["variance"])
        self.count = float(state["count"])


class ObservationNormaliser:
    """(o − mean) · inverse_deviation, clipped to ±`CLIP`; both are float32 [*shape], frozen unless
    `update` is called.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.statistics = RunningStatistics(shape)
        self._freeze()

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Observations [N, *shape] -> [N, *shape], float32."""
        normalised: np.ndarray = observations - self.mean
        normalised *= self.inverse_deviation
        # np.clip does the same in 1.7 times the time.
        np.maximum(normalised, -CLIP, out=normalised)
        np.minimum(normalised, CLIP, out=normalised)
        return normalised.astype(np.float32, copy=False)

    def update(self, rows: np.ndarray) -> None:
        """Learn from the valid rows of a rollout, [B, *shape]."""
        self.statistics.update(rows)
        self._freeze()

    def merge(self, mean: np.ndarray, variance: np.ndarray, count: float) -> None:
        """Learn from a block of which only this is known; see `RunningStatistics.merge`."""
        self.statistics.merge(mean, variance, count)
        self._freeze()

    def state_dict(self) -> State:
        """The statistics."""
        return self.statistics.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave."""
        self.statistics.load_state_dict(state)
        self._freeze()

    def _freeze(self) -> None:
        self.mean = self.statistics.mean.astype(np.float32)
        # The constant keeps numbers that never change from being divided by 0.
        self.inverse_deviation = (1.0 / np.sqrt(self.statistics.variance + 1e-8)).astype(np.float32)


def make_observation_normaliser(
    resolved: Resolved, spaces: Interface
) -> ObservationNormaliser | None:
    """The normaliser if the parameters ask for one and observations are not images, else None."""
    if spaces.image or not resolved.environment.normalise_observations:
        return None
    return ObservationNormaliser(spaces.environment_shape)


class RewardNormaliser:
    """r / deviation of the discounted return, as in openai/baselines' VecNormalize: the scale of
    rewards stops to matter.

    Never subtracts the mean: that would change which policy is best.
    """

    def __init__(self, num_envs: int, discount: float) -> None:
        self.statistics = RunningStatistics(())
        self._discount = discount
        self._discounted_return = np.zeros(num_envs)

    def __call__(self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Learn from a rollout's valid rows and return all rewards scaled; all [T, N], ended:
        terminated or truncated.
        """
        returns = np.empty(rewards.shape)
        for t in range(len(rewards)):
            self._discounted_return = self._discounted_return * self._discount + rewards[t]
            returns[t] = self._discounted_return
            # The return is cleared after the row is recorded: an episode's last reward belongs to
            # its return.
            self._discounted_return = self._discounted_return * ~ended[t]
        self.statistics.update(returns[valid])
        scaled = rewards / np.sqrt(self.statistics.variance + 1e-8)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def forget(self, environments: np.ndarray) -> None:
        """Drop the returns in flight of these environments, bool [N], whose episodes could not be
        brought back.
        """
        self._discounted_return[environments] = 0

    def state_dict(self) -> State:
        """Statistics and the discounted returns in flight [N]."""
        return {**self.statistics.state_dict(), "discounted_return": self._discounted_return.copy()}

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave."""
        self.statistics.load_state_dict(state)
        self._discounted_return = np.array(state["discounted_return"])
