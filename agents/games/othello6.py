"""Othello on 6 x 6: solved, the second player wins 20 to 16 (Feinstein 1993). A player without a
move passes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agents.games.boards import board_symmetries, board_text, check_played, read_board
from agents.games.compiled import compiled
from agents.games.rules import Booleans, Example, Floats, Integers, States, Symmetry

Cells = npt.NDArray[np.int8]


class Othello6:
    """Action i plays in cell i, row by row; the last one passes, and is legal where nothing else is
    and the other player has a move. The game is over when neither has.
    """

    name = "othello6"
    size = 6

    def __init__(self) -> None:
        cells = self.size**2
        self.actions = cells + 1
        self.planes = (2, self.size, self.size)
        self.longest = 2 * (cells - 4)
        self.state_dtype = np.dtype([("cells", np.int8, (cells,)), ("mover", np.int8)])

    def start(self, count: int) -> States:
        """Four stones in the middle."""
        states = np.zeros(count, self.state_dtype)
        low = self.size // 2 - 1
        board = states["cells"].reshape(count, self.size, self.size)
        board[:, low, low] = board[:, low + 1, low + 1] = 2
        board[:, low, low + 1] = board[:, low + 1, low] = 1
        return states

    def legal(self, states: States) -> Booleans:
        """The cells in which a stone would be taken; if there is none, the pass."""
        legal = np.zeros((len(states), self.actions), np.bool_)
        _legal(*_fields(states), self.size, legal)
        return legal

    def play(self, states: States, actions: Integers) -> States:
        """The stone, and those it takes; or only the turn."""
        cells, movers = _fields(states)
        illegal = _play(cells, movers, self.size, np.ascontiguousarray(actions, np.int64))
        check_played(actions, illegal)
        played = np.empty(len(states), self.state_dtype)
        played["cells"] = cells
        played["mover"] = movers
        return played

    def mover(self, states: States) -> npt.NDArray[np.int8]:
        """The mover as stored in the position, because passes cannot be seen on the board."""
        movers: npt.NDArray[np.int8] = states["mover"].copy()
        return movers

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        """The outcome by the number of stones."""
        over = np.empty(len(states), np.bool_)
        value = np.empty(len(states), np.float32)
        _outcome(*_fields(states), self.size, over, value)
        return over, value

    def encode(self, states: States) -> Floats:
        """Own stones, the other's stones."""
        own = 1 + states["mover"][:, np.newaxis]
        planes = np.stack([states["cells"] == own, states["cells"] == 3 - own], axis=1)
        return planes.reshape(-1, *self.planes).astype(np.float32)

    def symmetries(self) -> list[Symmetry]:
        """Both diagonals and the half turn; the other four exchange the colours of the start."""
        turns = [
            lambda board: board,
            lambda board: board.T,
            lambda board: np.rot90(board, 2),
            lambda board: np.rot90(board, 2).T,
        ]
        of_board = board_symmetries(self.size, self.size, turns)
        passing = [self.actions - 1]
        return [
            Symmetry(board, np.concatenate([actions, passing]).astype(np.intp))
            for board, actions in of_board
        ]

    def examples(self) -> list[Example]:
        """Games that end when one player has no stone left, and a drawn one."""
        drawn = [
            *(8, 7, 22, 16, 11, 25, 9, 28, 13, 6, 18, 10, 17, 23, 0, 19),
            *(3, 1, 12, 5, 34, 27, 33, 4, 31, 24, 2, 35, 29, 26, 32, 30),
        ]
        second = [
            *(27, 28, 22, 16, 11, 32, 10, 26, 31, 17, 23, 30),
            *(33, 34, 25, 5, 29, 35, 24, 18, 8, 2, 9, 3),
        ]
        return [
            Example([8, 19, 26, 7, 12, 9, 2, 13, 16], 0),
            Example(second, 1),
            Example(drawn, None),
        ]

    def show(self, state: States) -> str:
        """The board."""
        return board_text(state["cells"].reshape(self.size, self.size), int(state["mover"]))

    def parse(self, text: str) -> States:
        """The position of a board."""
        cells, mover = read_board(text, self.size, self.size)
        state = np.zeros((), self.state_dtype)
        state["cells"] = cells.ravel()
        state["mover"] = mover
        return state


def _fields(states: States) -> tuple[Cells, Cells]:
    """Cells and movers, as arrays of their own: one kind of memory, which numba compiles for."""
    return states["cells"].copy(), states["mover"].copy()


@compiled
def _captured(cells: Cells, size: int, place: int, mover: int, take: bool) -> int:
    """How many stones a stone there would take; take: they change sides."""
    mine = mover + 1
    others = 2 - mover
    captured = 0
    for down in range(-1, 2):
        for right in range(-1, 2):
            row = place // size + down
            column = place % size + right
            run = 0
            # A run of the other's stones that ends at one of the mover's is taken.
            while 0 <= row < size and 0 <= column < size and cells[row * size + column] == others:
                row = row + down
                column = column + right
                run = run + 1
            if run == 0 or not (0 <= row < size and 0 <= column < size):
                continue
            if cells[row * size + column] != mine:
                continue
            captured += run
            if take:
                for back in range(1, run + 1):
                    cells[(row - back * down) * size + column - back * right] = mine
    return captured


@compiled
def _has_move(cells: Cells, size: int, mover: int) -> bool:
    # This is a loop, because numba compiles no generators.
    for place in range(size * size):  # noqa: SIM110
        if cells[place] == 0 and _captured(cells, size, place, mover, False) > 0:
            return True
    return False


@compiled
def _legal(
    cells: Cells,
    movers: Cells,
    size: int,
    legal: npt.NDArray[np.bool_],
) -> None:
    """Fill in `legal` [n, A], which contains only False."""
    for i in range(len(cells)):
        moves = 0
        for place in range(size * size):
            if cells[i, place] == 0 and _captured(cells[i], size, place, movers[i], False) > 0:
                legal[i, place] = True
                moves += 1
        if moves == 0:
            # If the other player has no move either, the game is over and nothing is legal.
            legal[i, size * size] = _has_move(cells[i], size, 1 - movers[i])


@compiled
def _play(cells: Cells, movers: Cells, size: int, actions: npt.NDArray[np.int64]) -> int:
    """Changes the positions; the first row with an illegal action, or -1."""
    for i in range(len(cells)):
        place = actions[i]
        mover = movers[i]
        if place == size * size:
            if _has_move(cells[i], size, mover) or not _has_move(cells[i], size, 1 - mover):
                return i
        else:
            if place < 0 or place > size * size or cells[i, place] != 0:
                return i
            if _captured(cells[i], size, place, mover, True) == 0:
                return i
            cells[i, place] = mover + 1
        movers[i] = 1 - mover
    return -1


@compiled
def _outcome(
    cells: Cells,
    movers: Cells,
    size: int,
    over: npt.NDArray[np.bool_],
    value: npt.NDArray[np.float32],
) -> None:
    for i in range(len(cells)):
        mover = movers[i]
        over[i] = not (_has_move(cells[i], size, mover) or _has_move(cells[i], size, 1 - mover))
        value[i] = 0
        if over[i]:
            own = (cells[i] == mover + 1).sum()
            others = (cells[i] == 2 - mover).sum()
            value[i] = np.sign(own - others)
