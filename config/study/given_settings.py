"""Parameters as a study's file gives them: typed, checked by their declaration, and with the line."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.algorithms import find_algorithm
from config.algorithms.descriptor import MEMBERS
from config.errors import BadInput
from config.experiment import Experiment
from config.located import Located
from config.parameters import Parameter, declared, to_text
from config.presets import preset_parameters, unknown_parameter
from config.webhook import NOTIFY

OF_THE_STUDY = {
    "game": "the study's games are listed under 'games'",
    "outdir": "every experiment has a directory of its own below the study's 'outdir'",
    "runs": "all experiments have the number of runs that the study's key 'runs' says",
    "claim": "a workflow has one storage for all experiments, which -p claim=… names",
    NOTIFY: "a workflow tells once how it ended, to the address that -p notify=… names",
}
"""Parameters of an experiment that the study itself decides, and how."""
SEED = "seed"
EITHER = ("epochs", "steps")
"""Two ways to say the length of a training."""


@dataclass(frozen=True, eq=False)
class Setting:
    """The value of one parameter, as YAML can write it. place: None if it was given by `-p`."""

    value: Any
    place: Located | None = None

    @property
    def text(self) -> str:
        """The value in the form of `-p name=value`. Empty: the preset's value."""
        return to_text(self.value)

    def refused(self, reason: object) -> BadInput:
        """The error for this value, with its line if it has one."""
        return BadInput(str(reason)) if self.place is None else self.place.refused(reason)


Settings = Mapping[str, Setting]


@functools.cache
def parameters_of(algorithm: str) -> Mapping[str, Parameter]:
    """Every parameter of an algorithm's experiments, by name."""
    descriptor = find_algorithm(algorithm)
    members = dict([MEMBERS[descriptor.topology]]) if descriptor.topology in MEMBERS else {}
    owners = (
        Experiment,
        *members.values(),
        descriptor.environment,
        descriptor.hyperparameters,
    )
    return {name: one for owner in owners for name, one in declared(owner).items()}


def read_settings(node: Located, what: str, algorithms: Sequence[str]) -> dict[str, Setting]:
    """Read a mapping of parameters that at least one of the algorithms has. what: the mapping's name
    in messages. Raises `BadInput`.
    """
    entries = node.entries(what)
    if all(name in entries for name in EITHER):
        raise node.refused(f"{what}: 'epochs' and 'steps' stand together; allowed: one of them")
    return {name: read_setting(name, entry, algorithms) for name, entry in entries.items()}


def read_setting(name: str, node: Located, algorithms: Sequence[str]) -> Setting:
    """Read the value of one parameter. Raises `BadInput`."""
    with node.named():
        refuse_of_the_study(name)
        return Setting(typed(name, node.value, algorithms), node)


def read_given(given: Mapping[str, str], algorithms: Sequence[str]) -> dict[str, Setting]:
    """Read the parameters that `-p` gives to all experiments. An empty value means the file's.
    Raises `BadInput`.
    """
    for name in given:
        refuse_of_the_study(name)
        owner_of(name, algorithms)
    return {name: Setting(typed(name, text, algorithms)) for name, text in given.items() if text}


def refuse_of_the_study(name: str) -> None:
    """Raise `BadInput` for a parameter that the study itself decides."""
    if name in OF_THE_STUDY:
        raise BadInput(f"parameter {name!r} cannot be given to experiments: {OF_THE_STUDY[name]}")


def refuse_seed(settings: Iterable[tuple[str, Setting]]) -> None:
    """Raise `BadInput` for a seed that only some experiments would have."""
    for name, setting in settings:
        if name == SEED:
            raise setting.refused(
                "parameter 'seed' is the same for all experiments, whose runs have seeds derived "
                "from it; allowed: under 'parameters'"
            )


def typed(name: str, value: Any, algorithms: Sequence[str]) -> Any:
    """The value of a parameter as YAML can write it. None: the preset's, or none. Raises `BadInput`."""
    owner = owner_of(name, algorithms)
    if value in (None, "") and name in preset_parameters(find_algorithm(owner)):
        return None
    parsed = parameters_of(owner)[name].parse(value)
    return list(parsed) if isinstance(parsed, tuple) else parsed


def owner_of(name: str, algorithms: Sequence[str]) -> str:
    """The first algorithm that has a parameter. Raises `BadInput` if none has it."""
    for algorithm in algorithms:
        if name in parameters_of(algorithm):
            return algorithm
    known = {known for algorithm in algorithms for known in parameters_of(algorithm)}
    raise unknown_parameter(name, known)
