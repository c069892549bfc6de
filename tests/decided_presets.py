"""What presets decide, for the tests that hold them against the sources that they name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from config.algorithms import find_algorithm
from config.games import FOLDER, find_game
from config.parameters import declared
from config.presets import preset_values


def decided(algorithm: str, game: str) -> dict[str, Any]:
    """Every setting of the environment and every hyperparameter that a training of this game gets,
    and its steps."""
    values = preset_values(algorithm, find_game(game))
    steps, descriptor = values.pop("steps"), find_algorithm(algorithm)
    settings = set(declared(descriptor.environment)) & set(values)
    environment = descriptor.environment(**{one: values.pop(one) for one in settings})
    hyperparameters = descriptor.hyperparameters(**values)
    return asdict(environment) | asdict(hyperparameters) | {"steps": steps}


def comment_of(algorithm: str, name: str) -> str:
    """What stands above the algorithm's section in a game's file, on one line."""
    page = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    lines = page.partition(f"\n{algorithm}:")[0].splitlines()
    others = (place for place, line in enumerate(lines) if not line.startswith("#"))
    first = max(others, default=-1)
    return " ".join(line.removeprefix("# ") for line in lines[first + 1 :])
