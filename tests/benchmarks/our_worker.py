"""Our side of the benchmark: training, and what this machine could do at best, each in isolation.

`python -m tests.benchmarks.our_worker SETTINGS.json KIND`, with the protocol of `segments.py`. Kinds:
`training` (steps are those of the agent), `emulator` (environments stepped, nothing else), `inference`
(the network on one observation of each environment), `learning` (forward, backward and optimiser on
the same rows as often as training uses them).
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.environments.training import TrainingEnvironments
from agents.optimisation.gradients import Gradients
from config.imports import imported
from config.resolve import resolve
from tests.benchmarks.segments import Work, serve


def training(trainer: Any) -> Work:
    """One epoch; the trainer is given more of them than any benchmark lasts."""
    progress, before = trainer.train(), 0

    def epoch() -> int:
        nonlocal before
        before, taken = next(progress).step, before
        return before - taken

    return epoch


def environments_of(trainer: Any) -> TrainingEnvironments:
    """Those that step: the trainer's own, or those that fill its replay."""
    found: TrainingEnvironments = getattr(trainer, "collection", trainer).environments
    return found


def emulator(trainer: Any) -> Work:
    environments, generator = environments_of(trainer), np.random.default_rng(0)
    spaces, count = environments.interface, environments.count
    if spaces.continuous:
        drawn = generator.uniform(-1, 1, (997, count, spaces.actions)).astype(np.float32)
    else:
        drawn = generator.integers(0, spaces.actions, (997, count))
    actions = itertools.cycle(drawn)

    def step() -> int:
        environments.step(next(actions))
        return count

    return step


def inference(trainer: Any) -> Work:
    """What acts in a training, on one observation of each environment."""
    environments, network = environments_of(trainer), trainer.network
    seen = network.encode(torch.from_numpy(environments.observation))
    acting = network.acting() if hasattr(network, "acting") else network.frozen()
    if hasattr(network, "first_state"):
        acting = remembering(acting, network.first_state(seen), len(seen))

    @torch.inference_mode()
    def answer() -> int:
        acting(seen)
        return len(seen)

    return answer


def remembering(step: Any, state: Any, count: int) -> Callable[[torch.Tensor], Any]:
    """A recurrent network in the middle of an episode."""
    begins = torch.zeros(count, dtype=torch.bool)
    return lambda seen: step(seen, state, begins)


def learning(trainer: Any) -> Work:
    """What a training's first updates have learnt from, again and again."""
    return LEARNING[trainer.resolved.algorithm](trainer)


def learning_of_ppo(trainer: Any) -> Work:
    next(trainer.train())
    if trainer.compiled is not None:
        return learning_by_machine_code(trainer)
    encoded = trainer.rollout.encoded[:-1].flatten(0, 1)
    parts = torch.split(encoded, len(encoded) // trainer.hyper.minibatches)
    network = trainer.network

    def loss(rows: torch.Tensor) -> tuple[torch.Tensor]:
        policy, values = network(rows)
        return (policy.mean() + values.mean(),)

    gradients = Gradients(loss, network.parameters())

    def learn() -> int:
        for _ in range(trainer.hyper.update_epochs):
            for part in parts:
                gradients(part)
                trainer.optimiser.step(1e-8)
        return len(encoded)

    return learn


def learning_by_machine_code(trainer: Any) -> Work:
    """All passes over one rollout."""
    batch = trainer._batch()

    def learn() -> int:
        trainer.compiled.learn(batch, 1e-8, trainer.hyper.clip)
        return len(batch.returns)

    return learn


def learning_of_ppo_lstm(trainer: Any) -> Work:
    """All passes over one rollout."""
    next(trainer.train())
    batch, clip = trainer._batch(), torch.tensor(trainer.hyper.clip)

    def learn() -> int:
        for minibatches in trainer._passes(batch):
            for minibatch in minibatches:
                trainer._update(minibatch, 1e-8, clip)
        steps: int = trainer.rollout.rewards.size
        return steps

    return learn


def learning_of_dqn(trainer: Any) -> Work:
    """A round of updates on the batches of the first one."""
    fill(trainer)
    count = trainer.hyper.updates
    _, batch = trainer._sample(count)

    def learn() -> int:
        for _ in trainer._learnt(batch, count):
            pass
        steps: int = trainer.hyper.train_every
        return steps

    return learn


def learning_of_twin_critics(trainer: Any) -> Work:
    fill(trainer)
    batch = trainer._batch()
    trainer._batch = lambda: batch

    def learn() -> int:
        for _ in range(trainer.hyper.updates):
            trainer._update()
        steps: int = trainer.hyper.train_every
        return steps

    return learn


def fill(trainer: Any) -> None:
    """Train until something was learnt, so that the replay can be sampled."""
    for progress in trainer.train():
        if progress.step > trainer.hyper.learning_starts:
            break


KINDS: dict[str, Callable[[Any], Work]] = {
    "training": training, "emulator": emulator, "inference": inference, "learning": learning,
}  # fmt: skip
LEARNING: dict[str, Callable[[Any], Work]] = {
    "ppo": learning_of_ppo, "ppo-lstm": learning_of_ppo_lstm, "dqn": learning_of_dqn,
    "sac": learning_of_twin_critics, "td3": learning_of_twin_critics,
}  # fmt: skip


def main() -> None:
    """Serve segments until standard input ends."""
    settings: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    resolved = resolve(settings["algorithm"], settings["given"])
    make_trainer = imported(resolved.descriptor.trainer, "trainer")
    if settings["algorithm"] == "ppo":
        # Imports are not counted on either side: jax, too, is there before the clock starts.
        importlib.import_module("agents.compiled.fast_ppo")
    started, computed = time.perf_counter(), time.process_time()
    work = KINDS[sys.argv[2]](
        make_trainer(resolved, run=0, device="cpu", precision=settings["precision"])
    )
    work()  # warm
    compilation = {
        "compilation_s": time.perf_counter() - started,
        "compilation_cpu_s": time.process_time() - computed,
    }
    if sys.argv[2] == "training" and hasattr(resolved.hyperparameters, "learning_starts"):
        for _ in range(resolved.hyperparameters.learning_starts // resolved.steps_per_epoch + 1):
            work()
    serve(work, **compilation)


if __name__ == "__main__":
    main()
