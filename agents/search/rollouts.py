"""Evaluation without a network: equal priors, and the result of a game that both play at random.

With it the search is Monte-Carlo tree search as it was before networks (Coulom 2006; Kocsis and
Szepesvári 2006), an opponent of known strength.
"""

from __future__ import annotations

import numpy as np

from agents.games.interfaces import Booleans, Floats, Game, States


class Rollouts:
    """`EvaluatePositions`; one random game for each position."""

    def __init__(self, game: Game, generator: np.random.Generator) -> None:
        self.game, self.generator = game, generator

    def __call__(self, states: States, legal: Booleans) -> tuple[Floats, Floats]:
        """Logits of 0, and values by the mover of each position, whoever moves at the end."""
        values = np.zeros(len(states), np.float32)
        rows, movers = np.arange(len(states)), self.game.mover(states)
        allowed = legal
        while len(states):
            draws = self.generator.random(allowed.shape)
            states = self.game.play(states, np.argmax(draws * allowed, axis=1))
            over, value = self.game.outcome(states)
            ended = rows[over]
            same = self.game.mover(states[over]) == movers[ended]
            values[ended] = np.where(same, value[over], -value[over])
            states, rows = states[~over], rows[~over]
            allowed = self.game.legal(states)
        return np.zeros(legal.shape, np.float32), values
