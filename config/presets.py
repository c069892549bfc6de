"""Presets: the values that an algorithm's parameters have for a game, unless the user gives others."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from config import games
from config.algorithms import ALGORITHMS, FOLDER, find_algorithm
from config.algorithms.descriptor import Algorithm
from config.errors import BadInput, unknown
from config.experiment import LONGEST_TRAINING
from config.games import Game
from config.other_names import of_others
from config.parameters import Parameter, declared
from config.strict_yaml import load_mapping
from config.suites import suite_of

DEFAULT_STEPS = 1_000_000
"""The length of a training, in environment steps, if neither game nor algorithm names one."""
GOAL = Parameter(
    "steps", int, None, "goal of a training", low=1, high=LONGEST_TRAINING, exponents=True
)


def preset_values(algorithm: str, game: Game) -> dict[str, Any]:
    """The preset values of hyperparameters and environment settings by name, and `steps`, the
    length of a training.

    A later section overrides an earlier one: the algorithm's for any game, then that for its suite
    (Atari, MuJoCo, …), then the game's own. Raises `BadInput`.
    """
    descriptor = find_algorithm(algorithm)
    known = preset_parameters(descriptor)
    values: dict[str, Any] = {"steps": DEFAULT_STEPS}
    for section in _sections(algorithm, descriptor, game):
        if not isinstance(section, Mapping):
            raise BadInput(f"a preset of {algorithm!r} is no mapping of names and values")
        for name, value in section.items():
            if name not in known:
                raise unknown_parameter(str(name), known, "parameter in a preset")
            values[name] = known[name].parse(value)
    return values


def presets_of_file(path: Path, algorithm: str) -> dict[str, Any]:
    """The values in a user's presets file for this algorithm, by name. Raises `BadInput`, which
    names the file.

    The file has the form of `config/games/<game>.yaml`: a section for each algorithm.
    """
    descriptor = find_algorithm(algorithm)
    sections = load_mapping(path)
    if "game" in sections:
        raise BadInput(f"{path}: a section 'game' is not allowed; the game is given by -p game=…")
    section = sections.get(algorithm, sections.get(descriptor.name))
    if not isinstance(section, Mapping):
        found = ", ".join(str(name)[:64] for name in sections) or "none"
        raise BadInput(
            f"{path}: no section {descriptor.name!r} of names and values; sections: {found}"
        )
    known = preset_parameters(descriptor)
    try:
        for name in section:
            if name not in known:
                raise unknown_parameter(str(name), known, "parameter in a preset")
        return {name: known[name].parse(value) for name, value in section.items()}
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def preset_parameters(algorithm: Algorithm) -> dict[str, Parameter]:
    """The parameters that a preset may set, by name."""
    environment = declared(algorithm.environment)
    return {"steps": GOAL, **environment, **declared(algorithm.hyperparameters)}


def unknown_parameter(name: str, known: Collection[str], kind: str = "parameter") -> BadInput:
    """The error for a parameter that an algorithm does not have. If it has another name in another
    library, or with another topology, this algorithm's name for it is suggested.
    """
    return unknown(kind, name, known, *of_others(name, known))


def _sections(algorithm: str, descriptor: Algorithm, game: Game) -> Iterator[Mapping[str, Any]]:
    if algorithm in ALGORITHMS:
        yield _file(algorithm)
        yield games.preset(game).get(algorithm, {})
        return
    suite = suite_of(game.id)
    for name in ("any", suite.name if suite else "", game.name):
        yield descriptor.presets.get(name, {})


@functools.cache
def _file(algorithm: str) -> Mapping[str, Any]:
    return load_mapping(FOLDER / f"{algorithm}.yaml")
