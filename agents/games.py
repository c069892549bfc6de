"""One environment of a game, made by the game's own code; knows no torch."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from config.errors import BadInput
from config.games import Game
from config.imports import is_import_path, reason


def make_environment(game: Game, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """One environment of a game that is not Atari; raises `BadInput` when it cannot be made."""
    settings = dict(game.options) | ({} if render_mode is None else {"render_mode": render_mode})
    if is_import_path(game.id):
        environment = make_or_refuse(game, lambda: _own(game.id)(**settings))
    else:
        environment = make_or_refuse(game, lambda: gymnasium.make(game.id, **settings))
    if not isinstance(environment, gymnasium.Env):
        raise BadInput(
            f"game {game.name!r} is a {type(environment).__name__}; allowed: a class derived from gymnasium.Env"
        )
    return (
        environment
        if isinstance(environment.observation_space, spaces.Box)
        else FlattenObservation(environment)
    )


def make_or_refuse(game: Game, make: Any) -> Any:
    """Call `make`; whatever a game's own code raises becomes one line that names the game."""
    try:
        with warnings.catch_warnings():
            # Where warnings are errors, importing Box2D (SWIG) under them is a segmentation fault.
            warnings.filterwarnings("ignore", "builtin type [Ss]wig", DeprecationWarning)
            return make()
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # a module may end the process when it is imported
        raise BadInput(f"game {game.name!r} cannot be made: {reason(error)}") from error


def _own(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
