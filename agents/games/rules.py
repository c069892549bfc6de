"""The interface of games for self-play: two players, full information, no chance, zero sum. Methods
take many positions at once, so that trees, networks and files can use arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

States = npt.NDArray[Any]
"""Positions [n] of one game: records of its `state_dtype`, of a fixed size and without objects."""
Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.signedinteger[Any]]


class Symmetry(NamedTuple):
    """A mirrored or turned board, which is the same game.

    board [H · W]: plane cell i of the mirrored position is cell `board[i]` of the original; actions
    [A]: action a of the mirrored one does what `actions[a]` does in the original. So both planes and
    policies are mirrored by indexing with them.
    """

    board: npt.NDArray[np.intp]
    actions: npt.NDArray[np.intp]


class Example(NamedTuple):
    """A game whose end a person knows; winner: player 0, player 1, or None for a draw.

    Nothing else tells a game whose outcome is from the wrong side from one that is played to lose.
    """

    actions: Sequence[int]
    winner: int | None


class Game(Protocol):
    """One game; all methods leave what they are given unchanged, and rows do not depend on each
    other.

    Player 0 begins. The players need not alternate: a value always belongs to the player whose turn
    it is at its position, the mover, never to a parity of plies.
    """

    name: str
    actions: int
    """A: actions are numbered from 0."""
    planes: tuple[int, int, int]
    """(C, H, W) of `encode`."""
    longest: int
    """No game has more plies, passes included."""
    state_dtype: np.dtype[Any]

    def start(self, count: int) -> States:
        """The first position, `count` times."""
        ...

    def legal(self, states: States) -> Booleans:
        """[n, A]; at least one until the game is over, and none then."""
        ...

    def play(self, states: States, actions: Integers) -> States:
        """The positions after these actions [n]; raises `ValueError` for one that is not legal."""
        ...

    def mover(self, states: States) -> npt.NDArray[np.int8]:
        """0 or 1 [n]: whose turn it is; at an end, either, but the one that `outcome` is for."""
        ...

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        """Whether each game is over [n], and its value for the mover [n]: 1 won, 0 drawn, -1 lost;
        0 where it is not over.
        """
        ...

    def encode(self, states: States) -> Floats:
        """What the network sees [n, C, H, W], from the mover's point of view: own stones first,
        whoever moves.
        """
        ...

    def symmetries(self) -> list[Symmetry]:
        """All that map the first position to itself; the first one changes nothing."""
        ...

    def examples(self) -> list[Example]:
        """Some games whose ends are known, best of all three kinds; they are only tried."""
        ...

    def show(self, state: States) -> str:
        """One position [] as text."""
        ...

    def parse(self, text: str) -> States:
        """The position [] that `show` showed; raises `BadInput` for a text that is none."""
        ...
