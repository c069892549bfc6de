"""How often a player's move keeps the exact value of a late position of Connect Four: a win stays a
win, a draw at least a draw. What is lost anyway is left out: every move keeps it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.arena.players import Lookahead, Player
from agents.games.connect_four import ConnectFour
from agents.games.rules import States
from tests.connect_four_solver import WIDTH, Solver

LEAST_STONES, MOST_STONES = 24, 38
EACH = 8
"""Positions taken with one number of stones before the next number is drawn."""


class Late(NamedTuple):
    """Positions [n], and which columns keep their value [n, 7]; none that cannot be played does."""

    states: States
    kept: np.ndarray

    def share(self, player: Player, seed: int = 0) -> float:
        """Of the player's moves those that keep the value; all positions are given to it at once."""
        generators = [np.random.default_rng([seed, row]) for row in range(len(self.states))]
        actions = player.choose(self.states, generators).actions
        return float(self.kept[np.arange(len(actions)), actions].mean())


def late_positions(count: int, seed: int, least_stones: int = LEAST_STONES) -> Late:
    """Different positions with at least so many stones, in which some moves keep the value and others
    do not: of games between two one-step look-aheads, for in random games nearly every late position
    asks for nothing but a win or a defence at once.
    """
    game, draws, solver = ConnectFour(), np.random.default_rng(seed), Solver()
    player, found = Lookahead(game), dict[bytes, tuple[np.void, np.ndarray]]()
    while len(found) < count:
        stones = int(draws.integers(least_stones, MOST_STONES + 1))
        states = game.start(64)
        for _ in range(stones):
            states = game.play(states, player.choose(states, draws.spawn(len(states))).actions)
            states = states[~game.outcome(states)[0]]
        for state in states[: min(EACH, count - len(found))]:
            kept = kept_moves(solver, state)
            if (game.legal(state.reshape(1))[0] & ~kept).any():
                found.setdefault(state.tobytes(), (state, kept))
    states, kept = zip(*found.values(), strict=True)
    return Late(np.array(list(states), game.state_dtype), np.array(kept))


def kept_moves(solver: Solver, state: np.void) -> np.ndarray:
    """Of each column [7] whether it keeps the value."""
    scores = solver.move_scores(int(state["own"]), int(state["taken"]))
    best, kept = np.sign(max(scores.values())), np.zeros(WIDTH, np.bool_)
    for column, score in scores.items():
        kept[column] = np.sign(score) == best
    return kept
