"""A position as a picture shows it, where that can be told from what the network sees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.games.interfaces import Game, States


class Board(NamedTuple):
    """Cells [H, W]: 0 empty, 1 a stone of player 0 (X), 2 one of player 1 (O). cell_actions,
    column_actions: whether action i plays in cell i, row by row, or in column i.
    """

    cells: npt.NDArray[np.int8]
    cell_actions: bool
    column_actions: bool


def board_of(game: Game, state: States) -> Board | None:
    """Of a position [], if the planes are own stones and the other's and nothing else, on a board of
    at least two rows; None for other games: those show text.
    """
    channels, height, width = game.planes
    if channels != 2 or height < 2:
        return None
    planes = game.encode(state.reshape(1))[0]
    is_stones = np.isin(planes, (0, 1)).all() and not (planes[0] * planes[1]).any()
    if not is_stones:
        return None
    mover = int(game.mover(state.reshape(1))[0])
    own, other = planes.astype(np.int8)
    return Board(
        cells=own * (1 + mover) + other * (2 - mover),
        cell_actions=game.actions in (height * width, height * width + 1),
        column_actions=game.actions == width,
    )
