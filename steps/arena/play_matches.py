"""Evaluates a self-play run: plays every match of its arena, one after the other.

A finished match is kept, so a killed or stopped step continues with the next one. The final network
plays, the average of the weights, with `evaluation_simulations` for each move and no noise.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from agents.arena.matches import after, play_games
from agents.arena.minimax import ValueKept, value_kept
from agents.games.named import load_game
from agents.games.rules import Game
from config.errors import BadInput
from config.ladder import AGENT, VALUE_KEPT
from config.measures import ELO, WIN_RATE
from config.resolved import Resolved
from steps.arena.entrants import (
    arena_inputs,
    arena_seed,
    entrants,
    openings_of,
    who_meets_whom,
)
from steps.arena.games import (
    COLOURS,
    POINTS,
    Played,
    played,
    read_games,
    write_arena,
    write_evaluation,
)
from steps.arena.standing import rating_of
from steps.command.argo_progress import ArgoProgress
from steps.command.context import StepContext
from steps.directory.files import remove_temporaries
from steps.directory.layout import RunDirectory

UNFINISHED = ".arena-"
"""The file with the matches so far of an evaluation that has not ended."""


def evaluate_arena(context: StepContext) -> dict[str, Any]:
    """Play the missing matches and write both tables of games."""
    resolved = context.resolved
    run = context.run
    game = load_game(resolved.game.id)
    players = entrants(context.run, context.resolved)
    seed = arena_seed(resolved, run.index)
    lines = openings_of(resolved, game, run.index)
    pairings = who_meets_whom(list(players))
    path = run.root / _unfinished(context)
    for name in ("evaluation", "arena", UNFINISHED):
        remove_temporaries(run.root, of=name)
    games = _continued(run, path.name)
    argo = ArgoProgress()
    context.stop.describe = lambda: "preempted, the next attempt plays the matches that are missing"
    for number, (first, second) in enumerate(pairings, 1):
        match = [one for one in games if (one.player, one.opponent) == (first, second)]
        if not match:
            context.check_stop()
            result = play_games(
                game, players[first](), players[second](), after(game, lines), seed,
                each_turn=context.check_stop,
            )  # fmt: skip
            match = played(first, second, result, lines.tolist(), seed)
            games += match
            write_arena(path, games)
        argo.at(number, len(pairings))
        share = WIN_RATE.shown(WIN_RATE.of_run([one.points for one in match]))
        print(f"match {number} of {len(pairings)}: {first} against {second}: {share}")
    # evaluation.csv comes last: where it exists, arena.csv is complete, too.
    judged = [one for one in games if one.is_judged]
    write_arena(run.arena_csv, [one for one in games if not one.is_judged])
    write_evaluation(run.evaluated(WIN_RATE), judged)
    _remove_unfinished(run)
    details = _details(resolved, games, judged, _value_kept(game, judged, lines.shape[1]))
    return {"step": run.checkpoint_steps()[-1], **details}


def arena_is_written(context: StepContext) -> bool:
    """Whether both tables exist and are intact."""
    try:
        evaluated = read_games(context.run.evaluated(WIN_RATE))
        return bool(evaluated and read_games(context.run.arena_csv))
    except (OSError, BadInput):
        return False


def _details(
    resolved: Resolved, games: list[Played], judged: list[Played], known: ValueKept
) -> dict[str, Any]:
    share = None if known.share is None else POINTS * known.share
    return {
        f"{WIN_RATE.column}_mean": WIN_RATE.of_run([one.points for one in judged]),
        ELO.column: rating_of(games, AGENT),
        VALUE_KEPT: share,
        "value_known_positions": known.positions,
        "episodes": len(judged),
        "games": len(games),
        "simulations": resolved.hyperparameters.evaluation_simulations,
    }


def _value_kept(game: Game, judged: list[Played], opening_plies: int) -> ValueKept:
    """The share of the agent's own moves, after the openings, that keep the position's value."""
    states = [game.start(0)]  # no state, so that `concatenate` always has something
    actions = list[int]()
    for one in judged:
        state = game.start(1)
        colour = COLOURS.index(one.colour)
        for ply, action in enumerate(one.actions):
            if ply >= opening_plies and int(game.mover(state)[0]) == colour:
                states.append(state)
                actions.append(action)
            state = game.play(state, np.array([action]))
    return value_kept(game, np.concatenate(states), np.array(actions, np.int64))


def _unfinished(context: StepContext) -> str:
    inputs = json.dumps(arena_inputs(context), sort_keys=True)
    return f"{UNFINISHED}{hashlib.sha256(inputs.encode()).hexdigest()[:16]}.csv"


def _continued(run: RunDirectory, name: str) -> list[Played]:
    """The matches of the same arena that an earlier attempt has played. Those of another arena are
    removed.
    """
    path = run.root / name
    _remove_unfinished(run, but=name)
    try:
        return read_games(path)
    except (FileNotFoundError, BadInput):
        return []


def _remove_unfinished(run: RunDirectory, but: str = "") -> None:
    for path in run.root.glob(f"{UNFINISHED}*.csv"):
        if path.name != but:
            path.unlink()
