"""A trained policy for interactive use: takes one observation or many, and checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from config.errors import BadInput

if TYPE_CHECKING:
    from agents.interfaces import AnyPolicy, PolicyState

LARGEST_SEED = 2**32


class TrainedAgent:
    """The final policy of a run, on the CPU, with its observation statistics frozen.

    policy: as `evaluate` plays it. step: number of environment steps that it was trained for.
    threads: with how many of torch's threads it computes.
    """

    def __init__(self, policy: AnyPolicy, step: int, threads: int = 1) -> None:
        self.policy = policy
        self.step = step
        self._threads = threads
        self._generator = np.random.default_rng()

    @property
    def remembers(self) -> bool:
        """Whether `act` depends on earlier observations, and so takes and returns a state."""
        return hasattr(self.policy, "first_state")

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation as the environment gives it. Images are uint8."""
        return self.policy.spaces.environment_shape

    def act(
        self,
        observation: Any,
        state: PolicyState | None = None,
        *,
        reset: Any = None,
        sample: bool = False,
        seed: int | None = None,
        action_mask: Any = None,
    ) -> Any:
        """Observations [N, *shape] -> actions [N, ...]; one observation [*shape] -> its action.

        Observations are as the environment gives them (what is no Box, flattened by gymnasium),
        actions as it takes them. sample: draw from the policy instead of its most probable action;
        seed: an integer from 0, after which the draws are the same again; action_mask: of each
        observation, ones for the actions that are allowed. Raises `BadInput` for another shape, for
        what are no finite numbers, and for images that are not uint8.

        An agent that remembers answers with (actions, state): the state goes with the next
        observations of the same episodes; without one they begin, and so do those of the N where
        `reset` says so.
        """
        from agents.devices import threads

        with threads(self._threads):
            return self._act(
                observation, state, reset=reset, sample=sample, seed=seed, action_mask=action_mask
            )

    def _act(
        self, observation: Any, state: PolicyState | None, *, reset: Any, sample: bool,
        seed: int | None, action_mask: Any,
    ) -> Any:  # fmt: skip
        observations, is_one = self._batch(observation)
        if seed is not None:
            self._generator = np.random.default_rng(_checked_seed(seed))
        if sample:
            seeds = self._generator.integers(LARGEST_SEED, size=len(observations))
            self.policy.seed(seeds.tolist())
        how: dict[str, Any] = {"sample": sample}
        if action_mask is not None:
            how["masks"] = self._masks(action_mask, observations)
        policy: Any = self.policy
        if not self.remembers:
            if state or reset is not None:
                raise BadInput("this agent remembers nothing; allowed: no state, no reset")
            actions = policy.act(observations, **how)
            return actions[0] if is_one else actions
        before = self._before(state, reset, len(observations))
        actions, after = policy.act(observations, *before, **how)
        if is_one:
            return actions[0], after
        return actions, after

    def _before(
        self, state: PolicyState | None, reset: Any, count: int
    ) -> tuple[PolicyState, np.ndarray]:
        """The remembered state of `count` episodes, and which of them begin, bool [count]."""
        policy: Any = self.policy
        first: PolicyState = policy.first_state(count)
        if state is None:
            return first, np.ones(count, np.bool_)
        expected = [part.shape for part in first]
        given = [np.shape(part) for part in state]
        if given != expected:
            raise BadInput(f"state has the shapes {given}; allowed: {expected}, as act returned it")
        begins = np.zeros(count, np.bool_) if reset is None else np.atleast_1d(reset).astype(bool)
        if begins.shape != (count,):
            raise BadInput(f"reset has the shape {begins.shape}; allowed: {(count,)}")
        return state, begins

    def _batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """The observations [N, *shape], and whether a single one was given."""
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
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            # A network answers with some action, which nobody could tell from a good one.
            raise BadInput("observation holds NaN or infinity; allowed: finite numbers")
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
