"""The contract tests of a game's methods, in every position of some random games."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agents.checks.promises import Broken
from agents.games.rules import Game, States
from config.errors import BadInput

GAMES = 24
"""Random ones, in which every rule is tried."""


class Ply(NamedTuple):
    """One ply of all games that are still going on: positions [n] and actions [n]."""

    states: States
    actions: npt.NDArray[np.intp]


class RandomGames(NamedTuple):
    """Random games. ends: the final positions of those that are over."""

    plies: list[Ply]
    ends: States


def play_randomly(game: Game) -> RandomGames:
    """Raises `Broken` where an end and legal actions do not fit."""
    draws = np.random.default_rng(0)
    states = game.start(GAMES)
    plies = list[Ply]()
    ends = list[States]()
    for ply in range(game.longest + 1):
        over, _ = game.outcome(states)
        legal = game.legal(states)
        if (legal.any(axis=1) & over).any():
            raise Broken(f"a game that is over after {ply} plies still has legal actions")
        if (~legal.any(axis=1) & ~over).any():
            raise Broken(f"a game that is not over after {ply} plies has no legal action")
        ends.append(states[over])
        states = states[~over]
        legal = legal[~over]
        if not len(states):
            break
        # The largest of independent uniform numbers is equally likely at every legal action.
        actions = np.argmax(draws.random(legal.shape) * legal, axis=1)
        plies.append(Ply(states.copy(), actions))
        states = game.play(states, actions)
    return RandomGames(plies, np.concatenate(ends))


class MethodChecks:
    """make: a new instance of the game, at every call."""

    def __init__(self, make: Callable[[], Game], game: Game, played: RandomGames) -> None:
        self.make = make
        self.game = game
        self.played = played

    def unchanged(self) -> str:
        """Bytes before and after."""
        for states, actions in self.played.plies:
            before = states.tobytes()
            chosen = actions.copy()
            for name, call in self._calls(states, actions):
                call()
                if states.tobytes() != before or not np.array_equal(actions, chosen):
                    raise Broken(f"{name} changes the positions or actions that it is given")
        return f"{len(self.played.plies)} plies"

    def repeats(self) -> str:
        """A call repeated at once, or in another instance, gives the same."""
        other = self.make()
        states = other.start(GAMES)
        for number, ply in enumerate(self.played.plies):
            states = states[~other.outcome(states)[0]] if number else states
            if states.tobytes() != ply.states.tobytes():
                raise Broken(f"another instance is elsewhere after {number} plies")
            for (name, call), (_, again) in zip(
                self._calls(ply.states, ply.actions),
                self._calls(ply.states, ply.actions, other),
                strict=True,
            ):
                if not (_bytes(call()) == _bytes(call()) == _bytes(again())):
                    raise Broken(
                        f"{name} says something else when it is asked again after {number} plies"
                    )
            states = other.play(states, ply.actions)
        return f"{len(self.played.plies)} plies"

    def rows(self) -> str:
        """Rows given one by one, or in reverse, give the same."""
        for states, actions in self.played.plies:
            last = slice(len(states) - 1, None)
            for (name, call), (_, alone), (_, reverse) in zip(
                self._calls(states, actions),
                self._calls(states[last], actions[last]),
                self._calls(states[::-1].copy(), actions[::-1].copy()),
                strict=True,
            ):
                parts = zip(_parts(call()), _parts(alone()), _parts(reverse()), strict=True)
                for whole, single, turned in parts:
                    if not (_same(whole[last], single) and _same(whole[::-1], turned)):
                        raise Broken(f"{name} gives a row something else beside other rows")
        return f"{len(self.played.plies)} plies"

    def texts(self) -> str:
        """Bytes of the position that is read, and a text that is none."""
        for state in [ply.states[-1] for ply in self.played.plies] + list(self.played.ends):
            text = self.game.show(state)
            if np.asarray(self.game.parse(text)).tobytes() != state.tobytes():
                raise Broken(f"parse reads another position than show wrote:\n{text}")
        try:
            self.game.parse("no position")
        except BadInput:
            return f"{len(self.played.plies) + len(self.played.ends)} positions"
        raise Broken("parse takes any text; allowed: BadInput for one that is no position")

    def symmetries(self) -> str:
        """The mirrored games are played beside the original ones."""
        game = self.game
        _, height, width = game.planes
        symmetries = game.symmetries()
        for number, (board, actions) in enumerate(symmetries):
            for name, one, size in (
                ("board", board, height * width),
                ("actions", actions, game.actions),
            ):
                if not np.array_equal(np.sort(one), np.arange(size)):
                    raise Broken(f"{name} of symmetry {number} is no permutation of 0 … {size - 1}")
            if number == 0 and not (_ordered(board) and _ordered(actions)):
                raise Broken("the first symmetry changes something")
            self._mirrored(number, board, actions)
        return f"{len(symmetries)}"

    def _mirrored(
        self, number: int, board: npt.NDArray[np.intp], actions: npt.NDArray[np.intp]
    ) -> None:
        game = self.game
        # This is the inverse permutation: what an action of the original is in the mirrored game.
        there = np.argsort(actions)
        mirrored = game.start(GAMES)
        for ply in self.played.plies:
            mirrored = mirrored[~game.outcome(mirrored)[0]]
            if len(mirrored) != len(ply.states):
                raise Broken(f"with symmetry {number} games end at another time")
            if not _same(game.legal(mirrored), game.legal(ply.states)[:, actions]):
                raise Broken(f"with symmetry {number} other actions are legal")
            shape = (len(mirrored), game.planes[0], -1)
            seen = game.encode(mirrored).reshape(shape)
            original = game.encode(ply.states).reshape(shape)
            if not _same(seen, original[:, :, board]):
                raise Broken(f"with symmetry {number} encode is not what the symmetry says")
            after = game.play(ply.states, ply.actions)
            both = game.play(mirrored, there[ply.actions])
            if not all(map(_same, game.outcome(after), game.outcome(both))):
                raise Broken(f"with symmetry {number} the outcome is another one")
            mirrored = both

    def _calls(
        self, states: States, actions: npt.NDArray[np.intp], game: Game | None = None
    ) -> list[tuple[str, Callable[[], Any]]]:
        asked = game or self.game
        return [
            ("legal", lambda: asked.legal(states)),
            ("play", lambda: asked.play(states, actions)),
            ("mover", lambda: asked.mover(states)),
            ("outcome", lambda: asked.outcome(states)),
            ("encode", lambda: asked.encode(states)),
        ]


def _parts(answer: Any) -> tuple[npt.NDArray[Any], ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def _bytes(answer: Any) -> bytes:
    return b"".join(part.tobytes() for part in _parts(answer))


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return one.tobytes() == other.tobytes()


def _ordered(permutation: npt.NDArray[np.intp]) -> bool:
    return np.array_equal(permutation, np.arange(len(permutation)))
