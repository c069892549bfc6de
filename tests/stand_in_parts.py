"""The environment, the trainer and the policy of `tests.stand_in`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.interfaces import Progress, State
from config.resolved import Resolved
from tests.stand_in import EPISODES, EPOCHS_DONE, height


class Given(gymnasium.Env[np.ndarray, np.ndarray]):
    """An episode is one action, and its return is that action."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        return np.zeros(1, np.float32), float(action[0]), True, False, {}


class Trainer:
    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        self.resolved, self.hyper = resolved, resolved.hyperparameters
        self.run, self.epoch, self.step = run, 0, 0

    def train(self) -> Iterator[Progress]:
        while self.epoch < self.resolved.epochs:
            time.sleep(self.hyper.pause)
            if self.hyper.quality >= self.hyper.fails:
                raise RuntimeError("this stand-in fails")
            self.epoch, self.step = self.epoch + 1, self.step + EPISODES
            note(f"{self.hyper.quality} {self.run} {self.epoch}")
            value = height(self.hyper.quality, self.hyper.patience, self.epoch)
            yield Progress(
                epoch=self.epoch, step=self.step, frame=self.step, returns=[value] * EPISODES,
                lengths=[1] * EPISODES,
            )  # fmt: skip

    def state_dict(self) -> State:
        return {"epoch": self.epoch, "step": self.step, "quality": self.hyper.quality}

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        self.epoch, self.step = state["epoch"], state["step"]

    def close(self) -> None:
        pass


class Policy:
    def __init__(self, resolved: Resolved, state: State) -> None:
        self.quality = state["quality"]

    def seed(self, seeds: Sequence[int]) -> None:
        pass

    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        return np.full((len(observations), 1), self.quality, np.float32)


def note(line: str) -> None:
    """Add a line to the list of all epochs that any training did, also in vain."""
    with (Path(os.environ["STORAGE"]) / EPOCHS_DONE).open("a") as file:
        file.write(f"{line}\n")
