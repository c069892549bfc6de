"""Makes one environment of a game by the game's own code. Imports no torch."""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import FilterObservation, FlattenObservation

from agents.environments.carried_over import MadeAnew, carries_over
from agents.environments.checked import CheckedEnvironment, is_strange
from agents.environments.global_state import settings_kept
from agents.environments.masks import MaskFromObservation, is_in_observation
from agents.environments.mujoco_warnings import print_warnings
from agents.environments.pools import PooledEnvironment, options_taken
from config.environment import EnvironmentSettings
from config.errors import BadInput, unknown
from config.games import Game
from config.imports import imported, is_import_path, reason
from config.suites import suite_of


def make_environment(
    game: Game, settings: EnvironmentSettings, render_mode: str | None = None
) -> gymnasium.Env[Any, Any]:
    """Make one environment of a game that is not Atari. Raises `BadInput` if that fails."""
    if not is_strange(game, settings):
        return _made(game, settings, render_mode)
    with settings_kept():
        return _made(game, settings, render_mode)


def _made(
    game: Game, settings: EnvironmentSettings, render_mode: str | None
) -> gymnasium.Env[Any, Any]:
    filmed = {} if render_mode is None else {"render_mode": render_mode}
    options = make_or_refuse(game, lambda: options_of(game, settings)) | filmed
    if game.is_pooled:
        environment = make_or_refuse(game, lambda: PooledEnvironment(game, options))
    elif is_import_path(game.id):
        environment = make_or_refuse(game, lambda: _own(game.id)(**options))
    else:
        environment = make_or_refuse(game, lambda: _registered(game, options))
    if not isinstance(environment, gymnasium.Env):
        raise BadInput(
            f"game {game.name!r} {_what_it_is(environment)}; allowed: a class derived from gymnasium.Env, or a "
            "function that returns one environment"
        )
    for path in settings.wrapper_paths:
        environment = _wrapped(game, path, environment)
    if is_strange(game, settings):
        environment = CheckedEnvironment(environment, game.name)
    if is_in_observation(environment.observation_space):
        environment = MaskFromObservation(environment)
    if not isinstance(environment.observation_space, spaces.Box):
        environment = _flattened(game, environment)
    made: gymnasium.Env[Any, Any] = environment
    return made


def _registered(game: Game, options: dict[str, Any]) -> Any:
    """Make an environment by its id, after its module was imported, if the id names one."""
    _import_registering(game.id)
    id_ = game.id.rpartition(":")[2]
    entry: Any = gymnasium.spec(id_).entry_point
    if isinstance(entry, str):
        _own(entry)
    environment = gymnasium.make(game.id, **options)
    # Not where a person's function made it: what that has set in it would be lost.
    return MadeAnew(environment) if carries_over(id_) else environment


def _import_registering(id_: str) -> None:
    """Import the module that registers an id: that of `package.module:Id-v0`, or its suite's. Raises
    `BadInput` if it does not. Some, as MinAtar's, do so only when their function `register_envs` is
    called.
    """
    module_name, _, name = id_.rpartition(":")
    if not module_name:
        suite = suite_of(id_)
        module_name = suite.registered_by if suite else ""
    if not module_name:
        return
    module = importlib.import_module(module_name)
    register = getattr(module, "register_envs", None)
    if name not in gymnasium.registry and callable(register):
        register()
    if name not in gymnasium.registry:
        raise BadInput(
            f"game {id_!r} cannot be made: {module_name!r} registers no {name!r}; allowed: the module that "
            "registers it, or package.module:Name of a function of yours that returns the environment"
        )


def _flattened(game: Game, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Observations as one vector, of a `Dict` without the parts that are texts. Raises `BadInput` if
    they cannot be made numbers.
    """
    texts = texts_in(environment.observation_space)
    if texts:
        space: Any = environment.observation_space
        seen = [name for name in space.spaces if name not in texts]
        _say_what_is_seen(game.name, tuple(seen), tuple(texts))
        environment = FilterObservation(environment, seen)
    try:
        return FlattenObservation(environment)
    except (NotImplementedError, TypeError) as error:
        space = environment.observation_space
        raise BadInput(
            f"game {game.name!r} has observations that cannot be made numbers: a {type(space).__name__}; "
            "allowed: a wrapper that makes them numbers, -p wrappers=package.module:Name"
        ) from error


@functools.cache
def _say_what_is_seen(name: str, seen: tuple[str, ...], texts: tuple[str, ...]) -> None:
    """Print once in a process what of an observation is left out."""
    print(f"observations of {name}: {', '.join(seen)}; left out, being text: {', '.join(texts)}")


def texts_in(space: spaces.Space[Any]) -> list[str]:
    """The parts of a `Dict` of observations that are texts, such as MiniGrid's mission: its space is a
    `Text`, or one that gymnasium does not know how to make numbers of. Empty if nothing else is there.
    """
    if not isinstance(space, spaces.Dict):
        return []
    texts = [name for name, part in space.spaces.items() if _is_text(part)]
    return texts if len(texts) < len(space.spaces) else []


def _is_text(space: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Text):
        return True
    try:
        spaces.flatten_space(space)
    except (NotImplementedError, TypeError):
        return True
    return False


def _what_it_is(made: object) -> str:
    """What was made in place of an environment, in a few words."""
    if made is None:
        return (
            "returned nothing, as a function does that only registers environments: call it in a function "
            "of yours that returns gymnasium.make(…)"
        )
    if isinstance(made, VectorEnv):
        return "makes a vector of environments, which the training does itself"
    return f"is a {type(made).__name__}"


def _wrapped(
    game: Game, path: str, environment: gymnasium.Env[Any, Any]
) -> gymnasium.Env[Any, Any]:
    wrap = imported(path, "wrapper")
    try:
        wrapped = wrap(environment)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"wrapper {path!r} cannot be applied to {game.name!r}: {reason(error)}; "
            "allowed: what takes an environment alone, such as a function of yours that gives a wrapper its arguments"
        ) from error
    if not isinstance(wrapped, gymnasium.Env):
        raise BadInput(
            f"wrapper {path!r} returned a {type(wrapped).__name__}; allowed: a gymnasium.Env"
        )
    return wrapped


def options_of(game: Game, settings: EnvironmentSettings) -> dict[str, Any]:
    """The keyword arguments of an environment: the game's own, then what a person gave; raises
    `BadInput` for one that it does not take, as far as its signature tells.
    """
    if settings.options:
        taken = _taken(game)
        for name in settings.options:
            if taken is not None and name not in taken:
                raise unknown(f"option of {game.name!r} in 'env_options'", name, taken)
    return {**game.options, **settings.options}


def _taken(game: Game) -> list[str] | None:
    """The names of the arguments that make an environment; None where it takes any."""
    if game.is_pooled:
        return options_taken(game)
    if is_import_path(game.id):
        creator = _own(game.id)
        names = list[str]()
    else:
        _import_registering(game.id)
        entry: Any = gymnasium.spec(game.id.rpartition(":")[2]).entry_point
        creator = _own(entry) if isinstance(entry, str) else entry
        names = ["max_episode_steps"]
    try:
        arguments = inspect.signature(creator).parameters.values()
    except ValueError:
        # A creator that is not written in Python has no signature.
        return None
    if any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
        return None
    return names + [argument.name for argument in arguments if argument.name != "render_mode"]


def make_or_refuse(game: Game, make: Any) -> Any:
    """Call `make`; whatever a game's own code raises becomes one line that names the game."""
    try:
        with warnings.catch_warnings():
            # Importing Box2D (made by SWIG) gives such a warning; where warnings are errors that is
            # a segmentation fault.
            warnings.filterwarnings("ignore", "builtin type [Ss]wig", DeprecationWarning)
            return make()
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        # SystemExit, because a module may try to end the process when it is imported.
        suite = suite_of(game.id)
        # Packages of a suite may not agree with each other, which no message of theirs says.
        versions = f" ({suite.versions()})" if suite else ""
        raise BadInput(f"game {game.name!r} cannot be made: {reason(error)}{versions}") from error


def _own(name: str) -> Any:
    """What makes an environment, by its import path."""
    module_name, _, attribute = name.partition(":")
    module = importlib.import_module(module_name)
    print_warnings()
    return getattr(module, attribute)
