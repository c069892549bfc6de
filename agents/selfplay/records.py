"""Recorded games, from which a network can begin: what their players did is the policy, how they ended the
value.

A text with a game on each line: its actions by number, with spaces between, `3 3 4 2 4 5 4`; from `#` on a
line is a comment. Every game is played to its end.
"""

from __future__ import annotations

import numpy as np

from agents.games.interfaces import Game
from agents.selfplay.interfaces import Rows
from agents.selfplay.positions import joined, packed_states
from config.errors import BadInput, shown


def read_games(text: str, game: Game) -> Rows:
    """Every position of every game, as if each had been searched in full; raises `BadInput` with the
    first line that is no game.
    """
    lines = [(number, line.partition("#")[0]) for number, line in enumerate(text.splitlines(), 1)]
    games = [(number, _actions(number, line)) for number, line in lines if line.split()]
    if not games:
        raise BadInput("there is no game in it; allowed: a line of actions' numbers for each game")
    longest = max(len(actions) for _, actions in games)
    states, parts, of_game = game.start(len(games)), list[Rows](), list[np.ndarray]()
    movers = list[np.ndarray]()
    for ply in range(longest):
        running = np.array([row for row, (_, actions) in enumerate(games) if ply < len(actions)])
        actions = np.array([games[row][1][ply] for row in running])
        _check_legal(game, states[running], actions, [games[row][0] for row in running], ply)
        parts.append(_rows(game, states[running], actions))
        of_game.append(running)
        movers.append(game.mover(states[running]))
        states[running] = game.play(states[running], actions)
    over, values = game.outcome(states)
    if not over.all():
        number = games[int(np.argmin(over))][0]
        raise BadInput(f"line {number} does not play its game to the end")
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
