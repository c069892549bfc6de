"""Minimax in whole levels: all positions so many plies ahead at once, equal ones only once.

Of positions as arrays a level costs less than the few positions that alpha–beta leaves cost one by
one, and games whose moves can be exchanged have far fewer positions than lines: 16 422 instead of
117 649 after six plies of Connect Four.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.arena.players import Choices, Generators, drawn, results
from agents.games.rules import Game, Integers, States

MOST_POSITIONS = 20_000
"""A level that may have more is not looked at, if the depth is not given."""
NEARER = 1e-3
"""The additional value of a win for each ply that it comes sooner, so that the player also ends its
games.
"""

Doubles = npt.NDArray[np.float64]


class _Level(NamedTuple):
    """Positions [n] of one ply, and their actions as edges [e] to positions of the next one."""

    states: States
    over: npt.NDArray[np.bool_]
    # 1, 0 or -1 for the mover, [n].
    won: Integers
    parents: Integers
    actions: Integers
    children: Integers


class Minimax:
    """Knows nothing but the rules: what lies beyond its depth is worth 0, and of equally good actions
    it draws one. Exact where the end of all lines is within its depth.
    """

    def __init__(self, game: Game, depth: int | None = None) -> None:
        """depth: in plies; by default as far as the number of positions allows."""
        self.name = "minimax" if depth is None else f"minimax-{depth}"
        self.game = game
        self.depth = depth

    def choose(self, states: States, generators: Generators) -> Choices:
        """See `Player`; policy: equal among the best actions."""
        worth = np.array([self.values(state.reshape(1)) for state in states])
        value = worth.max(axis=1)
        best = worth == value[:, np.newaxis]
        policy = best / best.sum(axis=1, keepdims=True)
        return Choices(drawn(best, generators), policy, value)

    def values(self, state: States) -> Doubles:
        """The value of every action [A] in one position [1], for its mover; -inf for illegal
        actions.
        """
        return self._values(self._levels(state))

    def exact(self, state: States) -> Doubles | None:
        """1 won, 0 drawn, -1 lost of every action [A] of one position [1] if the ends of all lines are
        within its depth, else None; -inf where it is not legal.
        """
        levels = self._levels(state)
        if len(levels[-1].actions):
            return None
        values = self._values(levels)
        return np.where(np.isfinite(values), np.sign(values), values)

    def _values(self, levels: list[_Level]) -> Doubles:
        first, *rest = levels
        below = rest[-1].won.astype(np.float64)
        # Values go up from the last level but one to the second; the first holds the position that
        # is asked about.
        for level, following in zip(levels[-2:0:-1], levels[:1:-1], strict=True):
            # An end is worth its result; elsewhere the best of its edges decides.
            values = np.where(level.over, level.won, -np.inf)
            np.maximum.at(values, level.parents, self._seen_before(level, following, below))
            below = values
        worth = np.full(self.game.actions, -np.inf)
        worth[first.actions] = self._seen_before(first, rest[0], below)
        return worth

    def _seen_before(self, level: _Level, following: _Level, values: Doubles) -> Doubles:
        """The values of the edges [e] of a level for its movers, from the values of the following
        level's positions for theirs.
        """
        movers = self.game.mover(level.states)[level.parents]
        # The sign depends on the mover, not on the ply: a player may move twice in a row.
        same = movers == self.game.mover(following.states)[level.children]
        worth = values[level.children] * (1 - NEARER)
        seen: Doubles = np.where(same, worth, -worth)
        return seen

    def _levels(self, state: States) -> list[_Level]:
        """At least two levels of positions. The edges of the last level are not followed."""
        levels = list[_Level]()
        level = self._described(state)
        while self._goes_deeper(len(levels), len(level.actions)):
            after = self.game.play(level.states[level.parents], level.actions)
            # Equal positions are looked at once: their records are compared as bytes.
            keys = np.ascontiguousarray(after).view(np.dtype((np.void, after.dtype.itemsize)))
            _, kept, children = np.unique(keys, return_index=True, return_inverse=True)
            levels.append(level._replace(children=children))
            level = self._described(after[kept])
        return [*levels, level]

    def _goes_deeper(self, plies: int, following: int) -> bool:
        if following == 0 or plies == 0:
            return following > 0
        if self.depth is None:
            return following <= MOST_POSITIONS
        return plies < self.depth

    def _described(self, states: States) -> _Level:
        over, won = results(self.game, states, self.game.mover(states))
        parents, actions = np.nonzero(self.game.legal(states))
        return _Level(states, over, won, parents, actions, np.empty(0, np.int64))


MOST_TRIED = 400
"""Positions that minimax looks at: some ms each, also where it cannot see the end."""


class ValueKept(NamedTuple):
    """positions: different ones whose value is known, and in which some legal moves keep it and others
    do not; kept: in how many of them the move did.
    """

    positions: int
    kept: int

    @property
    def share(self) -> float | None:
        """The share of moves that kept the value; None without such a position."""
        return self.kept / self.positions if self.positions else None


def value_kept(game: Game, states: States, actions: npt.NDArray[np.int64]) -> ValueKept:
    """How many of these moves [n] in these positions [n] keep the value. Equal pairs count once; of
    very many, a sample from all over is taken.
    """
    _, first = np.unique(np.ascontiguousarray(states).view(_raw(states)), return_index=True)
    # Of too many positions every k-th is tried, in the order in which they came.
    tried = np.sort(first)[:: max(1, -(-len(first) // MOST_TRIED))]
    minimax = Minimax(game)
    kept = list[bool]()
    for row in tried:
        values = minimax.exact(states[row : row + 1])
        if values is not None and len(np.unique(values[np.isfinite(values)])) > 1:
            kept.append(bool(values[actions[row]] == values.max()))
    return ValueKept(len(kept), sum(kept))


def _raw(states: States) -> np.dtype[np.void]:
    """Whole records as bytes, which can be compared."""
    return np.dtype((np.void, states.dtype.itemsize))
