"""Tic-tac-toe, in plain numpy: small enough to be solved in every test."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agents.games.boards import board_symmetries, board_text, check_played, one, read_board
from agents.games.rules import Booleans, Example, Floats, Integers, States, Symmetry
from config.errors import BadInput, shown

LINES = np.array(
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]
)


class TicTacToe:
    """Cells are numbered row by row; action i plays in cell i."""

    name = "tic-tac-toe"
    actions = 9
    planes = (2, 3, 3)
    longest = 9
    state_dtype = np.dtype([("cells", np.int8, (9,))])

    def start(self, count: int) -> States:
        """Empty boards."""
        return np.zeros(count, self.state_dtype)

    def legal(self, states: States) -> Booleans:
        """Every empty cell of a game that goes on."""
        over, _ = self.outcome(states)
        legal: Booleans = (states["cells"] == 0) & ~over[:, np.newaxis]
        return legal

    def play(self, states: States, actions: Integers) -> States:
        """A stone of the mover."""
        rows = np.arange(len(states))
        actions = np.asarray(actions)
        legal = (actions >= 0) & (actions < self.actions)
        # Numbers that are no cell must not be looked up: -1 would be the last one.
        legal[legal] = self.legal(states)[rows[legal], actions[legal]]
        illegal_row = -1 if legal.all() else int(np.argmin(legal))
        check_played(actions, illegal_row)
        played = states.copy()
        played["cells"][rows, actions] = 1 + self.mover(states)
        return played

    def mover(self, states: States) -> npt.NDArray[np.int8]:
        """Player 0 after an even number of stones."""
        stones = np.count_nonzero(states["cells"], axis=1)
        return np.asarray(stones % 2, np.int8)

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        """Only who moved last can have won."""
        cells = states["cells"]
        # Stones are 1 and 2: this is the player who is not to move.
        last = 2 - self.mover(states)
        lost = (cells[:, LINES] == last[:, np.newaxis, np.newaxis]).all(axis=2).any(axis=1)
        return lost | (cells != 0).all(axis=1), -lost.astype(np.float32)

    def encode(self, states: States) -> Floats:
        """Own stones, the other's stones."""
        own = 1 + self.mover(states)[:, np.newaxis]
        planes = np.stack([states["cells"] == own, states["cells"] == 3 - own], axis=1)
        return planes.reshape(-1, *self.planes).astype(np.float32)

    def symmetries(self) -> list[Symmetry]:
        """All eight of the square."""
        turned = [
            lambda board, quarters=quarters: np.rot90(board, quarters) for quarters in range(4)
        ]
        mirrored = [
            lambda board, quarters=quarters: np.rot90(board.T, quarters) for quarters in range(4)
        ]
        return board_symmetries(3, 3, [*turned, *mirrored])

    def examples(self) -> list[Example]:
        """The left column, the middle column, a full board, and a line with the last stone."""
        return [
            Example([0, 1, 3, 4, 6], 0),
            Example([0, 1, 2, 4, 3, 7], 1),
            Example([0, 1, 2, 4, 3, 5, 7, 6, 8], None),
            Example([0, 1, 2, 3, 4, 5, 7, 6, 8], 0),
        ]

    def show(self, state: States) -> str:
        """The board."""
        return board_text(state["cells"].reshape(3, 3), int(self.mover(one(state))[0]))

    def parse(self, text: str) -> States:
        """The position of a board."""
        cells, mover = read_board(text, 3, 3)
        if np.count_nonzero(cells == 1) - np.count_nonzero(cells == 2) != mover:
            raise BadInput(f"{shown(text)} is no position: X begins, and X and O take turns")
        state = self.start(1).reshape(())
        state["cells"] = cells.ravel()
        return state
