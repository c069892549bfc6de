"""The symmetries of a game, of many positions at once: each row in its own."""

from __future__ import annotations

import numpy as np

from agents.games.interfaces import Floats, Game


class Symmetries:
    """of_planes, of_actions: which [n] are numbers below `len`; 0 changes nothing."""

    def __init__(self, game: Game) -> None:
        listed = game.symmetries()
        self._boards = np.stack([one.board for one in listed])
        self._actions = np.stack([one.actions for one in listed])

    def __len__(self) -> int:
        return len(self._boards)

    def of_planes(self, planes: Floats, which: np.ndarray) -> Floats:
        """[n, C, H, W], as it comes out."""
        cells = planes.reshape(*planes.shape[:2], -1)
        turned: Floats = np.take_along_axis(cells, self._boards[which][:, None, :], axis=2)
        return turned.reshape(planes.shape)

    def of_actions(self, column: np.ndarray, which: np.ndarray) -> np.ndarray:
        """[n, A], as it comes out."""
        return np.take_along_axis(column, self._actions[which], axis=1)
