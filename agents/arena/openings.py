"""First moves of matches: without them two players that leave nothing to chance play one game over
and over.
"""

from __future__ import annotations

import numpy as np

from agents.games.interfaces import Game, Integers, States
from config.errors import BadInput


def openings(game: Game, count: int, generator: np.random.Generator) -> States:
    """Different positions [count] that go on, see `opening_lines`."""
    return after(game, opening_lines(game, count, generator))


def opening_lines(game: Game, count: int, generator: np.random.Generator) -> Integers:
    """The actions [count, plies] to different positions that go on, all after equally many plies, as
    few as possible; a mirrored position is not another one. Each is to be played with both colours, for
    most are better for one of them.

    Raises `BadInput` for a game that has not so many.
    """
    states, lines, most = game.start(1), np.empty((1, 0), np.int64), 1
    while len(states) < count:
        rows, actions = np.nonzero(game.legal(states))
        following = game.play(states[rows], actions)
        lines = np.column_stack([lines[rows], actions])
        over, _ = game.outcome(following)
        states, lines = following[~over], lines[~over]
        kept = _different(game, states)
        states, lines = states[kept], lines[kept]
        if not len(states):
            raise BadInput(
                f"game {game.name!r} has no {count} different openings of one length; allowed: 1 … {most}"
            )
        most = max(most, len(states))
    return lines[generator.choice(len(states), count, replace=False)]


def after(game: Game, lines: Integers) -> States:
    """The positions [n] after these actions [n, plies] from the start."""
    states = game.start(len(lines))
    for actions in lines.T:
        states = game.play(states, actions)
    return states


def _different(game: Game, states: States) -> Integers:
    """Rows: one of those that look alike, also mirrored or turned."""
    if not len(states):
        return np.empty(0, np.int64)
    planes = game.encode(states).reshape(len(states), game.planes[0], -1)
    mirrored = [planes[:, :, one.board].reshape(len(states), -1) for one in game.symmetries()]
    keys = np.stack([_as_keys(one) for one in mirrored]).min(axis=0)
    seen = [key + bytes([mover]) for key, mover in zip(keys, game.mover(states), strict=True)]
    first = dict(zip(reversed(seen), reversed(range(len(seen))), strict=True))
    return np.array(sorted(first.values()))


def _as_keys(rows: np.ndarray) -> np.ndarray:
    """Each row of [n, m] as bytes, [n] objects, which have an order."""
    keys = np.empty(len(rows), object)
    keys[:] = [row.tobytes() for row in rows]
    return keys
