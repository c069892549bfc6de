"""Suites: games of one package that share the settings in `config/games/<suite>.yaml`.

A game of a suite has a short name if that file lists it; every other id of the suite, an older
version for instance, has the same settings.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass

from config.errors import BadInput
from config.imports import MODULE

OLDEST_WITHOUT_BOX2D = "3.14"
IN_MODULE = rf"(?:{MODULE}:)?"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One suite.

    name: of its file in `config/games`; title: its name for people; ids: matches the gymnasium ids
    of its games; modules: what must be importable, and install: what to give pip for it;
    registered_by: the module that registers the ids, empty if gymnasium does.
    """

    name: str
    title: str
    ids: re.Pattern[str]
    modules: tuple[str, ...]
    install: str
    registered_by: str = ""

    def missing(self) -> str | None:
        """The first of its modules that is not installed; None if all are. Imports nothing."""
        return next((name for name in self.modules if not is_installed(name)), None)

    def versions(self) -> str:
        """Its packages with their versions: `dm_control 1.0.50, mujoco 4.0.0`."""
        return ", ".join(f"{name} {_version(name)}" for name in self.modules)


ATARI = Suite(
    name="atari",
    title="Atari",
    ids=re.compile(r"ALE/[A-Za-z0-9]{1,64}-v5"),
    modules=("ale_py",),
    install="ale-py",
)
SUITES = (
    ATARI,
    Suite(
        name="mujoco",
        title="MuJoCo",
        ids=re.compile(
            r"(?:Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|"
            r"InvertedPendulum|Pusher|Reacher|Swimmer|Walker2d)-v[0-9]{1,4}"
        ),
        modules=("mujoco",),
        install="mujoco",
    ),
    Suite(
        name="minatar",
        title="MinAtar",
        ids=re.compile(rf"{IN_MODULE}MinAtar/[A-Za-z]{{1,64}}-v[0-9]{{1,4}}"),
        modules=("minatar",),
        install="minatar",
        registered_by="minatar.gym",
    ),
    Suite(
        name="minigrid",
        title="MiniGrid",
        ids=re.compile(rf"{IN_MODULE}(?:MiniGrid|BabyAI)-[A-Za-z0-9_.-]{{1,64}}-v[0-9]{{1,4}}"),
        modules=("minigrid",),
        install="minigrid",
        registered_by="minigrid",
    ),
    Suite(
        name="dm_control",
        title="dm_control",
        ids=re.compile(rf"{IN_MODULE}dm_control/[A-Za-z0-9_.-]{{1,64}}-v[0-9]{{1,4}}"),
        modules=("shimmy", "dm_control", "mujoco"),
        install="'shimmy[dm-control]' 'mujoco<4'",
        registered_by="shimmy",
    ),
)
"""An id belongs to the first one that matches it."""
ENVPOOL = Suite(
    name="envpool",
    title="envpool",
    ids=re.compile(r"envpool:(?:[A-Za-z0-9_-]{1,64}/)?[A-Za-z0-9_.-]{1,64}-v[0-9]{1,4}"),
    modules=("envpool",),
    install="envpool",
)
"""Games of other suites and more, by the package envpool. It has no presets of its own: its HalfCheetah has
those of gymnasium's.
"""
BOX2D_ID = re.compile(r"(?:LunarLander|BipedalWalker|CarRacing)[A-Za-z]*-v[0-9]+")
"""gymnasium's games with physics by Box2D, a package that has no wheel for Python 3.14."""


def suite_of(game_id: str) -> Suite | None:
    """The suite that a gymnasium id belongs to."""
    return next((suite for suite in (*SUITES, ENVPOOL) if suite.ids.fullmatch(game_id)), None)


def check_installed(name: str, game_id: str) -> None:
    """Raise `BadInput` if a package that only this game needs is missing. name: the game's; game_id:
    its gymnasium id. Imports nothing.
    """
    if BOX2D_ID.fullmatch(game_id) and not is_installed("Box2D"):
        raise BadInput(
            f"game {name!r} cannot be made: it needs the package Box2D, which is not installed and has no "
            f"wheel for Python {OLDEST_WITHOUT_BOX2D}; allowed: any other game, or this one with Python 3.11 to 3.13"
        )
    suite = suite_of(game_id)
    missing = suite.missing() if suite else None
    if suite and missing:
        raise BadInput(
            f"game {name!r} cannot be made: it needs the package {missing}, which is not installed; "
            f"allowed: any other game, or this one after pip install {suite.install}"
        )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "of no version"


def is_installed(module: str) -> bool:
    """Whether a module of this name can be imported. Imports nothing."""
    return importlib.util.find_spec(module) is not None
