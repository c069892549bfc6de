"""Our side of the benchmark: training, and what this machine could do at best, each in isolation.

`python -m tests.benchmarks.our_worker SETTINGS.json KIND`, with the protocol of
`stable_baselines3_worker.py`. Kinds: `training` (steps are those of the agent), `emulator`
(environments stepped, nothing else), `inference` (the network on one observation of each
environment), `learning` (forward, backward and optimiser on the same rows as often as training uses
them).
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.algorithms.ppo import PPOTrainer
from agents.tape import GradientTape
from config.resolve import resolve


def training(trainer: PPOTrainer) -> Callable[[], int]:
    """One epoch; the trainer is given more of them than any benchmark lasts."""
    progress, before = trainer.train(), 0

    def epoch() -> int:
        nonlocal before
        before, taken = next(progress).step, before
        return before - taken

    return epoch


def emulator(trainer: PPOTrainer) -> Callable[[], int]:
    spaces, count = trainer.environments.interface, trainer.environments.count
    drawn: Iterator[np.ndarray] = itertools.cycle(
        np.random.default_rng(0).integers(0, spaces.actions, (997, count))
    )

    def step() -> int:
        trainer.environments.step(next(drawn))
        return count

    return step


def inference(trainer: PPOTrainer) -> Callable[[], int]:
    seen = trainer.network.encode(torch.from_numpy(trainer.environments.observation))
    network = trainer.network.frozen()

    @torch.inference_mode()
    def answer() -> int:
        network(seen)
        return len(seen)

    return answer


def learning(trainer: PPOTrainer) -> Callable[[], int]:
    next(trainer.train())
    encoded = trainer.rollout.encoded[:-1].flatten(0, 1)
    parts = torch.split(encoded, len(encoded) // trainer.hyper.minibatches)
    network = trainer.network

    def loss(rows: torch.Tensor) -> tuple[torch.Tensor]:
        policy, values = network(rows)
        return (policy.mean() + values.mean(),)

    gradients = GradientTape(loss, network.parameters(), recorded=network.is_small)

    def learn() -> int:
        for _ in range(trainer.hyper.update_epochs):
            for part in parts:
                gradients(part)
                trainer.optimiser.step(1e-8)
        return len(encoded)

    return learn


KINDS: dict[str, Callable[[PPOTrainer], Callable[[], int]]] = {
    "training": training, "emulator": emulator, "inference": inference, "learning": learning,
}  # fmt: skip


def main() -> None:
    """Serve segments until standard input ends."""
    settings: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    resolved = resolve("ppo", settings["given"])
    work = KINDS[sys.argv[2]](
        PPOTrainer(resolved, run=0, device="cpu", precision=settings["precision"])
    )
    work()  # warm
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        steps, started, computed = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - started < float(line):
            steps += work()
        print(
            json.dumps(
                {
                    "steps": steps,
                    "seconds": time.perf_counter() - started,
                    "cpu_seconds": time.process_time() - computed,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
