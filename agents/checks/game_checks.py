"""The contract tests of a user's own game for self-play."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from agents.checks.game_methods import GAMES, MethodChecks, RandomGames, play_randomly
from agents.checks.promises import Broken, Check
from agents.games.boards import one
from agents.games.rules import Example, Game
from config.errors import shown

ILLEGAL_TRIED = 4
"""Actions a position: a game may have thousands."""
SPEED_S = 0.5


class GameChecks:
    """make: a new instance of the game, at every call."""

    def __init__(self, make: Callable[[], Game]) -> None:
        self.make = make
        self.game = make()
        self.played = RandomGames([], self.game.start(0))

    def all(self) -> dict[str, Check]:
        """The checks by the rule that each tries. Later ones build on earlier ones."""
        return {
            "its numbers": self.numbers,
            "shapes and types": self.shapes,
            "legal actions until the end, none then": self.legal,
            "a game ends within `longest` plies": self.end,
            "no method changes what it is given": lambda: self._methods().unchanged(),
            "player 0 begins, and both have turns": self.movers,
            "an illegal action is refused": self.illegal,
            "the same actions are the same game": lambda: self._methods().repeats(),
            "rows do not depend on each other": lambda: self._methods().rows(),
            "the outcome is the mover's": self.outcomes,
            "what the network sees": self.encodings,
            "`parse` reads what `show` writes": lambda: self._methods().texts(),
            "symmetries": lambda: self._methods().symmetries(),
            "speed": self.speed,
        }

    def _methods(self) -> MethodChecks:
        return MethodChecks(self.make, self.game, self.played)

    def numbers(self) -> str:
        """The numbers of actions, planes and plies, and the size of a position, are valid."""
        game = self.game
        for field in ("actions", "longest"):
            if not isinstance(getattr(game, field), int) or getattr(game, field) < 1:
                raise Broken(f"{field} is {shown(getattr(game, field))}; allowed: a whole number")
        if len(game.planes) != 3 or min(game.planes) < 1:
            raise Broken(f"planes is {shown(game.planes)}; allowed: (C, H, W)")
        if not isinstance(game.state_dtype, np.dtype) or game.state_dtype.hasobject:
            raise Broken("state_dtype is no numpy dtype without objects")
        size = game.state_dtype.itemsize
        return f"{game.actions} actions, planes {game.planes}, at most {game.longest} plies, {size} bytes a position"

    def shapes(self) -> str:
        """All methods return the right shapes for no position, one, and three."""
        game = self.game
        for count in (0, 1, 3):
            states = game.start(count)
            _expect("start", states, (count,), game.state_dtype)
            legal = game.legal(states)
            _expect("legal", legal, (count, game.actions), np.dtype(np.bool_))
            _expect("mover", game.mover(states), (count,), np.dtype(np.int8))
            over, value = game.outcome(states)
            _expect("outcome's first", over, (count,), np.dtype(np.bool_))
            _expect("outcome's second", value, (count,), np.dtype(np.float32))
            _expect("encode", game.encode(states), (count, *game.planes), np.dtype(np.float32))
            if not legal.any(axis=1).all():
                raise Broken("the first position has no legal action")
            after = game.play(states, legal.argmax(axis=1))
            _expect("play", after, (count,), game.state_dtype)
        return "kept"

    def legal(self) -> str:
        """The legal actions of random games are right, in which the other rules are tried, too."""
        self.played = play_randomly(self.game)
        counts = [self.game.legal(ply.states).sum(axis=1) for ply in self.played.plies]
        mean = float(np.concatenate(counts).mean())
        return f"{GAMES} random games, on average {mean:.1f} legal actions"

    def end(self) -> str:
        """Random games end, and end correctly."""
        going_on = GAMES - len(self.played.ends)
        if going_on:
            raise Broken(
                f"{going_on} of {GAMES} random games go on after {self.game.longest} plies"
            )
        plies = self.played.plies
        shortest = sum(len(ply.states) == GAMES for ply in plies)
        return f"random ones after {shortest} to {len(plies)} plies"

    def movers(self) -> str:
        """Whether they alternate is the game's own affair, and said."""
        if self.game.mover(self.game.start(1))[0] != 0:
            raise Broken("player 1 begins")
        again = 0
        turns = [0, 0]
        for states, actions in self.played.plies:
            mover = self.game.mover(states)
            next_mover = self.game.mover(self.game.play(states, actions))
            if not np.isin(mover, (0, 1)).all() or not np.isin(next_mover, (0, 1)).all():
                raise Broken(f"mover says {shown(np.unique(mover).tolist())}; allowed: 0 and 1")
            again += int((mover == next_mover).sum())
            turns = [turns[player] + int((mover == player).sum()) for player in (0, 1)]
        if 0 in turns:
            raise Broken(f"player {turns.index(0)} never has a turn in {GAMES} random games")
        if not again:
            return "they alternate"
        return f"one moves again after {again} of {sum(turns)} plies"

    def illegal(self) -> str:
        """Illegal actions raise `ValueError`, also after the end."""
        draws = np.random.default_rng(1)
        tried = 0
        for state in [*(ply.states[0] for ply in self.played.plies), *self.played.ends]:
            allowed = self.game.legal(one(state))[0]
            forbidden = draws.permutation(np.flatnonzero(~allowed))[:ILLEGAL_TRIED]
            # The numbers just outside the range are tried, too.
            for action in (-1, self.game.actions, *forbidden.tolist()):
                tried += 1
                try:
                    self.game.play(one(state), np.array([action]))
                except ValueError:
                    continue
                raise Broken(
                    f"action {action} is not legal and is played:\n{self.game.show(state)}"
                )
        return f"{tried} of them"

    def outcomes(self) -> str:
        """Within -1 and 1, 0 until the end; and as the examples say."""
        for states, _ in self.played.plies:
            if self.game.outcome(states)[1].any():
                raise Broken("outcome gives a value to a game that is not over")
        _, value = self.game.outcome(self.played.ends)
        if not (np.abs(value) <= 1).all():
            raise Broken(
                f"outcome gives {shown(float(value[np.abs(value).argmax()]))}; allowed: -1 … 1"
            )
        examples = self.game.examples()
        for example in examples:
            self._ends_as_told(example)
        # The value is the mover's: as seen by player 0 its sign may turn.
        winner = np.where(self.game.mover(self.played.ends) == 0, value, -value)
        random = f"of {GAMES} random games player 0 wins {int((winner > 0).sum())} and player 1 {int((winner < 0).sum())}"
        known = f"{len(examples)} examples" if examples else "no examples, so sides were not tried"
        return f"{known}; {random}"

    def _ends_as_told(self, example: Example) -> None:
        states = self.game.start(1)
        for ply, action in enumerate(example.actions):
            if self.game.outcome(states)[0][0]:
                raise Broken(
                    f"the example {shown(list(example.actions))} is over after {ply} plies"
                )
            states = self.game.play(states, np.array([action]))
        over, value = self.game.outcome(states)
        if not over[0]:
            raise Broken(f"the example {shown(list(example.actions))} is not over")
        mover = int(self.game.mover(states)[0])
        if value[0] == 0:
            winner = None
        elif value[0] > 0:
            winner = mover
        else:
            winner = 1 - mover
        if winner != example.winner:
            said = _winner(winner)
            told = _winner(example.winner)
            raise Broken(
                f"outcome says that {said} after {shown(list(example.actions))}, the example that {told}"
            )

    def encodings(self) -> str:
        """Finite, and what is done makes a difference."""
        seen_differences = 0
        for states, _ in self.played.plies:
            if not np.isfinite(self.game.encode(states)).all():
                raise Broken("encode gives numbers that are not finite")
            # Two different actions in one position must lead to two positions that look different.
            legal = np.flatnonzero(self.game.legal(states[:1])[0])[:2]
            if len(legal) == 2:
                two = self.game.play(np.repeat(states[:1], 2), legal)
                first, second = self.game.encode(two)
                seen_differences += not np.array_equal(first, second)
        if not seen_differences:
            raise Broken("encode looks the same after any two actions")
        return f"{np.prod(self.game.planes)} numbers"

    def speed(self) -> str:
        """Measure the speed of random play with everything that a search calls."""
        draws = np.random.default_rng(2)
        plies = 0
        states = self.game.start(64)
        began_s = time.process_time()
        while time.process_time() - began_s < SPEED_S:
            legal = self.game.legal(states)
            self.game.encode(states)
            states = self.game.play(states, np.argmax(draws.random(legal.shape) * legal, axis=1))
            plies += len(states)
            over, _ = self.game.outcome(states)
            # Games that are over begin anew, so that 64 are always played.
            states[over] = self.game.start(int(over.sum()))
        return (
            f"{plies / (time.process_time() - began_s):,.0f} plies/s of a core, 64 games at a time"
        )


def _expect(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not isinstance(array, np.ndarray):
        raise Broken(f"{name} gives a {type(array).__name__}; allowed: a numpy array")
    if array.shape != shape or array.dtype != dtype:
        raise Broken(
            f"{name} gives {array.dtype} {list(array.shape)}; allowed: {dtype} {list(shape)}"
        )


def _winner(winner: int | None) -> str:
    return "nobody wins" if winner is None else f"player {winner} wins"
