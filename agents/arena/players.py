"""The interfaces of players: of those that a match uses, and of a user's own player."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from agents.games.rules import Booleans, Game, Integers, States
from config.errors import BadInput, shown
from config.imports import imported, reason

Generators = Sequence[np.random.Generator]
"""A generator for each game and each of its players."""


class Choices(NamedTuple):
    """A player's actions in positions [n], and its opinion, if it has one.

    actions [n]. policy [n, A]: how much it likes each action; rows sum to 1. value [n]: what it
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
    """What a user's own player receives.

    state []: as the game stores it. planes [C, H, W]: as the game encodes it, own stones before the
    other's. legal: the legal actions, ascending.
    """

    state: States
    planes: npt.NDArray[np.float32]
    legal: list[int]


class OwnPlayer(Protocol):
    """A person's own player, `package.module:Name`: a class that is made with the `Game`. One
    position at a time, for rules need no batches.
    """

    def move(self, position: Position, generator: np.random.Generator) -> int:
        """Choose one of the legal actions. All chance must come from the generator."""
        ...


def drawn(allowed: Booleans, generators: Generators) -> Integers:
    """Draw one of the allowed actions [n, A] in each row, all equally likely. At least one must be
    allowed.
    """
    actions = [
        generator.choice(np.flatnonzero(row))
        for row, generator in zip(allowed, generators, strict=True)
    ]
    return np.array(actions, np.int64)


class Random:
    """Every legal action is equally likely: the zero of all ratings."""

    name = "random"

    def __init__(self, game: Game) -> None:
        self.game = game

    def choose(self, states: States, generators: Generators) -> Choices:
        """See `Player`."""
        return Choices(drawn(self.game.legal(states), generators))


class Lookahead:
    """Wins if it can, leaves the other one no win with the next action if it can, and plays at random
    else: the `OneStepLookahead` player of alpha-zero-general (github.com/suragnair).
    """

    name = "lookahead"

    def __init__(self, game: Game) -> None:
        self.game = game

    def choose(self, states: States, generators: Generators) -> Choices:
        """See `Player`."""
        game = self.game
        legal = self.game.legal(states)
        wins = np.zeros_like(legal)
        losses = np.zeros_like(legal)
        rows, actions = np.nonzero(legal)
        after = game.play(states[rows], actions)
        over, value = results(game, after, game.mover(states)[rows])
        wins[rows, actions] = value > 0
        losses[rows, actions] = value < 0
        # Where the game goes on: does the other player win with the next action? A player may also
        # move twice in a row.
        after = after[~over]
        rows = rows[~over]
        actions = actions[~over]
        reply_rows, replies = np.nonzero(game.legal(after))
        last = game.play(after[reply_rows], replies)
        movers = game.mover(after)[reply_rows]
        _, value = results(game, last, movers)
        loses = (value > 0) & (movers != game.mover(states)[rows[reply_rows]])
        losses[rows[reply_rows[loses]], actions[reply_rows[loses]]] = True
        return Choices(drawn(_first_of(wins, legal & ~losses, legal), generators))


def results(game: Game, states: States, players: Integers) -> tuple[Booleans, Integers]:
    """Whether games are over [n], and 1, 0 or -1 [n] for these players [n], 0 until then; the game
    itself speaks for the mover, whoever that is at an end.
    """
    over, value = game.outcome(states)
    sign = np.sign(value).astype(np.int64)
    return over, np.where(game.mover(states) == players, sign, -sign) * over


def _first_of(*allowed: Booleans) -> Booleans:
    """In each row, the first of these masks [n, A] that allows anything."""
    chosen = allowed[-1].copy()
    for one in reversed(allowed[:-1]):
        chosen = np.where(one.any(axis=1, keepdims=True), one, chosen)
    return chosen


class Own:
    """A person's own player, whose mistakes are told in one line."""

    def __init__(self, game: Game, path: str) -> None:
        """Raises `BadInput` for what cannot be imported or made, or has no `move`."""
        self.game = game
        self.name = path
        found: Any = imported(path, "player")
        try:
            self.player: OwnPlayer = found(game)
        except (Exception, SystemExit) as error:
            raise BadInput(f"player {path!r} cannot be made: {reason(error)}") from error
        if not callable(getattr(self.player, "move", None)):
            raise BadInput(f"player {path!r} has no move(position, generator)")

    def choose(self, states: States, generators: Generators) -> Choices:
        """See `Player`. Raises `BadInput` for an action that is not legal, or an exception."""
        planes = self.game.encode(states)
        legal = self.game.legal(states)
        positions = [
            Position(state, seen, np.flatnonzero(row).tolist())
            for state, seen, row in zip(states, planes, legal, strict=True)
        ]
        moves = [self._move(*asked) for asked in zip(positions, generators, strict=True)]
        return Choices(np.array(moves, np.int64))

    def _move(self, position: Position, generator: np.random.Generator) -> int:
        try:
            action = self.player.move(position, generator)
        except (Exception, SystemExit) as error:
            raise BadInput(f"player {self.name!r} cannot move: {reason(error)}") from error
        # In Python True is an int.
        is_number = isinstance(action, int | np.integer) and not isinstance(action, bool)
        if not is_number or action not in position.legal:
            raise BadInput(
                f"player {self.name!r} plays {shown(action)}; allowed: {shown(position.legal)}"
            )
        return int(action)
