"""CartPole and Pendulum without velocities: how fast they move must be remembered from step to step.

rl-baselines3-zoo's CartPoleNoVel-v1 and PendulumNoVel-v1 set the velocities to 0, here they are
left out. Whoever imports this module can make both by their ids.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv

POSITION = 0
ANGLE = 2
"""Components of CartPole's observation; 1 and 3 are their velocities."""
COSINE = 0
SINE = 1
"""Components of Pendulum's observation, of its angle; 2 is the velocity."""


class Partial(gymnasium.ObservationWrapper[np.ndarray, Any, np.ndarray]):
    """Shows these components of a vector alone, in this order."""

    def __init__(self, environment: gymnasium.Env[Any, Any], *components: int) -> None:
        super().__init__(environment)
        self._components = list(components)
        space: Any = environment.observation_space
        low = space.low[self._components]
        high = space.high[self._components]
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """All components -> those that are shown."""
        return observation[self._components]


def cartpole(render_mode: str | None = None, sutton_barto_reward: bool = False) -> Partial:
    """Position and angle, [2]."""
    return Partial(CartPoleEnv(sutton_barto_reward, render_mode), POSITION, ANGLE)


def pendulum(render_mode: str | None = None, g: float = 10.0) -> Partial:
    """Cosine and sine of the angle, [2]."""
    return Partial(PendulumEnv(render_mode, g), COSINE, SINE)


gymnasium.register(
    "CartPoleNoVelocity-v1", f"{__name__}:cartpole", reward_threshold=475, max_episode_steps=500
)
gymnasium.register("PendulumNoVelocity-v1", f"{__name__}:pendulum", max_episode_steps=200)
