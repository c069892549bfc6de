"""A trainer that learns nothing and whose curve is known: for tests of searches.

After epoch e every training episode returns `quality · (1 - exp(-e / patience))`, and the final policy returns
`quality` in its evaluation.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.interfaces import Progress, State
from config.algorithms.descriptor import Algorithm
from config.environment import EnvironmentSettings
from config.parameters import parameter
from config.resolve import Resolved

EPOCHS_DONE = "epochs.txt"
EPISODES = 4
"""That end in an epoch, of one step each."""


class Given(gymnasium.Env[np.ndarray, np.ndarray]):
    """An episode is one action, and its return is that action."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        return np.zeros(1, np.float32), float(action[0]), True, False, {}


@dataclass(frozen=True, kw_only=True)
class Known:
    quality: float = parameter(0.5, low=0, high=1, help="what the final policy returns")
    patience: float = parameter(3.0, low=0.1, high=100, help="epochs until most is learnt")
    pause: float = parameter(0.0, low=0, high=10, unit="s", help="time of an epoch")
    fails: float = parameter(2.0, low=0, high=2, help="quality from which on a training fails")

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        return EPISODES

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        return 0

    def check(self, environment: EnvironmentSettings) -> None:
        pass


ALGORITHM = Algorithm(
    name="stand-in",
    hyperparameters=Known,
    trainer="tests.stand_in:Trainer",
    policy="tests.stand_in:Policy",
    families=("continuous",),
)
GAME = "tests.stand_in:Given"


def height(quality: float, patience: float, epoch: int) -> float:
    """What an episode returns in training."""
    return quality * (1 - math.exp(-epoch / patience))


def note(line: str) -> None:
    """Add a line to the list of all epochs that any training did, also in vain."""
    with (Path(os.environ["STORAGE"]) / EPOCHS_DONE).open("a") as file:
        file.write(f"{line}\n")


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


FILE = f"""\
outdir: OUTDIR
runs: 2
algorithms: ['{__name__}:ALGORITHM']
games: ['{GAME}']
parameters: {{epochs: 30, evaluation_episodes: 2, device: cpu, checkpoint_interval: 1, log_interval: 1}}
search:
  parameters: {{quality: {{low: 0, high: 1}}, patience: {{low: 1, high: 4}}}}
  sampler: random
  trials: 12
  parallel: 2
  prune: {{rungs: [0.1, 0.3, 1.0], reduction: 3}}
  then: {{best: 1, runs: 2, seed: 1000}}
"""
"""A search of it, with a place for the directory."""
