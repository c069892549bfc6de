"""Turns the texts that a user gave into one complete, checked experiment.

Precedence: dataclass default < the algorithm's preset < its section in the game's preset < given.
An empty hyperparameter or environment setting means the preset's value. Everything that needs no
file system is checked here: by `workflows.submit` before anything is sent, and again by `prepare`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from config.algorithms import ALGORITHMS, algorithm_path, find_algorithm
from config.algorithms.descriptor import MEMBERS
from config.described import own_defaults
from config.environment import Environments
from config.errors import BadInput, shown, unknown
from config.experiment import Experiment
from config.games import OPENSPIEL_ID, Game, find_game, is_well_formed
from config.imports import package_versions
from config.parameters import Parameter, declared
from config.presets import preset_values, unknown_parameter
from config.resolved import NOT_RECORDED, STEPS, Resolved, own_network
from config.rules import check_together


def resolve(algorithm: str, given: Mapping[str, str]) -> Resolved:
    """Decide and check every parameter. Raises `BadInput` with one line for the first parameter
    that is wrong.
    """
    descriptor = find_algorithm(algorithm)
    shared = dict(declared(Experiment))
    settings = dict(declared(descriptor.environment))
    own = dict(declared(descriptor.hyperparameters))
    members = dict([MEMBERS[descriptor.topology]]) if descriptor.topology in MEMBERS else {}
    of_members = {name: one for owner in members.values() for name, one in declared(owner).items()}
    for name, value in given.items():
        if name not in shared | of_members | settings | own:
            raise unknown_parameter(name, [*shared, *of_members, *settings, *own])
        if not isinstance(value, str):
            raise BadInput(f"parameter {name!r} cannot be {shown(value)}; allowed: text")
    experiment: dict[str, Any] = own_defaults(descriptor) | {
        name: shared[name].parse(value) for name, value in given.items() if name in shared
    }
    game = find_game(experiment["game"], descriptor.families)
    decided = preset_values(algorithm, game)
    goal_steps = _goal_steps(experiment, decided.pop(STEPS))
    either = settings | own
    decided |= {
        name: either[name].parse(value)
        for name, value in given.items()
        if name in either and value != ""
    }
    environment = descriptor.environment(
        **{name: decided[name] for name in settings if name in decided}
    )
    hyperparameters = descriptor.hyperparameters(
        **{name: decided[name] for name in own if name in decided}
    )
    if experiment.get("epochs") is None:
        learnt_steps = max(1, goal_steps - hyperparameters.warm_up_steps(environment))
        experiment["epochs"] = -(-learnt_steps // hyperparameters.steps_per_epoch(environment))
    if experiment.get("evaluation_policy") is None:
        # As in rl-baselines3-zoo: in Atari's games a greedy agent may stand still until the time
        # limit, which is 27,000 steps away.
        experiment["evaluation_policy"] = "sample" if game.is_atari else "greedy"
    resolved = Resolved(
        algorithm=algorithm,
        experiment=Experiment(**experiment),
        environment=environment,
        hyperparameters=hyperparameters,
        game=game,
        packages=package_versions(_brought(algorithm, game, environment, hyperparameters)),
        **{name: _of_members(owner, given) for name, owner in members.items()},
    )
    check_together(resolved)
    return resolved


def _goal_steps(experiment: dict[str, Any], preset_steps: int) -> int:
    """The length of a training in environment steps, if its epochs are not given. Takes `steps` out
    of the given parameters. Raises `BadInput` if both are given.
    """
    given_steps = experiment.pop(STEPS, None)
    if given_steps is None:
        return preset_steps
    if (epochs := experiment.get("epochs")) is not None:
        raise BadInput(
            f"parameters 'epochs' and 'steps' cannot be given together: {epochs} and {given_steps}; "
            "allowed: one of them"
        )
    goal: int = given_steps
    return goal


def _of_members(owner: type[Any], given: Mapping[str, str]) -> Any:
    known: Mapping[str, Parameter] = declared(owner)
    return owner(
        **{name: known[name].parse(value) for name, value in given.items() if name in known}
    )


def _brought(
    algorithm: str, game: Game, environment: Environments, hyperparameters: Any
) -> list[str]:
    """The import paths of everything that the user brought."""
    paths = [] if algorithm in ALGORITHMS else [algorithm_path(algorithm) or algorithm]
    if ":" in game.id:
        paths.append("pyspiel:Game" if OPENSPIEL_ID.fullmatch(game.id) else game.id)
    network = own_network(hyperparameters)
    paths += [] if network is None else [network]
    return paths + environment.wrapper_paths


def resolved_from_dict(written: Mapping[str, Any]) -> Resolved:
    """Rebuild and check the experiment that `as_dict` wrote. Raises `BadInput`, which names
    what is missing, unknown or wrong.
    """
    sections = [field.name for field in dataclasses.fields(Resolved)]
    of_inputs = ["origin", "recorded", "first_epochs"]
    of_some = [*(name for name, _ in MEMBERS.values()), *of_inputs]
    of_all = [name for name in sections if name not in of_some]
    _same_keys("experiment", written, sections, needed=of_all)
    descriptor = find_algorithm(_text("algorithm", written["algorithm"]))
    members = dict([MEMBERS[descriptor.topology]]) if descriptor.topology in MEMBERS else {}
    own = [*of_all, *members]
    _same_keys("experiment", written, [*own, *of_inputs], needed=own)
    resolved = Resolved(
        algorithm=written["algorithm"],
        experiment=_read(Experiment, "experiment", written["experiment"], without=NOT_RECORDED),
        environment=_read(descriptor.environment, "environment", written["environment"]),
        hyperparameters=_read(
            descriptor.hyperparameters, "hyperparameters", written["hyperparameters"]
        ),
        game=_read_game(written["game"]),
        packages=_read_packages(written["packages"]),
        **{name: _read(settings, name, written[name]) for name, settings in members.items()},
        origin=_text("origin", written.get("origin", "")),
        recorded=_text("recorded", written.get("recorded", "")),
        first_epochs=_read_first_epochs(written.get("first_epochs", 0)),
    )
    if bool(resolved.origin) != (resolved.experiment.start_from is not None):
        raise BadInput("experiment: origin and start_from belong together")
    for name in ("epochs", "evaluation_policy"):
        if getattr(resolved.experiment, name) is None:
            raise BadInput(f"experiment: {name} is null; written by another program?")
    check_together(resolved)
    return resolved


def _same_keys(
    where: str, written: object, expected: list[str], needed: list[str] | None = None
) -> None:
    """Raise `BadInput` unless a mapping has these keys. needed: the keys that must be there; by
    default all that are expected.
    """
    if not isinstance(written, Mapping):
        raise BadInput(f"{where}: a mapping is expected, this is {type(written).__name__}")
    for name in written:
        if name not in expected:
            raise unknown(f"entry of {where}", str(name), expected)
    missing = [name for name in (needed or expected) if name not in written]
    if missing:
        raise BadInput(f"{where}: {', '.join(missing)} missing; written by another version?")


def _text(where: str, written: object) -> str:
    if not isinstance(written, str):
        raise BadInput(f"{where} cannot be {shown(written)}; allowed: text")
    return written


def _read_first_epochs(written: object) -> int:
    if type(written) is not int or written < 0:
        raise BadInput(f"first_epochs cannot be {shown(written)}; allowed: an integer from 0")
    return written


def _read_packages(written: object) -> dict[str, str]:
    if not isinstance(written, Mapping):
        raise BadInput(f"packages: a mapping is expected, this is {type(written).__name__}")
    return {_text("packages", name): _text("packages", value) for name, value in written.items()}


def _read(owner: type[Any], where: str, written: Any, without: Sequence[str] = ()) -> Any:
    """An instance of a section's dataclass. without: the parameters that are never written."""
    own = declared(owner)
    _same_keys(where, written, [name for name in own if name not in without])
    return owner(**{name: own[name].parse(value) for name, value in written.items()})


def _read_game(written: Any) -> Game:
    _same_keys("game", written, [field.name for field in dataclasses.fields(Game)])
    game = Game(**written)
    if not is_well_formed(game):
        raise BadInput(f"game: {shown(dict(written))} was not written by this program")
    return game
