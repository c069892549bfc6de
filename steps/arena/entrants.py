"""Decides who plays in a run's arena, and which pairs meet.

Everybody meets the ladder, and the agent meets everybody. That is enough for one scale of ratings,
and it measures networks that learnt from themselves against others.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from config.errors import BadInput, WrongDirectory, shown
from config.imports import is_import_path
from config.ladder import (
    AGENT,
    EXACT,
    GENERATION,
    LADDER,
    directory_of,
    is_directory,
    read_opponents,
)
from config.outdir import check_outdir
from config.parameters import cannot_be
from config.resolved import Resolved
from config.seeds import integer_seed
from steps.command.context import StepContext
from steps.directory import checkpoints
from steps.directory.experiment import ExperimentRecord, read_experiment
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.self_play import kept_generations, read_generation
from steps.directory.usable import fingerprint
from steps.policy import final_policy_inputs, load_policy_of

if TYPE_CHECKING:
    from agents.arena.opponents import SearchPolicy
    from agents.arena.players import Player
    from agents.games.rules import Game, Integers

    MakePlayer = Callable[[], Player]

COLOURS = 2
MOST_GENERATIONS = 4
"""The largest number of earlier generations that play, evenly from the first to the last that is
kept. A match of one of them with the whole ladder takes minutes.
"""


def entrants(run: RunDirectory, resolved: Resolved) -> dict[str, MakePlayer]:
    """Name -> function that makes the player, a new one for each match: the agent, the ladder,
    minimax if it plays perfectly, earlier generations, the further opponents.
    """
    from agents.arena.opponents import load_player, trained

    policy: SearchPolicy = load_policy_of(run, resolved)[0]  # type: ignore[assignment]
    game = policy.game
    made: dict[str, MakePlayer] = {AGENT: lambda: trained(AGENT, policy)}
    for name in (*LADDER, *([EXACT] if plays_perfectly(game) else [])):
        made[name] = functools.partial(load_player, name, game)
    for generation in earlier_generations(run, resolved):
        name = f"{GENERATION}{generation}"
        try:
            made[name] = _generation(name, run, resolved, generation)
        except (BadInput, WrongDirectory) as error:
            # The run is not judged by it, and nobody can make it again.
            print(f"warning: {name} does not play: {error}")
    for name in opponents_of(resolved):
        # Someone may name a player of the ladder as a further opponent: it plays once.
        if name not in made:
            made[name] = _opponent(name, resolved, game)
    return made


def who_meets_whom(names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairings; first those by which the run is judged."""
    pairings = [
        (one, other)
        for one in names
        for other in (names if one == AGENT else LADDER)
        if one != other
    ]
    kept: dict[frozenset[str], tuple[str, str]] = {}
    for pair in pairings:
        kept.setdefault(frozenset(pair), pair)
    return list(kept.values())


def plays_perfectly(game: Game) -> bool:
    """Whether minimax can search the whole game from its first position."""
    from agents.arena.minimax import Minimax

    return Minimax(game).exact(game.start(1)) is not None


def earlier_generations(run: RunDirectory, resolved: Resolved) -> list[int]:
    """Up to `MOST_GENERATIONS` of the kept networks before the final one, evenly spread."""
    kept = [number for number in kept_generations(run) if number < resolved.epochs]
    if len(kept) <= MOST_GENERATIONS:
        return kept
    last = MOST_GENERATIONS - 1
    return [kept[round(place * (len(kept) - 1) / last)] for place in range(MOST_GENERATIONS)]


def opponents_of(resolved: Resolved) -> list[str]:
    """The names in the parameter `opponents`."""
    text = resolved.workers.opponents
    return read_opponents(text) if text else []


def arena_inputs(context: StepContext) -> Mapping[str, Any]:
    """What the games of a run's arena depend on: the parameters, the final checkpoint, and those of
    the further opponents.
    """
    opponents = {
        name: _depends_on(name, context.resolved) for name in opponents_of(context.resolved)
    }
    return {**final_policy_inputs(context), "opponents": opponents}


def _depends_on(opponent: str, resolved: Resolved) -> Any:
    """What an opponent's games depend on besides its name."""
    if not is_directory(opponent):
        return None
    run, record = agent_directory(opponent, resolved.game.id)
    newest = [0, *run.checkpoint_steps()][-1]
    manifest = run.checkpoint(newest) / checkpoints.MANIFEST
    return [record.identity_hash, fingerprint(run.root, [manifest])]


def check_arena(resolved: Resolved) -> None:
    """Raise `BadInput`, before anything is trained, for an opponent that cannot be found, made, or
    play this game, and for a game with too few openings.
    """
    from agents.arena.opponents import load_player
    from agents.games.named import load_game

    game = load_game(resolved.game.id)
    openings_of(resolved, game, run=0)
    if resolved.experiment.evaluations:
        check_snapshot_openings(resolved, game)
    for name in opponents_of(resolved):
        if is_directory(name):
            run, _ = agent_directory(name, resolved.game.id)
            if not run.checkpoint_steps():
                raise refusal(name, f"no checkpoint in {run.checkpoints}: train makes it")
        else:
            player = load_player(name, game)
            if is_import_path(name):  # a person's own: whether it can move is known here, too
                player.choose(game.start(1), [np.random.default_rng(0)])


def check_snapshot_openings(resolved: Resolved, game: Game) -> None:
    """Raise `BadInput` for a game with too few openings for the evaluations of its snapshots."""
    from agents.arena.matches import opening_lines

    given = resolved.experiment.snapshot_episodes
    try:
        opening_lines(game, given // COLOURS, np.random.default_rng(0))
    except BadInput as error:
        raise cannot_be("snapshot_episodes", given, because=str(error)) from None


def openings_of(resolved: Resolved, game: Game, run: int) -> Integers:
    """The first actions [openings, plies] of the games of every match of a run. Each opening is
    played with both colours.
    """
    from agents.arena.matches import opening_lines

    count = resolved.experiment.evaluation_episodes // COLOURS
    try:
        return opening_lines(game, count, np.random.default_rng(arena_seed(resolved, run)))
    except BadInput as error:
        given = resolved.experiment.evaluation_episodes
        raise cannot_be("evaluation_episodes", given, because=str(error)) from None


def arena_seed(resolved: Resolved, run: int) -> int:
    """The seed of the openings and of all chance in a run's games."""
    return integer_seed(resolved.experiment.seed, run, "arena")


def refusal(opponent: str, because: str) -> BadInput:
    """The error `opponent 'results/x:1' cannot play: …`."""
    return BadInput(f"opponent {shown(opponent)} cannot play: {because}")


def agent_at(opponent: str, game: str) -> SearchPolicy:
    """The final state of the training that `DIRECTORY[:run]` names. game: the id of the game to be
    played. Raises `BadInput`.
    """
    run, record = agent_directory(opponent, game)
    try:
        policy: Any = load_policy_of(run, record.resolved)[0]
    except (BadInput, WrongDirectory) as error:
        raise refusal(opponent, str(error)) from None
    return policy  # type: ignore[no-any-return]


def agent_directory(opponent: str, game: str = "") -> tuple[RunDirectory, ExperimentRecord]:
    """The run's directory that `DIRECTORY[:run]` names. Raises `BadInput` for a directory without a
    self-play experiment of this game, or without such a run.
    """
    outdir, index = directory_of(opponent)
    root: Path = check_outdir(outdir, os.environ.get("STORAGE") or None, "opponents")
    directory = ExperimentDirectory(root)
    try:
        record = read_experiment(directory)
    except (BadInput, WrongDirectory) as error:
        raise refusal(opponent, f"{root} holds no experiment: {error}") from None
    theirs = record.resolved
    if not theirs.descriptor.has_workers:
        raise refusal(opponent, f"its algorithm, {theirs.algorithm}, is not trained by self-play")
    if game and theirs.game.id != game:
        raise refusal(opponent, f"it plays {shown(theirs.game.id)}, not {shown(game)}")
    if index >= theirs.experiment.runs:
        raise refusal(opponent, f"it has the runs 0 to {theirs.experiment.runs - 1}")
    return directory.run(index), record


def _generation(name: str, run: RunDirectory, resolved: Resolved, generation: int) -> MakePlayer:
    from agents.arena.opponents import trained
    from agents.load import load_policy

    state = read_generation(run, generation)
    with checkpoints.fitting(run.network(generation), "it cannot be made again"):
        policy: Any = load_policy(resolved, state)
    return lambda: trained(name, policy)


def _opponent(name: str, resolved: Resolved, game: Game) -> MakePlayer:
    from agents.arena.opponents import load_player, trained

    if not is_directory(name):
        return lambda: load_player(name, game)
    policy = agent_at(name, resolved.game.id)
    return lambda: trained(name, policy)
