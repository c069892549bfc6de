"""What this project's board games share: their text, their symmetries, their refusals.

Cells are 0 for empty, 1 for a stone of player 0 (`X`), 2 for one of player 1 (`O`), row by row from
the top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agents.games.rules import Game, Integers, States, Symmetry
from config.errors import BadInput, shown

STONES = ".XO"

Turn = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""An [H, W] array turned or mirrored."""


def board_text(cells: npt.NDArray[Any], mover: int) -> str:
    """The text of cells [H, W]: a line for each row, and `X to move`."""
    lines = [" ".join(STONES[cell] for cell in row) for row in cells]
    return "\n".join([*lines, f"{STONES[1 + mover]} to move"])


def read_board(text: str, height: int, width: int) -> tuple[npt.NDArray[np.int8], int]:
    """Cells [H, W] and the mover of what `board_text` wrote; further lines are left out.

    Raises `BadInput` for anything else.
    """
    lines = [line.split() for line in text.strip().splitlines()]
    board = lines[:height]
    rest = lines[height : height + 1]
    well_formed = len(board) == height
    for row in board:
        # STONES becomes a tuple, because the text "XO" is in the text ".XO", too.
        if len(row) != width or not all(cell in tuple(STONES) for cell in row):
            well_formed = False
    if not well_formed or rest not in ([["X", "to", "move"]], [["O", "to", "move"]]):
        raise BadInput(
            f"{shown(text)} is no position; allowed: {height} lines of {width} of the cells . X O with "
            "blanks between them, then 'X to move' or 'O to move'"
        )
    cells = [[STONES.index(cell) for cell in row] for row in board]
    return np.array(cells, np.int8), STONES.index(rest[0][0]) - 1


def board_symmetries(height: int, width: int, turns: Sequence[Turn]) -> list[Symmetry]:
    """The symmetries of a board on which action i plays in cell i."""
    places = np.arange(height * width).reshape(height, width)
    turned = [turn(places).ravel().astype(np.intp) for turn in turns]
    return [Symmetry(board=board, actions=board) for board in turned]


def one(state: Any) -> States:
    """A position [] as positions [1]."""
    return np.asarray(state).reshape(1)


def check_played(actions: Integers, illegal_row: int) -> None:
    """Raise `ValueError` for the first row whose action is illegal; -1: there is none."""
    if illegal_row >= 0:
        raise ValueError(f"action {int(actions[illegal_row])} in row {illegal_row} is not legal")


class Board(NamedTuple):
    """Cells [H, W]: 0 empty, 1 a stone of player 0 (X), 2 one of player 1 (O). cell_actions,
    column_actions: whether action i plays in cell i, row by row, or in column i.
    """

    cells: npt.NDArray[np.int8]
    cell_actions: bool
    column_actions: bool


def board_of(game: Game, state: States) -> Board | None:
    """The board of a position [], if the planes are own stones and the other's and nothing else,
    with at least two rows. None for other games, which show text.
    """
    channels, height, width = game.planes
    if channels != 2 or height < 2:
        return None
    planes = game.encode(state.reshape(1))[0]
    # Planes of stones hold zeros and ones alone, and never both colours in one cell.
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
