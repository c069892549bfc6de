"""A game that breaks, for fault 10, and one whose episode takes long to replay."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from typing import Any

import gymnasium
import numpy as np


class BreaksAtStep50(gymnasium.Env[np.ndarray, int]):
    """Ends an episode every 20 steps and breaks at its 50th step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 50:
            raise RuntimeError("the game broke")
        return np.zeros(2, np.float32), 1.0, self.steps % 20 == 0, False, {}


class Leaves(BreaksAtStep50):
    """Ends the process at its 50th step, in the way that `LEAVES` names, with exit code 0."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.steps == 49:
            way = os.environ.get("LEAVES", "")
            if way == "exit":
                sys.exit(0)
            if way == "interrupt":
                raise KeyboardInterrupt
            if way == "thread":
                threading.Thread(target=os._exit, args=(0,)).start()
                time.sleep(60)
            if way == "hard":
                os._exit(0)
        return super().step(action)


class Endless(BreaksAtStep50):
    """Never ends an episode and never breaks; each step takes `PAUSE_S` seconds, if that is set."""

    def __init__(self) -> None:
        super().__init__()
        self.pause_s = float(os.environ.get("PAUSE_S", "0"))

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(self.pause_s)
        return np.zeros(2, np.float32), 1.0, False, False, {}


class LeavesBehind(BreaksAtStep50):
    """Starts what `LEFT` names with every environment, and never ends it; breaks nothing else."""

    def __init__(self) -> None:
        super().__init__()
        left = os.environ["LEFT"]
        if left == "thread":
            threading.Thread(target=time.sleep, args=(120,), name="viewer").start()
        if left == "process":
            subprocess.Popen(["sleep", "120"])
        if left == "child":
            context = multiprocessing.get_context("spawn")
            context.Process(target=time.sleep, args=(120,), name="simulator").start()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps % 20 == 0, False, {}
