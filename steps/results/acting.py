"""A trained policy for a person at the keyboard: one observation or many, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from config.errors import BadInput

if TYPE_CHECKING:
    from agents.interfaces import Policy

LARGEST_SEED = 2**32


class TrainedAgent:
    """The final policy of a run, on the CPU, its observation statistics frozen.

    policy: as `evaluate` plays it; step: environment steps that it was trained for.
    """

    def __init__(self, policy: Policy, step: int) -> None:
        self.policy, self.step = policy, step
        self._generator = np.random.default_rng()

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Of one observation as the environment gives it; images are uint8."""
        return self.policy.spaces.environment_shape

    def act(
        self,
        observation: Any,
        *,
        sample: bool = False,
        seed: int | None = None,
        action_mask: Any = None,
    ) -> np.ndarray:
        """Observations [N, *shape] -> actions [N, ...]; one observation [*shape] -> its action.

        Observations are as the environment gives them (what is no Box, flattened by gymnasium),
        actions as it takes them. sample: draw from the policy instead of its most probable action;
        seed: an integer from 0, after which the draws are the same again; action_mask: of each
        observation, ones for the actions that are allowed. Raises `BadInput` for another shape, for
        what are no numbers, and for images that are not uint8.
        """
        observations, is_one = self._batch(observation)
        if seed is not None:
            self._generator = np.random.default_rng(_checked_seed(seed))
        if sample:
            seeds = self._generator.integers(LARGEST_SEED, size=len(observations))
            self.policy.seed(seeds.tolist())
        masks = {} if action_mask is None else {"masks": self._masks(action_mask, observations)}
        actions = self.policy.act(observations, sample=sample, **masks)
        return actions[0] if is_one else actions

    def _batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """The observations [N, *shape], and whether it was a single one."""
        shape = self.observation_shape
        try:
            values = np.asarray(observation)
        except ValueError as error:
            raise BadInput(f"observation is no array: {error}") from None
        is_one = values.shape == shape
        if not is_one and (values.shape[1:] != shape or values.size == 0):
            allowed = f"{shape}, or N of them: {('N', *shape)}"
            raise BadInput(f"observation has the shape {values.shape}; allowed: {allowed}")
        if self.policy.spaces.image and values.dtype != np.uint8:
            raise BadInput(f"observation is an image of {values.dtype}; allowed: uint8")
        if values.dtype.kind not in "biuf":
            raise BadInput(f"observation holds {values.dtype}; allowed: numbers")
        return values[None] if is_one else values, is_one

    def _masks(self, action_mask: Any, observations: np.ndarray) -> np.ndarray:
        masks = np.atleast_2d(np.asarray(action_mask)).astype(np.bool_)
        expected = (len(observations), self.policy.spaces.policy_outputs)
        if self.policy.spaces.continuous or masks.shape != expected:
            raise BadInput(f"action_mask has the shape {masks.shape}; allowed: {expected}")
        return masks


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise BadInput(f"seed cannot be {seed!r}; allowed: an integer from 0")
    return int(seed)
