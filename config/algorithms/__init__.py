"""The registry of algorithms: the project's by name, those of installed packages by entry point,
and anybody's by import path.

To add one to the project: its module in `agents/algorithms/`, its dataclass and descriptor in
`config/algorithms/<name>.py`, its preset in `config/algorithms/<name>.yaml`, and one entry here.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path

from config.algorithms import alphazero, async_sac, dqn, impala, ppo, ppo_lstm, r2d2, sac, td3
from config.algorithms.descriptor import BOARD, FAMILIES, MEMBERS, TOPOLOGIES, Algorithm
from config.environment import EachActor, EachWorker, OneProcess
from config.errors import BadInput, shown, unknown
from config.experiment import Experiment
from config.imports import imported, is_import_path, reason
from config.measures import wrong_words
from config.memory import MEMORY
from config.parameters import declared

ALGORITHMS: Mapping[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        ppo.ALGORITHM,
        ppo.A2C,
        ppo_lstm.ALGORITHM,
        dqn.ALGORITHM,
        sac.ALGORITHM,
        td3.ALGORITHM,
        async_sac.ALGORITHM,
        impala.ALGORITHM,
        r2d2.ALGORITHM,
        alphazero.ALGORITHM,
    )
}
FOLDER = Path(__file__).parent
ENTRY_POINTS = "rl_training_dag.algorithms"
"""The group in which an installed package names its algorithms."""
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""Also the beginning of a workflow's name."""
METHODS = ("steps_per_epoch", "warm_up_steps", "check")


@functools.cache
def find_algorithm(text: str) -> Algorithm:
    """The algorithm of a name or an import path. Raises `BadInput`; for an unknown name with the
    nearest known one.
    """
    if text in ALGORITHMS:
        return ALGORITHMS[text]
    path = algorithm_path(text)
    if path is None:
        raise unknown("algorithm", text[:64], algorithm_names())
    return checked(imported(path, "algorithm"), text)


def algorithm_path(text: str) -> str | None:
    """The import path of an algorithm that is not the project's own; None if the text names no
    other.
    """
    if text in ALGORITHMS:
        # Without a look at every installed package, which takes milliseconds.
        return None
    return text if is_import_path(text) else _entry_points().get(text)


def algorithm_names() -> list[str]:
    """The project's algorithms, then those of installed packages."""
    return [*ALGORITHMS, *sorted(set(_entry_points()) - set(ALGORITHMS))]


def _entry_points() -> dict[str, str]:
    """Name -> import path, of the algorithms in installed packages."""
    found = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return {entry.name: entry.value for entry in found}


def checked(algorithm: object, text: str) -> Algorithm:
    """Check a user's descriptor. Raises `BadInput` with the first rule that it breaks."""
    if not isinstance(algorithm, Algorithm):
        found = type(algorithm).__name__
        raise BadInput(
            f"algorithm {text!r} is a {found}; allowed: config.algorithms.descriptor.Algorithm"
        )
    for broken in (_wrong_name, _wrong_words, _wrong_paths, _wrong_hyperparameters):
        complaint = broken(algorithm)
        if complaint:
            raise BadInput(f"algorithm {text!r}: {complaint}")
    return algorithm


def _wrong_name(algorithm: Algorithm) -> str:
    if isinstance(algorithm.name, str) and NAME.fullmatch(algorithm.name):
        return ""
    return f"name cannot be {shown(algorithm.name)}; allowed: 1 to 40 of a-z, 0-9 and -"


def _wrong_words(algorithm: Algorithm) -> str:
    if algorithm.topology not in TOPOLOGIES:
        allowed = " or ".join(TOPOLOGIES)
        return f"topology cannot be {shown(algorithm.topology)}; allowed: {allowed}"
    families = algorithm.families
    if not isinstance(families, tuple) or not families:
        return f"families cannot be {shown(families)}; allowed: some of {', '.join(FAMILIES)}"
    if algorithm.has_workers and families != (BOARD,):
        return f"families cannot be {shown(families)} with workers; allowed: ({BOARD!r},)"
    for family in () if algorithm.has_workers else families:
        if family not in FAMILIES:
            return str(unknown("family", str(family), FAMILIES))
    memory = algorithm.training_memory
    if not isinstance(memory, str) or (memory and not re.fullmatch(MEMORY["pattern"], memory)):
        return f"training_memory cannot be {shown(memory)}; allowed: {MEMORY['form']}, or empty"
    return wrong_words(algorithm.measure)


def _wrong_paths(algorithm: Algorithm) -> str:
    never_needed = ["precision_probe", "replay_bytes", "rollout_bytes"]
    optional = [*never_needed]
    optional += [] if algorithm.has_actors else ["actor"]
    optional += [] if algorithm.has_workers else ["worker"]
    for name in ("trainer", "policy", "actor", "worker", *never_needed):
        path = getattr(algorithm, name)
        if path == "" and name in optional:
            continue
        if not isinstance(path, str) or not is_import_path(path):
            return f"{name} cannot be {shown(path)}; allowed: an import path, package.module:Name"
    return ""


def _wrong_hyperparameters(algorithm: Algorithm) -> str:
    owner = algorithm.hyperparameters
    if not isinstance(owner, type) or not dataclasses.is_dataclass(owner):
        return f"hyperparameters cannot be {shown(owner)}; allowed: a dataclass"
    try:
        names = set(declared(owner))
    except Exception as error:
        # `declared` runs over a class of the person's own: fields that `parameter` did not make, or
        # of a type that does not exist, raise whatever Python raises for them.
        return f"hyperparameters are not made by config.parameters.parameter: {reason(error)}"
    missing = [name for name in METHODS if not callable(getattr(owner, name, None))]
    if missing:
        return f"its hyperparameters have no method {', '.join(missing)}"
    of_members = [settings for _, settings in MEMBERS.values()]
    sections = (Experiment, OneProcess, EachActor, EachWorker, *of_members)
    taken = names & {"steps", *(name for section in sections for name in declared(section))}
    if taken:
        return f"hyperparameter {sorted(taken)[0]!r} is a parameter of every experiment"
    return ""
