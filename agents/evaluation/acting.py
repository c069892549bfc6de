"""A policy in the course of episodes, whether it remembers them or not."""

from __future__ import annotations

import numpy as np

from agents.interfaces import AnyPolicy, RecurrentPolicy


class Acting:
    """Plays one episode in each of `count` rows, from their first observations on."""

    def __init__(self, policy: AnyPolicy, count: int) -> None:
        self.policy, self._begins = policy, np.ones(count, np.bool_)
        self._state = policy.first_state(count) if isinstance(policy, RecurrentPolicy) else ()

    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """As of a `Policy`, for the next observation of every row."""
        allowed = {} if masks is None else {"masks": masks}
        if not isinstance(self.policy, RecurrentPolicy):
            return self.policy.act(observations, sample=sample, **allowed)
        actions, self._state = self.policy.act(
            observations, self._state, self._begins, sample=sample, **allowed
        )
        self._begins = np.zeros_like(self._begins)
        return actions
