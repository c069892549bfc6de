"""Algorithms with a replay and actors, in one thread, in turn: see `tests.local_actors`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agents.distributed.protocol import Columns, Version, Weights
from agents.distributed.stepping import Acting, Play
from agents.environments.training import TrainingEnvironments
from agents.load import make_learner
from config.parameters import to_text
from config.resolve import resolve
from config.resolved import Resolved

SMALL = {
    "r2d2": {
        "envs_per_actor": 3, "unroll_length": 7, "burn_in": 2, "batch_size": 6, "learning_starts": 60,
        "epoch_updates": 3, "epochs": 3, "lstm_size": 6, "hidden_sizes": 5, "max_ahead": 30,
        "normalise_observations": "false",
    },
    "async-sac": {
        "envs_per_actor": 2, "unroll_length": 5, "batch_size": 8, "learning_starts": 40,
        "epoch_steps": 60, "epochs": 3, "hidden_sizes": 8, "max_ahead": 30,
    },
}  # fmt: skip


def replayed(algorithm: str, game: str, **given: object) -> Resolved:
    """A small experiment of one of these algorithms."""
    texts = {name: to_text(value) for name, value in given.items()}
    small = {name: str(value) for name, value in SMALL[algorithm].items()}
    return resolve(algorithm, {"game": game, "outdir": "/x"} | small | texts)


def learner(resolved: Resolved) -> Any:
    """Its trainer, which waits for nothing."""
    trainer: Any = make_learner(resolved, run=0, device="cpu", precision="fp32")
    trainer.experience.wait_s = 0
    return trainer


def played(
    resolved: Resolved, make_acting: Any, weights: Columns | None, steps: int, overlap: int = 0
) -> tuple[Columns, Acting]:
    """All unrolls of one actor that plays so many steps, and how it acts; weights: of update 1."""
    environments = TrainingEnvironments(resolved, 0, 1)
    acting = make_acting(resolved, environments, run=0, number=1)
    if weights is not None:
        acting.load(Weights(version=Version(1, 1), arrays=weights))
    play = Play(environments, acting, resolved.hyperparameters.unroll_length, overlap)
    parts = list[Columns]()
    for _ in range(steps):
        play.step()
        unrolls = play.take(1)
        if unrolls is not None:
            parts.append(unrolls.columns)
    environments.close()
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}, acting


class Forgetful(nn.Module):
    """A torso without a memory, as wide as the presets' LSTM."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 64)

    def forward(self, encoded: Tensor, state: tuple[()], reset: Tensor) -> tuple[Tensor, tuple[()]]:
        return torch.relu(self.layer(encoded)), ()
