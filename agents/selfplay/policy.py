"""The player of a checkpoint, or of a kept network: what an arena asks of what was learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from agents.games.named import load_game
from agents.games.rules import Game
from agents.interfaces import State
from agents.networks.board_games import BoardNetwork, OwnHeads, ResidualTower, evaluator
from agents.search.evaluator import Evaluate, SearchSettings
from agents.states import check_format, to_tensors
from config.resolved import Resolved

AVERAGE = "average"
"""The entry of a state with the weights that play: the exponential average of what was learnt."""


@dataclass(frozen=True)
class SelfPlayPolicy:
    """A trained network and the search around it. simulations: for each move."""

    game: Game
    evaluate: Evaluate
    settings: SearchSettings
    simulations: int


def load(resolved: Resolved, state: State, device: str = "cpu") -> SelfPlayPolicy:
    """The player of a state, on a device and with the experiment's threads. Raises `NoUsableState` for a
    state of another format, and `BadInput` for a game that cannot be loaded.
    """
    check_format(state)
    # Equal numbers of threads give equal bits: sums of floats depend on the order in which they are
    # added.
    torch.set_num_threads(resolved.experiment.threads)
    game = load_game(resolved.game.id)
    hyper = resolved.hyperparameters
    # The first weights do not matter: the state's replace them.
    network = make_network(hyper, game, torch.Generator())
    network.load_state_dict(to_tensors(state[AVERAGE]))
    return SelfPlayPolicy(
        game, evaluator(network.to(device)), search_settings(hyper), hyper.evaluation_simulations
    )


def make_network(hyper: Any, game: Game, generator: torch.Generator) -> BoardNetwork:
    """On the CPU, its weights drawn from `generator` alone. Raises `BadInput` for a person's own that
    breaks its promises.
    """
    if hyper.network is not None:
        return OwnHeads(hyper.network, game, generator)
    return ResidualTower(
        game.planes, game.actions, blocks=hyper.blocks, channels=hyper.channels, generator=generator
    )


def search_settings(hyper: Any) -> SearchSettings:
    """The settings of the search, from the hyperparameters."""
    return SearchSettings(
        c_init=hyper.c_init, noise_fraction=hyper.noise_fraction,
        dirichlet_alpha=hyper.dirichlet_alpha, gumbel=hyper.gumbel,
    )  # fmt: skip


def check_board_game(resolved: Resolved) -> Game:
    """The game, which two players can play, and the network, of a person's own, that sees it; raises
    `BadInput` for what cannot be loaded or breaks its promises.
    """
    game = load_game(resolved.game.id)
    if resolved.network is not None:
        OwnHeads(resolved.network, game, torch.Generator())
    return game
