"""A game for self-play by its name; what it does not need is not imported."""

from __future__ import annotations

import importlib
from typing import Any

from agents.games.batched import Batched
from agents.games.rules import Game
from config.errors import BadInput, shown, unknown
from config.imports import imported, is_import_path, reason

OURS = {
    "tic-tac-toe": "agents.games.tic_tac_toe:TicTacToe",
    "connect-four": "agents.games.connect_four:ConnectFour",
    "othello6": "agents.games.othello6:Othello6",
}
OPENSPIEL = "openspiel:"
BATCHED = ("state_dtype", "start", "legal", "play", "mover", "outcome", "encode")
SINGLE = ("actions", "longest", "start", "legal", "play", "mover", "result", "encode", "show")


def load_game(name: str) -> Game:
    """The game of a name: one of this project's by its short name, OpenSpiel's as `openspiel:NAME`,
    or a user's own as `package.module:Name`, written as a `Game` or for one position at a time.

    Raises `BadInput` with one line if it is unknown, cannot be imported, or is not such a game.
    """
    # Imported here, because OpenSpiel is an optional package.
    if name.startswith(OPENSPIEL):
        from agents.games.openspiel import OpenSpielGame

        return Batched(OpenSpielGame(name.removeprefix(OPENSPIEL)), name)
    if name in OURS:
        module, _, attribute = OURS[name].partition(":")
        made: Game = getattr(importlib.import_module(module), attribute)()
        return made
    if not is_import_path(name):
        raise unknown("game", name, [*OURS, f"{OPENSPIEL}NAME", "package.module:Name"])
    return _own(name, imported(name, "game"))


def _own(name: str, found: Any) -> Game:
    try:
        game = found() if callable(found) else found
    except (Exception, SystemExit) as error:
        raise BadInput(f"game {name!r} cannot be made: {reason(error)}") from error
    kind = _kind(game)
    if kind is None:
        missing = [field for field in SINGLE if not hasattr(game, field)]
        raise BadInput(
            f"game {shown(name)} has no {', '.join(missing)}; agents/games/one_at_a_time.py says what is asked of it"
        )
    if kind == "batched":
        batched: Game = game
        return batched
    try:
        return Batched(game, name)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"game {name!r} does not start: {reason(error)}") from error


def _kind(game: Any) -> str | None:
    """Which of the two interfaces it has, if any."""
    if all(hasattr(game, field) for field in BATCHED):
        return "batched"
    return "single" if all(hasattr(game, field) for field in SINGLE) else None
