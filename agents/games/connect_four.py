"""Connect Four, 7 columns and 6 rows, on bitboards: a position in 16 bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agents.games.boards import board_text, check_played, one, read_board
from agents.games.compiled import compiled
from agents.games.rules import Booleans, Example, Floats, Integers, States, Symmetry
from config.errors import BadInput, shown

ROWS = 6
COLUMNS = 7
BITS = ROWS + 1
"""Bits of a column, from below. The uppermost is always empty, so that no line wraps over the edge.
"""
BOTTOM = sum(1 << BITS * column for column in range(COLUMNS))
FULL = BOTTOM * ((1 << ROWS) - 1)


class ConnectFour:
    """Action i drops a stone into column i, from the left. own: the mover's stones; taken: all."""

    name = "connect-four"
    actions = COLUMNS
    planes = (2, ROWS, COLUMNS)
    longest = ROWS * COLUMNS
    state_dtype = np.dtype([("own", np.int64), ("taken", np.int64)])

    def start(self, count: int) -> States:
        """Empty boards."""
        return np.zeros(count, self.state_dtype)

    def legal(self, states: States) -> Booleans:
        """Every column with room, of a game that goes on."""
        legal = np.empty((len(states), COLUMNS), np.bool_)
        _legal(*_bitboards(states), legal)
        return legal

    def play(self, states: States, actions: Integers) -> States:
        """The mover's stone falls; then the other's stones are the mover's."""
        own, taken = _bitboards(states)
        check_played(actions, _play(own, taken, np.ascontiguousarray(actions, np.int64)))
        played = np.empty(len(states), self.state_dtype)
        played["own"] = own
        played["taken"] = taken
        return played

    def mover(self, states: States) -> npt.NDArray[np.int8]:
        """Player 0 after an even number of stones."""
        return np.asarray(np.bitwise_count(states["taken"]) & 1, np.int8)

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        """Only who moved last can have won, also with the stone that fills the board."""
        over = np.empty(len(states), np.bool_)
        value = np.empty(len(states), np.float32)
        _outcome(*_bitboards(states), over, value)
        return over, value

    def encode(self, states: States) -> Floats:
        """Own stones, the other's stones; the uppermost row first."""
        planes = np.empty((len(states), *self.planes), np.float32)
        _encode(*_bitboards(states), planes)
        return planes

    def symmetries(self) -> list[Symmetry]:
        """Itself, and left for right."""
        places = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
        columns = np.arange(COLUMNS)
        return [
            Symmetry(places.ravel(), columns),
            Symmetry(places[:, ::-1].ravel(), columns[::-1].copy()),
        ]

    def examples(self) -> list[Example]:
        """A column, a row of the second player, a diagonal, a full board."""
        drawn = [*_woven(0, 1), *_woven(2, 3), *_woven(4, 5)]
        return [
            Example([3, 4, 3, 4, 3, 4, 3], 0),
            Example([0, 1, 0, 2, 0, 3, 6, 4], 1),
            Example([0, 1, 1, 2, 2, 3, 2, 3, 3, 5, 3], 0),
            Example([*drawn, 6, 6, 6, 6, 6, 6], None),
        ]

    def show(self, state: States) -> str:
        """The board, and the numbers of its columns."""
        mover = int(self.mover(one(state))[0])
        own, other = self.encode(one(state))[0].astype(np.int8)
        cells = own * (1 + mover) + other * (2 - mover)
        return f"{board_text(cells, mover)}\n{' '.join(map(str, range(COLUMNS)))}"

    def parse(self, text: str) -> States:
        """The position of a board."""
        cells, mover = read_board(text, ROWS, COLUMNS)
        # No stone hangs in the air: from the top down a column is empty, then full.
        fallen = bool((np.diff((cells > 0).astype(np.int8), axis=0) >= 0).all())
        if not fallen or np.count_nonzero(cells == 1) - np.count_nonzero(cells == 2) != mover:
            raise BadInput(
                f"{shown(text)} is no position: stones fall, X begins, and X and O take turns"
            )
        state = self.start(1).reshape(())
        for row, column in zip(*np.nonzero(cells), strict=True):
            bit = 1 << (BITS * int(column) + ROWS - 1 - int(row))
            state["taken"] |= bit
            state["own"] |= bit * int(cells[row, column] == 1 + mover)
        return state


def _bitboards(states: States) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Own and taken, as arrays of their own: one kind of memory, which numba compiles for."""
    return states["own"].copy(), states["taken"].copy()


def _woven(left: int, right: int) -> list[int]:
    """Two columns filled without a line of four."""
    return [left, right, left, right, right, left, right, left, left, right, left, right]


@compiled
def _has_four(stones: int) -> bool:
    """Whether a player has four in a column, a row or a diagonal."""
    # Neighbours in a line are this many bits apart: up, right, and along both diagonals.
    for distance in (1, BITS, BITS - 1, BITS + 1):
        # Two pairs that are two steps apart are four in a line.
        pairs = stones & (stones >> distance)
        if pairs & (pairs >> 2 * distance):
            return True
    return False


@compiled
def _legal(
    own: npt.NDArray[np.int64], taken: npt.NDArray[np.int64], legal: npt.NDArray[np.bool_]
) -> None:
    for i in range(len(own)):
        goes_on = not _has_four(own[i] ^ taken[i])
        for column in range(COLUMNS):
            legal[i, column] = goes_on and not (taken[i] >> (BITS * column + ROWS - 1)) & 1


@compiled
def _play(
    own: npt.NDArray[np.int64], taken: npt.NDArray[np.int64], actions: npt.NDArray[np.int64]
) -> int:
    """Changes the positions; the first row with an illegal action, or -1."""
    for i in range(len(own)):
        column = actions[i]
        if column < 0 or column >= COLUMNS or (taken[i] >> (BITS * column + ROWS - 1)) & 1:
            return i
        if _has_four(own[i] ^ taken[i]):
            return i
        # The other player's stones are the mover's from here on.
        own[i] ^= taken[i]
        # Adding the column's lowest bit carries over its stones into the first empty cell.
        taken[i] |= taken[i] + (1 << BITS * column)
    return -1


@compiled
def _outcome(
    own: npt.NDArray[np.int64],
    taken: npt.NDArray[np.int64],
    over: npt.NDArray[np.bool_],
    value: npt.NDArray[np.float32],
) -> None:
    for i in range(len(own)):
        # Who moved last may have four; the mover cannot.
        lost = _has_four(own[i] ^ taken[i])
        over[i] = lost or taken[i] == FULL
        value[i] = -1 if lost else 0


@compiled
def _encode(
    own: npt.NDArray[np.int64], taken: npt.NDArray[np.int64], planes: npt.NDArray[np.float32]
) -> None:
    for i in range(len(own)):
        other = own[i] ^ taken[i]
        for row in range(ROWS):
            for column in range(COLUMNS):
                bit = BITS * column + ROWS - 1 - row
                planes[i, 0, row, column] = (own[i] >> bit) & 1
                planes[i, 1, row, column] = (other >> bit) & 1
