"""A player by its name."""

from __future__ import annotations

import re
from collections.abc import Callable

from agents.arena.interfaces import Player
from agents.arena.minimax import Minimax
from agents.arena.searching import monte_carlo
from agents.arena.simple import Lookahead, Own, Random
from agents.games.interfaces import Game
from config.errors import BadInput, shown, unknown
from config.imports import is_import_path

NAMES = ("random", "lookahead", "mcts-100", "minimax", "minimax-4", "package.module:Name")
"""As messages and help list them: other numbers are as good."""
NUMBERED = re.compile(r"(mcts|minimax)-([0-9]{1,9})")
MOST_ROLLOUTS = 100_000
"""For each move: seconds."""
DEEPEST = 12
"""Plies: a level of Connect Four then has millions of positions."""


def load_player(name: str, game: Game) -> Player:
    """`random`, `lookahead`, `mcts-N` with N rollouts for each move, `minimax-N` that looks N plies
    ahead, `minimax` as far as it can, or a person's own as `package.module:Name`.

    Raises `BadInput` with one line for everything else.
    """
    if is_import_path(name):
        return Own(game, name)
    simple: dict[str, Callable[[Game], Player]] = {
        "random": Random,
        "lookahead": Lookahead,
        "minimax": Minimax,
    }
    if name in simple:
        return simple[name](game)
    numbered = NUMBERED.fullmatch(name)
    if numbered is None:
        raise unknown("player", name, NAMES)
    kind, number = numbered[1], int(numbered[2])
    largest = MOST_ROLLOUTS if kind == "mcts" else DEEPEST
    if not 1 <= number <= largest:
        raise BadInput(f"player {shown(name)} cannot be; allowed: {kind}-1 … {kind}-{largest}")
    return monte_carlo(game, number) if kind == "mcts" else Minimax(game, number)
