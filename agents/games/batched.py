"""A person's own game, one position at a time, as a `Game` of many.

A position is stored as the actions that led to it, so that a state may be any Python object: those of
the latest positions are kept, the others made again by playing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agents.games.boards import one
from agents.games.one_at_a_time import OneAtATime
from agents.games.rules import Booleans, Example, Floats, Integers, States, Symmetry
from config.errors import BadInput, shown

KEPT = 100_000
"""Positions whose states are kept."""
LARGEST_ACTIONS = 32_767
"""Actions are stored in 16 bits."""
MOVES = "moves:"
"""The prefix of the line, in a shown position, that lists the moves so far."""


class _Position(NamedTuple):
    state: Any
    legal: Booleans
    mover: int
    over: bool
    value: float


class Batched:
    """The adapter; `states["moves"]` are the actions so far, `states["played"]` their number. Two
    threads may ask at once: a search plays while an evaluation encodes.
    """

    def __init__(self, game: OneAtATime, name: str) -> None:
        """Raises `BadInput` for numbers that no game can have."""
        self.game = game
        self.name = name
        self.actions = _count(game, "actions", name)
        self.longest = _count(game, "longest", name)
        self.state_dtype = np.dtype(
            [("played", np.int16), ("moves", np.int16, (self.longest,))], align=False
        )
        self._positions: OrderedDict[bytes, _Position] = OrderedDict()
        # The lock is reentrant, because `_all` holds it while it keeps positions.
        self._lock = threading.RLock()
        shape = self._encoded(self._first()).shape
        if len(shape) != 3:
            raise BadInput(f"game {name!r} encodes as {list(shape)}; allowed: [C, H, W]")
        self.planes = (shape[0], shape[1], shape[2])

    def start(self, count: int) -> States:
        """No moves yet."""
        return np.zeros(count, self.state_dtype)

    def legal(self, states: States) -> Booleans:
        """The game's legal actions; none at an end."""
        legal = np.zeros((len(states), self.actions), np.bool_)
        for row, position in enumerate(self._all(states)):
            legal[row] = position.legal
        return legal

    def play(self, states: States, actions: Integers) -> States:
        """Play one more action. The game is only asked for legal ones."""
        played = states.copy()
        for row, (position, action) in enumerate(zip(self._all(states), actions, strict=True)):
            if not (0 <= action < self.actions and position.legal[action]):
                raise ValueError(f"action {int(action)} in row {row} is not legal")
            played["moves"][row, states["played"][row]] = action
            played["played"][row] += 1
            key = played[row].tobytes()
            # The new state is made from the one that is at hand; making it again would replay the
            # whole game.
            if key not in self._positions:
                self._keep(key, self._after(position, int(action), int(played["played"][row])))
        return played

    def mover(self, states: States) -> npt.NDArray[np.int8]:
        """The player to move; at an end the one who did not move last."""
        return np.array([position.mover for position in self._all(states)], np.int8)

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        """The game's result, with the mover's eyes."""
        positions = self._all(states)
        over = np.array([position.over for position in positions], np.bool_)
        return over, np.array([position.value for position in positions], np.float32)

    def encode(self, states: States) -> Floats:
        """The game's own encoding."""
        planes = np.empty((len(states), *self.planes), np.float32)
        for row, position in enumerate(self._all(states)):
            planes[row] = self._encoded(position)
        return planes

    def symmetries(self) -> list[Symmetry]:
        """The game's own; else only the one that changes nothing."""
        if hasattr(self.game, "symmetries"):
            return list(self.game.symmetries())
        cells = self.planes[1] * self.planes[2]
        return [Symmetry(np.arange(cells), np.arange(self.actions))]

    def examples(self) -> list[Example]:
        """The game's own, if any."""
        return list(self.game.examples()) if hasattr(self.game, "examples") else []

    def show(self, state: States) -> str:
        """The game's own text, and a line with the moves."""
        moves = state["moves"][: int(state["played"])]
        text = str(self.game.show(self._all(one(state))[0].state)).rstrip("\n")
        return f"{text}\n{MOVES} {' '.join(map(str, moves))}".rstrip()

    def parse(self, text: str) -> States:
        """Replay the moves in the last line."""
        last = text.strip().splitlines()[-1:] or [""]
        numbers = last[0].removeprefix(MOVES).split()
        if not last[0].startswith(MOVES) or not all(number.isdecimal() for number in numbers):
            raise BadInput(
                f"{shown(text)} is no position of {self.name}; allowed: a last line such as '{MOVES} 0 1 2'"
            )
        states = self.start(1)
        try:
            for number in numbers:
                states = self.play(states, np.array([int(number)]))
        except ValueError as error:
            raise BadInput(f"{shown(last[0])} is no game of {self.name}: {error}") from error
        return states.reshape(())

    def _all(self, states: States) -> list[_Position]:
        with self._lock:
            return [self._at(state) for state in states]

    def _at(self, state: Any) -> _Position:
        """The position of a record, made again if its state is no longer kept."""
        key = state.tobytes()
        found = self._positions.get(key)
        if found is not None:
            self._positions.move_to_end(key)
            return found
        position = self._first()
        for number, action in enumerate(state["moves"][: state["played"]], 1):
            position = self._after(position, int(action), number)
        self._keep(key, position)
        return position

    def _keep(self, key: bytes, position: _Position) -> None:
        with self._lock:
            self._positions[key] = position
            if len(self._positions) > KEPT:
                # This drops the position that was not asked for the longest time.
                self._positions.popitem(last=False)

    def _first(self) -> _Position:
        return self._described(self.game.start(), last_mover=1)

    def _after(self, before: _Position, action: int, played: int) -> _Position:
        position = self._described(self.game.play(before.state, action), before.mover)
        if played >= self.longest and not position.over:
            raise BadInput(
                f"game {self.name!r} goes on after {played} actions, but says longest = {self.longest}"
            )
        return position

    def _described(self, state: Any, last_mover: int) -> _Position:
        result = self.game.result(state)
        legal = np.zeros(self.actions, np.bool_)
        if result is not None:
            # At an end nobody is to move: by convention the one who did not move last.
            mover = 1 - last_mover
            # 0.0 − x instead of −x: a draw is 0, never −0.
            value = float(result) if mover == 0 else 0.0 - float(result)
            return _Position(state, legal, mover, True, value)
        actions = list(self.game.legal(state))
        if not all(0 <= action < self.actions for action in actions):
            raise BadInput(
                f"game {self.name!r} says that {shown(actions)} are legal; allowed: 0 … {self.actions - 1}"
            )
        legal[actions] = True
        return _Position(state, legal, int(self.game.mover(state)), False, 0.0)

    def _encoded(self, position: _Position) -> npt.NDArray[np.float32]:
        return np.asarray(self.game.encode(position.state, position.mover), np.float32)


def _count(game: OneAtATime, field: str, name: str) -> int:
    value = getattr(game, field, None)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_ACTIONS:
        raise BadInput(
            f"game {name!r} has {field} = {shown(value)}; allowed: 1 … {LARGEST_ACTIONS}"
        )
    return value
