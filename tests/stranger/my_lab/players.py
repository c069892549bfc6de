"""A player by rules in one file: `package.module:Name`, a class that is made with the game."""

from __future__ import annotations

import numpy as np

from agents.arena.players import Position
from agents.games.rules import Game


class Middle:
    """The legal action nearest to the middle one: of columns, the middle column."""

    def __init__(self, game: Game) -> None:
        self.middle = game.actions // 2

    def move(self, position: Position, generator: np.random.Generator) -> int:
        return min(position.legal, key=lambda action: abs(action - self.middle))


class Cheat(Middle):
    """Plays what may not be played."""

    def move(self, position: Position, generator: np.random.Generator) -> int:
        return -1


class Fragile(Middle):
    """Raises an error on two lines."""

    def move(self, position: Position, generator: np.random.Generator) -> int:
        raise RuntimeError("no idea\nat all")


class Motionless:
    """Has no move."""

    def __init__(self, game: Game) -> None:
        pass
