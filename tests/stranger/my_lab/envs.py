"""A maze whose observation is a Dict that also says which steps a wall forbids; a forbidden step
raises, so that whoever ignores the mask is found out."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))


class Maze(gymnasium.Env[dict[str, Any], np.int64]):
    """size x size rooms; the way out is in the opposite corner, and every step costs."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - gymnasium's form

    def __init__(self, size: int = 4, render_mode: str | None = None) -> None:
        self.size, self.render_mode = size, render_mode
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.Dict(
            {
                "room": spaces.MultiDiscrete([size, size]),
                "distance": spaces.Box(0, 2 * size, (1,), np.float32),
                "action_mask": spaces.MultiBinary(4),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.room = self.np_random.integers(0, self.size - 1, 2)
        return self._seen(), {}

    def step(self, action: np.int64) -> Any:
        seen = self._seen()
        if not seen["action_mask"][action]:
            raise ValueError(f"there is a wall: step {action} from {self.room}")
        self.room = self.room + STEPS[action]
        out = bool((self.room == self.size - 1).all())
        return self._seen(), 1.0 if out else -0.1, out, False, {}

    def render(self) -> Any:
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[-1, -1] = (0, 200, 0)
        picture[tuple(self.room)] = 255
        return picture.repeat(32, axis=0).repeat(32, axis=1)

    def _seen(self) -> dict[str, Any]:
        reached = [self.room + step for step in STEPS]
        inside = [((room >= 0) & (room < self.size)).all() for room in reached]
        distance = np.array([2 * self.size - 2 - self.room.sum()], np.float32)
        mask = np.array(inside, np.int8)
        return {"room": self.room.copy(), "distance": distance, "action_mask": mask}
