"""Two wrappers: one of gymnasium's with its arguments, one of the lab's own."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit


def within_fifty_steps(environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """What gives a wrapper its arguments."""
    return TimeLimit(environment, max_episode_steps=50)


class Impatient(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Every step costs a little more."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return (observation, float(reward) - 0.01, *rest)
