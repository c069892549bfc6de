"""Describes every parameter of an algorithm's experiments for manifests, `--help`, `--list`, the
documentation and the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from config.algorithms import find_algorithm
from config.algorithms.descriptor import MEMBERS, Algorithm
from config.experiment import Experiment
from config.games import default_game
from config.memory import larger
from config.outdir import default_outdir
from config.parameters import Parameter, declared, to_text

OF_MEMBERS = tuple(section for section, _ in MEMBERS.values())
SECTIONS = ("experiment", *OF_MEMBERS, "environment", "hyperparameters")
"""The attributes of a resolved experiment that hold parameters. The one of members is None for a
training in one process.
"""
WITHOUT_PRESETS = ("experiment", *OF_MEMBERS)
"""Those whose defaults hold for every game, because Argo itself reads some of them."""


@dataclass(frozen=True)
class ParameterInfo:
    """One parameter as manifests, `--help`, `--list` and the documentation show it.

    default: as text; empty if a preset or another parameter decides. fallback: the value, as text,
    when no preset sets one. texts: every allowed value, if they can be listed. section: one of
    SECTIONS.
    """

    name: str
    default: str
    fallback: str
    help: str
    unit: str
    allowed: str
    texts: tuple[str, ...]
    identity: bool
    section: str


def parameters(algorithm: str) -> list[ParameterInfo]:
    """Every parameter of an algorithm's experiments: first those that all experiments share and
    those of actors or workers, then the environment's settings and the hyperparameters, whose
    defaults come from presets.
    """
    descriptor = find_algorithm(algorithm)
    infos = _infos("experiment", Experiment)
    if descriptor.topology in MEMBERS:
        infos += _infos(*MEMBERS[descriptor.topology])
    infos += _infos("environment", descriptor.environment)
    infos += _infos("hyperparameters", descriptor.hyperparameters)
    own = own_defaults(descriptor)
    return [
        replace(info, default=own[info.name], fallback=own[info.name]) if info.name in own else info
        for info in infos
    ]


def offered(algorithm: str) -> list[ParameterInfo]:
    """The parameters from which a person can choose: without those that can have only one value."""
    never_set = find_algorithm(algorithm).never_set
    return [info for info in parameters(algorithm) if info.name not in never_set]


def shared_parameters(algorithms: Sequence[str]) -> list[ParameterInfo]:
    """The parameters, besides hyperparameters, that all these algorithms have. Where a default
    depends on the algorithm, it is that of one of them.
    """
    return _by_owners(algorithms)[tuple(algorithms)]


def further_parameters(algorithms: Sequence[str]) -> dict[tuple[str, ...], list[ParameterInfo]]:
    """The parameters, besides hyperparameters, that only some of these algorithms have. The keys
    are the names of those algorithms.
    """
    found = _by_owners(algorithms)
    return {names: infos for names, infos in found.items() if names != tuple(algorithms)}


def _by_owners(algorithms: Sequence[str]) -> dict[tuple[str, ...], list[ParameterInfo]]:
    """Group the parameters, without hyperparameters, by the set of algorithms that have them."""
    same: dict[tuple[str, str], dict[str, ParameterInfo]] = {}
    for algorithm in algorithms:
        for info in parameters(algorithm):
            if info.section != "hyperparameters":
                same.setdefault((info.name, info.help), {})[algorithm] = info
    found: dict[tuple[str, ...], list[ParameterInfo]] = {}
    for owners in same.values():
        first, *others = owners.values()
        merged = replace(
            first,
            default=_either([first, *others], "default"),
            fallback=_either([first, *others], "fallback"),
        )
        found.setdefault(tuple(owners), []).append(merged)
    return found


def own_parameters(algorithm: str) -> list[ParameterInfo]:
    """The algorithm's hyperparameters."""
    return [info for info in parameters(algorithm) if info.section == "hyperparameters"]


def _either(infos: Sequence[ParameterInfo], field: str) -> str:
    return " or ".join(dict.fromkeys(getattr(info, field) for info in infos))


def own_defaults(algorithm: Algorithm) -> dict[str, str]:
    """The defaults of shared parameters that depend on the algorithm."""
    return {
        "game": default_game(algorithm.families),
        "outdir": default_outdir(algorithm),
        "training_memory": larger(Experiment.training_memory, algorithm.training_memory),
    }


def section_title(algorithm: str, section: str) -> str:
    """The heading of a section on a page or in a list: Experiment, Actors, Environment, PPO."""
    if section in OF_MEMBERS:
        return f"{section.removesuffix('_settings')}s".capitalize()
    if section != "hyperparameters":
        return section.capitalize()
    return find_algorithm(algorithm).name.upper()


def _infos(section: str, owner: type) -> list[ParameterInfo]:
    return [_info(parameter, section) for parameter in declared(owner).values()]


def _info(parameter: Parameter, section: str) -> ParameterInfo:
    fallback = to_text(parameter.default)
    default = fallback if section in WITHOUT_PRESETS else ""
    texts = ("", *parameter.texts) if parameter.texts and default == "" else parameter.texts
    return ParameterInfo(
        name=parameter.name, default=default, fallback=fallback, help=parameter.help,
        unit=parameter.unit, allowed=parameter.allowed, texts=texts, identity=parameter.identity,
        section=section,
    )  # fmt: skip
