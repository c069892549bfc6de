"""How often moves keep the value of their positions, where minimax knows it exactly: a win stays a win,
a draw at least a draw.

Strength that no opponent has to be weak for: who only waits for mistakes is found out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.arena.minimax import Minimax
from agents.games.interfaces import Game, States

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
        """None without such a position."""
        return self.kept / self.positions if self.positions else None


def value_kept(game: Game, states: States, actions: npt.NDArray[np.int64]) -> ValueKept:
    """Of these moves [n] in these positions [n], of which equal ones count once; of very many, some
    from all over.
    """
    _, first = np.unique(np.ascontiguousarray(states).view(_raw(states)), return_index=True)
    tried = np.sort(first)[:: max(1, -(-len(first) // MOST_TRIED))]
    minimax, kept = Minimax(game), list[bool]()
    for row in tried:
        values = minimax.exact(states[row : row + 1])
        if values is not None and len(np.unique(values[np.isfinite(values)])) > 1:
            kept.append(bool(values[actions[row]] == values.max()))
    return ValueKept(len(kept), sum(kept))


def _raw(states: States) -> np.dtype[np.void]:
    """Whole records as bytes, which can be compared."""
    return np.dtype((np.void, states.dtype.itemsize))
