"""Matches: all games of two players at once, in lock step."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.arena.players import Player, results
from agents.games.rules import Game, Integers, States
from config.errors import BadInput

COLOURS = 2


class Tournament(NamedTuple):
    """Everybody against everybody, from the same openings.

    names [n]. pairings: who met, as numbers of players. scores [pairings, openings, 2]: of the first
    one of each pairing, 1 won, 0.5 drawn, 0 lost, as player 0 and as player 1 of each opening.
    """

    names: list[str]
    pairings: list[tuple[int, int]]
    scores: npt.NDArray[np.float64]


class Games(NamedTuple):
    """Two games from each of p openings: the first of two players is player 0 in one of them and
    player 1 in the other.

    scores [p, 2]: of the first player, 1 won, 0.5 drawn, 0 lost. actions: of both players, game after
    game [2 p] [plies], from the opening on.
    """

    scores: npt.NDArray[np.float64]
    actions: list[npt.NDArray[np.int64]]


class Turn(NamedTuple):
    """A position [] of a game, and what its mover does: -1 at the end. policy [A] and value, for the
    mover: None where the player says nothing.
    """

    state: States
    action: int
    policy: npt.NDArray[np.float64] | None
    value: float | None


def everybody(game: Game, players: Sequence[Player], pairs: int, seed: int) -> Tournament:
    """Every player meets every other one from `pairs` openings with both colours. One seed, one
    result; further players change nothing about the matches of the others.

    Raises `BadInput` for players of one name, or more openings than there are.
    """
    names = [player.name for player in players]
    if len(set(names)) < len(names):
        raise BadInput(f"players {', '.join(names)}: each name only once")
    starts = openings(game, pairs, np.random.default_rng(seed))
    pairings = list(itertools.combinations(range(len(players)), 2))
    scores = [
        play_match(game, players[first], players[second], starts, seed)
        for first, second in pairings
    ]
    return Tournament(names, pairings, np.array(scores).reshape(len(pairings), pairs, COLOURS))


def play_match(
    game: Game, first: Player, second: Player, starts: States, seed: int
) -> npt.NDArray[np.float64]:
    """The scores [p, 2] of `play_games`."""
    return play_games(game, first, second, starts, seed).scores


def play_games(
    game: Game,
    first: Player,
    second: Player,
    starts: States,
    seed: int,
    each_turn: Callable[[], None] = lambda: None,
) -> Games:
    """Two games from each of these positions [p], all in lock step; each_turn: may raise, to end it."""
    # Games 2 i and 2 i + 1 begin with opening i; in the second one the colours are exchanged.
    states = np.repeat(starts, COLOURS)
    colours = np.tile(np.arange(COLOURS), len(starts))
    players = (first, second)
    won = np.zeros(len(states), np.int64)
    generators = _generators(players, len(states), seed)
    played = [list[int]() for _ in states]
    running = np.arange(len(states))
    # Each round plays one ply of every game that goes on: first the positions in which one player
    # is to move, all at once, then the other's.
    while len(running):
        each_turn()
        turns = np.where(game.mover(states[running]) == colours[running], 0, 1)
        for who, player in enumerate(players):
            rows = running[turns == who]
            if len(rows):
                own = [generators[who][row] for row in rows]
                actions = player.choose(states[rows], own).actions
                states[rows] = game.play(states[rows], actions)
                for row, action in zip(rows, actions, strict=True):
                    played[row].append(int(action))
        over, result = results(game, states[running], colours[running])
        won[running] = result
        running = running[~over]
    scores = (won.reshape(-1, COLOURS) + 1) / 2
    return Games(scores, [np.array(actions, np.int64) for actions in played])


def watched(game: Game, players: Sequence[Player], start: States, seed: int) -> Iterator[Turn]:
    """Play one game from a position [1] to its end and yield each turn. players [2]: by colour."""
    generators = _generators(players, 1, seed)
    state = start
    while not game.outcome(state)[0][0]:
        mover = int(game.mover(state)[0])
        choices = players[mover].choose(state, generators[mover])
        policy = None if choices.policy is None else choices.policy[0]
        value = None if choices.value is None else float(choices.value[0])
        yield Turn(state[0], int(choices.actions[0]), policy, value)
        state = game.play(state, choices.actions)
    yield Turn(state[0], -1, None, None)


def _generators(
    players: Sequence[Player], games: int, seed: int
) -> list[list[np.random.Generator]]:
    """A generator for each player and game, derived from the players' names and not from their
    places in a list.
    """
    # Names are hashed by a checksum, because Python's own hash of a text differs between processes.
    names = [zlib.crc32(player.name.encode()) for player in players]
    generators = list[list[np.random.Generator]]()
    for who in range(len(players)):
        seeds = [[seed, *names, who, game] for game in range(games)]
        generators.append([np.random.default_rng(each) for each in seeds])
    return generators


def openings(game: Game, count: int, generator: np.random.Generator) -> States:
    """Different positions [count] that go on, see `opening_lines`."""
    return after(game, opening_lines(game, count, generator))


def opening_lines(game: Game, count: int, generator: np.random.Generator) -> Integers:
    """The actions [count, plies] to different positions that go on, all after equally many plies, as
    few as possible; a mirrored position is not another one. Each is to be played with both colours, for
    most are better for one of them.

    Raises `BadInput` for a game that has not so many.
    """
    states = game.start(1)
    lines = np.empty((1, 0), np.int64)
    most = 1
    while len(states) < count:
        # All positions one ply further, without those that are over or look like another one.
        rows, actions = np.nonzero(game.legal(states))
        following = game.play(states[rows], actions)
        lines = np.column_stack([lines[rows], actions])
        over, _ = game.outcome(following)
        states = following[~over]
        lines = lines[~over]
        kept = _different(game, states)
        states = states[kept]
        lines = lines[kept]
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
    # The least of a position's mirrored encodings is the same for all of them.
    keys = np.stack([_as_keys(one) for one in mirrored]).min(axis=0)
    seen = [key + bytes([mover]) for key, mover in zip(keys, game.mover(states), strict=True)]
    # A dict keeps the last row of equal keys; in reversed order that is the first one.
    first = dict(zip(reversed(seen), reversed(range(len(seen))), strict=True))
    return np.array(sorted(first.values()))


def _as_keys(rows: np.ndarray) -> np.ndarray:
    """Each row of [n, m] as bytes, [n] objects, which have an order."""
    keys = np.empty(len(rows), object)
    keys[:] = [row.tobytes() for row in rows]
    return keys
