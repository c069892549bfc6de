"""Experiments of self-play as their trainings leave them, with networks that have learnt nothing: for
the tests of what comes after a training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from agents.arena import opponents as arena_players
from agents.arena.opponents import Searching, monte_carlo
from agents.games.named import load_game
from agents.games.rules import Game
from agents.selfplay.policy import make_network
from agents.states import FORMAT, to_arrays
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory import checkpoints
from steps.directory.experiment import write_experiment
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.self_play import write_generation
from steps.directory.tables import format_table
from steps.prepare import describe
from tests import synthetic

GENERATIONS = 4


def experiment(root: Path, runs: int = 1, **given: object) -> ExperimentDirectory:
    """One that has trained: tic-tac-toe, a tiny network, a few simulations for each move."""
    parameters = {
        "game": "tic-tac-toe", "epochs": GENERATIONS, "blocks": 1, "channels": 8,
        "evaluation_simulations": 8, "evaluation_episodes": 4, "runs": runs, "outdir": root, **given,
    }  # fmt: skip
    resolved = resolve("alphazero", {name: str(value) for name, value in parameters.items()})
    directory = ExperimentDirectory(root)
    write_experiment(directory, describe(resolved))
    synthetic.status(directory.status / "prepare.json")
    for index in range(runs):
        trained(directory.run(index), resolved)
    return directory


def trained(run: RunDirectory, resolved: Resolved) -> None:
    """A finished run: tables, the final checkpoint, the networks of some generations."""
    identity = resolved.identity()
    for generation in range(0, resolved.epochs + 1, 2):
        write_generation(
            run, generation, state(resolved, seed=10 * run.index + generation), identity
        )
    step, final = resolved.total_steps, state(resolved, seed=10 * run.index + resolved.epochs)
    packed = checkpoints.pack(
        step=step, state=final, identity=identity, record={"epoch": resolved.epochs}
    )
    checkpoints.write(run, step, packed)
    rows = [training_row(epoch, resolved, run.index) for epoch in range(1, resolved.epochs + 1)]
    write_atomically(run.train_csv, format_table(list(rows[0]), rows))
    generator = np.random.default_rng(run.index)
    write_atomically(run.resources_csv, synthetic.resources_table(generator, resolved))
    details = {"training_win_rate": 55.0, "evaluate": True, "step": step}
    synthetic.status(run.status / "train.json", details=details)


def state(resolved: Resolved, seed: int) -> dict[str, object]:
    """Of a network that has learnt nothing."""
    generator = torch.Generator().manual_seed(seed)
    network = make_network(resolved.hyperparameters, load_game(resolved.game.id), generator)
    return {"format": FORMAT, "average": to_arrays(network.state_dict())}


def training_row(epoch: int, resolved: Resolved, run: int) -> dict[str, float]:
    """As the trainer writes it."""
    step = epoch * resolved.steps_per_epoch
    counted = {"epoch": epoch, "step": step, "frame": step, "episodes": 30}
    rates = {"win_rate_mean": 50.0 + epoch + run, "win_rate_min": 0.0, "win_rate_max": 100.0}
    return counted | rates | {"length_mean": 7.5, "policy_loss": 2 / epoch, "value_loss": 1 / epoch}


def hasty_ladder(patch: pytest.MonkeyPatch) -> None:
    """The players of the ladder under their names, with a fiftieth of their rollouts."""

    def hasty(game: Game, simulations: int) -> Searching:
        player = monte_carlo(game, max(1, simulations // 50))
        player.name = f"mcts-{simulations}"
        return player

    patch.setattr(arena_players, "monte_carlo", hasty)
