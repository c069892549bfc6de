"""The network that an experiment asks for."""

from __future__ import annotations

from typing import Any

import torch

from agents.games.interfaces import Game
from agents.games.load import load_game
from agents.networks.board import BoardNetwork, OwnHeads
from agents.networks.residual import ResidualTower
from agents.search.interfaces import SearchSettings
from config.resolve import Resolved


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
    """As the hyperparameters say."""
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
