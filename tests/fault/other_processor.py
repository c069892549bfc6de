"""`steps.train` on a processor where a probe says what a test wants, as a module that `start` can
run.

RATIO: how many times as fast as fp32 bf16 is there; MEET: a file that both of two trainings must
have left before either of them has its figures; without RATIO the real probe measures, and a probe
that finds bf16 infinitely dear.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import agents.checks.precision
import agents.devices
from agents.devices import Trials
from config.resolved import Resolved
from steps import train


def _measure(resolved: Resolved, device: str) -> Trials:
    print("the probe ran", flush=True)
    if meet := os.environ.get("MEET"):
        (Path(meet) / str(os.getpid())).touch()
        end = time.monotonic() + 60
        while len(list(Path(meet).iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.005)
    times = (float(os.environ["RATIO"]),) * 3
    return Trials(rows=32, threads=1, fp32_s=times, bf16_s=(1.0,) * 3)


def main(argv: Sequence[str]) -> int:
    """The exit code of the training."""
    agents.devices.computes_bf16 = lambda device: True
    if "RATIO" in os.environ:
        agents.checks.precision.measure = _measure
    else:
        agents.devices.LEAST_RATIO = float("inf")
    random.seed(
        0
    )  # as a game may do when it is imported, and then draw from the process's own generators
    np.random.seed(0)
    torch.manual_seed(0)
    return train.main(argv)
