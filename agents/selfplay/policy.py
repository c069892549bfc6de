"""The player of a checkpoint, or of a kept network: what an arena asks of what was learnt."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agents.games.interfaces import Game
from agents.games.load import load_game
from agents.interfaces import State
from agents.networks.board import evaluator
from agents.search.interfaces import Evaluate, SearchSettings
from agents.selfplay.network import make_network, search_settings
from agents.states import check_format, to_tensors
from config.resolve import Resolved

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
    torch.set_num_threads(resolved.experiment.threads)
    game, hyper = load_game(resolved.game.id), resolved.hyperparameters
    network = make_network(hyper, game, torch.Generator())
    network.load_state_dict(to_tensors(state[AVERAGE]))
    return SelfPlayPolicy(
        game, evaluator(network.to(device)), search_settings(hyper), hyper.evaluation_simulations
    )
