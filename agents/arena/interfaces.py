"""What a match asks of a player, and what a person's own player is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from agents.games.interfaces import Integers, States

Generators = Sequence[np.random.Generator]
"""One for each game and each of its players."""


class Choices(NamedTuple):
    """What a player does in positions [n], and what it thinks of them, where it can say so.

    actions [n]. policy [n, A]: how much it likes each action, rows that sum to 1. value [n]: what it
    expects for the mover, -1 … 1.
    """

    actions: Integers
    policy: npt.NDArray[np.float64] | None = None
    value: npt.NDArray[np.float64] | None = None


class Player(Protocol):
    """A player of one game, for many positions at a time; between two calls it remembers nothing that
    changes what it does.
    """

    name: str

    def choose(self, states: States, generators: Generators) -> Choices:
        """Legal actions for positions [n] of games that go on, n ≥ 1; generators [n]: each game's
        own, the only source of chance.
        """
        ...


class Position(NamedTuple):
    """What a person's own player is shown.

    state []: as the game stores it. planes [C, H, W]: as the game encodes it, own stones before the
    other's. legal: the actions, ascending.
    """

    state: States
    planes: npt.NDArray[np.float32]
    legal: list[int]


class OwnPlayer(Protocol):
    """A person's own player, `package.module:Name`: a class that is made with the `Game`. One
    position at a time, for rules need no batches.
    """

    def move(self, position: Position, generator: np.random.Generator) -> int:
        """One of the legal actions; all chance from the generator."""
        ...
