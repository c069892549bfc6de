"""The interface of a user's own game: one file, one position at a time.

`my_lab.games:Nim` names the class `Nim` in `my_lab/games.py`; `tests/stranger/my_lab/games.py` is
such a file, and `python -m steps.check my_lab.games:Nim` tries every rule. `agents.games.batched`
turns it into a game for many positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy.typing as npt


class OneAtATime(Protocol):
    """What such a class offers, beside a constructor without arguments. A state may be any object,
    and no method changes it; player 0 begins; an end does not come after `longest` actions.

    Further methods where there is something to say: `symmetries() -> list[Symmetry]` and
    `examples() -> list[Example]`, as `agents.games.rules` describes them.
    """

    actions: int
    longest: int

    def start(self) -> Any:
        """The first state."""
        ...

    def legal(self, state: Any) -> Iterable[int]:
        """The legal actions of a state that is no end: at least one."""
        ...

    def play(self, state: Any, action: int) -> Any:
        """A new state, the one after a legal action."""
        ...

    def mover(self, state: Any) -> int:
        """The player to move in a state that is not an end: 0 or 1."""
        ...

    def result(self, state: Any) -> float | None:
        """None while the game goes on; then 1 if player 0 has won, 0 for a draw, -1 if player 1 has
        won.
        """
        ...

    def encode(self, state: Any, mover: int) -> npt.ArrayLike:
        """What the network sees, [C, H, W], from the mover's point of view."""
        ...

    def show(self, state: Any) -> str:
        """The state as text."""
        ...
