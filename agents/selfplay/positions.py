"""Positions of self-play as rows, and the window of the last ones that a trainer learns from.

state      uint8 [S]     the game's own record
policy     float32 [A]   what the search says of the actions, 0 after a cheap one
legal      bool [A]
value      float32 []    how the game ended, for the mover: 1 won, 0 drawn, -1 lost
full       bool []       whether the search was a full one, whose policy is learnt
generation int64 []      of the network that the search began with
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from agents.games.rules import Floats, Game, States
from agents.selfplay.roles import Rows
from config.errors import BadInput, shown

TOLERANCE = 1e-3
"""How far the sum of a policy may be from 1."""
COMPARED = 20_000
"""Positions among which equal ones are counted."""


def columns_of(game: Game) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Column -> type and shape of one row."""
    actions = (game.actions,)
    return {
        "state": (np.dtype(np.uint8), (game.state_dtype.itemsize,)),
        "policy": (np.dtype(np.float32), actions),
        "legal": (np.dtype(np.bool_), actions),
        "value": (np.dtype(np.float32), ()),
        "full": (np.dtype(np.bool_), ()),
        "generation": (np.dtype(np.int64), ()),
    }


def packed_states(states: States) -> np.ndarray:
    """Records [n] -> uint8 [n, S]."""
    return np.ascontiguousarray(states).view(np.uint8).reshape(len(states), -1)


def unpacked_states(game: Game, packed: np.ndarray) -> States:
    """Undo `packed_states`."""
    states: States = np.ascontiguousarray(packed).view(game.state_dtype).reshape(len(packed))
    return states


def joined(parts: Iterable[Rows]) -> Rows:
    """Rows one after the other; of at least one part."""
    listed = list(parts)
    rows: Rows = {}
    for name in listed[0]:
        rows[name] = np.concatenate([part[name] for part in listed])
    return rows


def refusal(game: Game, rows: Mapping[str, np.ndarray]) -> str:
    """Why nothing can be learnt from these rows, in a few words; empty if it can."""
    expected = columns_of(game)
    if set(rows) != set(expected):
        return f"columns {sorted(rows)}"
    count = len(rows["value"])
    for name, (dtype, shape) in expected.items():
        if rows[name].dtype != dtype or rows[name].shape != (count, *shape):
            return f"{name} of {rows[name].dtype} {list(rows[name].shape)}"
    policy = rows["policy"]
    legal = rows["legal"]
    full = rows["full"]
    if not count:
        return "no position"
    if not legal.any(axis=1).all():
        return "a position without a legal action"
    # This form of the condition refuses NaN, too, which is neither below nor above 1.
    if not (np.abs(rows["value"]) <= 1).all():
        return "a value beyond -1 … 1"
    if not (policy >= 0).all() or policy[~legal].any():
        return "a policy that is negative, not finite, or likes an illegal action"
    if (np.abs(policy[full].sum(axis=1) - 1) > TOLERANCE).any():
        return "a policy that does not sum to 1"
    return ""


class Window:
    """The last positions, in memory. added: of all times; len: those that are learnt from."""

    def __init__(self, game: Game) -> None:
        self._columns = {
            name: np.empty((0, *shape), dtype) for name, (dtype, shape) in columns_of(game).items()
        }
        self._first = self._end = self._new = 0
        self.added = 0

    def __len__(self) -> int:
        return self._end - self._first

    def add(self, rows: Rows, size: int) -> None:
        """Rows behind the others; then only the last `size` stay."""
        count = len(rows["value"])
        if self._end + count > len(self._columns["value"]):
            self._make_room(count)
        for name, column in self._columns.items():
            column[self._end : self._end + count] = rows[name]
        self._end += count
        self._new += count
        self.added += count
        # Older rows stay in memory until room is made, where only those of the window are copied.
        self._first = max(self._first, self._end - size)

    def sample(self, count: int, generator: np.random.Generator) -> Rows:
        """Independent draws, all positions alike."""
        return self._rows(generator.integers(self._first, self._end, count))

    def unique_share(self) -> float:
        """The share of distinct positions among the newest."""
        states = self._columns["state"][max(self._first, self._end - COMPARED) : self._end]
        # Whole records as single values, which numpy can compare.
        keys = states.view(f"V{states.shape[1]}").ravel()
        return len(np.unique(keys)) / max(1, len(keys))

    def grown(self) -> Rows:
        """The positions added since the last call, in order; if they are more than a whole window,
        the last ones.
        """
        new = min(self._new, len(self))
        self._new = 0
        return self._rows(slice(self._end - new, self._end))

    def load(self, parts: Iterator[Rows], added: int) -> None:
        """Begin with these rows, of so many of all times."""
        for rows in parts:
            # With this size nothing is dropped: the stream holds just the window.
            self.add(rows, len(self) + len(rows["value"]))
        self.added = added
        self._new = 0

    def _rows(self, which: Any) -> Rows:
        return {name: column[which] for name, column in self._columns.items()}

    def _make_room(self, count: int) -> None:
        """Make room for these rows and for as many again as there are."""
        kept = self._rows(slice(self._first, self._end))
        room = 2 * (len(self) + count)
        self._end = len(self)
        self._first = 0
        for name, rows in kept.items():
            self._columns[name] = np.empty((room, *rows.shape[1:]), rows.dtype)
            self._columns[name][: len(rows)] = rows


def read_games(text: str, game: Game) -> Rows:
    """Every position of every game, as if each had been searched in full; raises `BadInput` with the
    first line that is no game.
    """
    lines = [(number, line.partition("#")[0]) for number, line in enumerate(text.splitlines(), 1)]
    games = [(number, _actions(number, line)) for number, line in lines if line.split()]
    if not games:
        raise BadInput("there is no game in it; allowed: a line of actions' numbers for each game")
    longest = max(len(actions) for _, actions in games)
    # All games are played side by side, ply by ply.
    states = game.start(len(games))
    parts = list[Rows]()
    of_game = list[np.ndarray]()
    movers = list[np.ndarray]()
    for ply in range(longest):
        running = np.array([row for row, (_, actions) in enumerate(games) if ply < len(actions)])
        actions = np.array([games[row][1][ply] for row in running])
        numbers = [games[row][0] for row in running]
        _check_legal(game, states[running], actions, numbers, ply)
        parts.append(_rows(game, states[running], actions))
        of_game.append(running)
        movers.append(game.mover(states[running]))
        states[running] = game.play(states[running], actions)
    over, values = game.outcome(states)
    if not over.all():
        number = games[int(np.argmin(over))][0]
        raise BadInput(f"line {number} does not play its game to the end")
    # The result for player 0, then for the mover of each position.
    of_first = np.where(game.mover(states) == 0, values, -values)[np.concatenate(of_game)]
    rows = joined(parts)
    rows["value"] = np.where(np.concatenate(movers) == 0, of_first, -of_first).astype(np.float32)
    return rows


def _actions(number: int, line: str) -> list[int]:
    words = line.split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise BadInput(f"line {number} is {shown(line.strip())}; allowed: actions' numbers")
    return [int(word) for word in words]


def _check_legal(
    game: Game, states: np.ndarray, actions: np.ndarray, numbers: list[int], ply: int
) -> None:
    known = actions < game.actions
    # Unknown actions are looked up as 0, which `known` takes back.
    legal = known & game.legal(states)[np.arange(len(states)), np.where(known, actions, 0)]
    if not legal.all():
        row = int(np.argmin(legal))
        raise BadInput(f"line {numbers[row]}: action {actions[row]} at ply {ply + 1} is not legal")


def _rows(game: Game, states: np.ndarray, actions: np.ndarray) -> Rows:
    count = len(states)
    return {
        "state": packed_states(states),
        "policy": np.eye(game.actions, dtype=np.float32)[actions],
        "legal": game.legal(states),
        "value": np.zeros(count, np.float32),
        "full": np.ones(count, np.bool_),
        "generation": np.zeros(count, np.int64),
    }


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
