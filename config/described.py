"""Every parameter of an algorithm's experiments, as manifests, `--help`, `--list`, the README and the
report show it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from config.algorithms import find_algorithm
from config.environment import EnvironmentSettings
from config.experiment import Experiment
from config.outdir import default_outdir
from config.parameters import Parameter, declared, to_text

SECTIONS = ("experiment", "environment", "hyperparameters")
"""The attributes of a resolved experiment that hold parameters."""


@dataclass(frozen=True)
class ParameterInfo:
    """One parameter as manifests, `--help`, `--list` and the README show it.

    default: as text; empty where the preset or the rest decides; otherwise: as text, what holds
    where no preset says anything; texts: all that may be given, if they can be listed; section: one
    of SECTIONS.
    """

    name: str
    default: str
    otherwise: str
    help: str
    unit: str
    allowed: str
    texts: tuple[str, ...]
    identity: bool
    section: str


def parameters(algorithm: str) -> list[ParameterInfo]:
    """Every parameter of an algorithm's experiments: first those of every experiment, then the
    environment's settings and the hyperparameters, whose default is the preset's.
    """
    own = find_algorithm(algorithm).hyperparameters
    owners: tuple[type, ...] = (Experiment, EnvironmentSettings, own)
    infos = [
        _info(parameter, section)
        for section, owner in zip(SECTIONS, owners, strict=True)
        for parameter in declared(owner).values()
    ]
    outdir = default_outdir(find_algorithm(algorithm))
    return [replace(info, default=outdir) if info.name == "outdir" else info for info in infos]


def section_title(algorithm: str, section: str) -> str:
    """How a page or a list heads a section: Experiment, Environment, PPO."""
    if section != "hyperparameters":
        return section.capitalize()
    return find_algorithm(algorithm).name.upper()


def _info(parameter: Parameter, section: str) -> ParameterInfo:
    otherwise = to_text(parameter.default)
    default = otherwise if section == "experiment" else ""
    texts = ("", *parameter.texts) if parameter.texts and default == "" else parameter.texts
    return ParameterInfo(
        name=parameter.name, default=default, otherwise=otherwise, help=parameter.help,
        unit=parameter.unit, allowed=parameter.allowed, texts=texts, identity=parameter.identity,
        section=section,
    )  # fmt: skip
