"""Find the game that a name means.

A game has a short name with a preset, or is any Atari game of ale-py, any gymnasium id, or
`package.module:Name` or `package.module:Id-v0`: an environment of the user's own, or one that this
module registers. For self-play `package.module:Name` is a board game of the user's own, and
`openspiel:NAME` is one of OpenSpiel's.

Names are looked up or matched against a pattern; nothing here imports gymnasium or a user's module.
`agents.environments.game_check` asks whether an id exists and can be made.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.algorithms.descriptor import BOARD, FAMILIES
from config.environment import ATARI_ONLY
from config.errors import BadInput, shown
from config.experiment import Experiment
from config.imports import IMPORT_PATH, MODULE, is_import_path
from config.strict_yaml import load_mapping
from config.suites import ATARI, ENVPOOL, SUITES, Suite, suite_of

FOLDER = Path(__file__).parent / "games"
FALLBACK = "fallback"
SHARED = (*(suite.name for suite in SUITES), FALLBACK)
"""Presets of many games; no game has these names."""
LARGEST_RETURN = 1e100
"""What goes beyond is a fault of the game: its square, of which standard deviations are made, would
soon be infinite."""
KINDS = ("atari", "native", "sync", "envpool", BOARD)
USUAL = {"discrete": Experiment.game, "continuous": "pendulum", BOARD: "connect-four"}
"""The game of an experiment that names none, by a family that its algorithm plays."""

GYMNASIUM_ID = re.compile(
    rf"(?:{MODULE}:)?(?!ALE/)(?:[A-Za-z0-9_-]{{1,64}}/)?[A-Za-z0-9_.-]{{1,64}}-v[0-9]{{1,4}}"
)
"""With a module before it, gymnasium imports that first, which registers the id. Atari's ids are
those that we know."""
OPENSPIEL_ID = re.compile(r"openspiel:[a-z0-9_]{1,64}(?:\([A-Za-z0-9_=,.-]{1,128}\))?")
BOARD_ID = re.compile(r"[a-z0-9-]{1,64}")
"""Of our own board games."""
OLD_ATARI_ID = re.compile(r"([A-Za-z0-9]+?)(?:-ram)?(?:NoFrameskip|Deterministic)?-v[04]")


@dataclass(frozen=True, kw_only=True)
class Game:
    """One game and how its environments are made.

    id: a gymnasium id, possibly after a module, or `package.module:Name`. kind: "atari" (ale-py's native
    vector environment), "native" (gymnasium's `vector_entry_point`), "sync" (Python environments that are
    stepped one after the other), "envpool" (that package's vector environment) or "board"
    (`agents.games.named` knows the id). family: one of FAMILIES or BOARD; empty if only the environment
    itself can tell. options: further keyword arguments of the environment. frames_per_step: emulator
    frames in one environment step. solved: the return from which the game counts as solved.
    """

    name: str
    id: str
    kind: str = "sync"
    family: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    frames_per_step: int = 1
    solved: float | None = None

    @property
    def title(self) -> str:
        """The game's name in headings: its id, or its short name if the id is an import path."""
        return self.name if ":" in self.id else self.id

    @property
    def is_atari(self) -> bool:
        """Whether ale-py's emulator plays this game."""
        return self.kind == "atari"

    @property
    def is_pooled(self) -> bool:
        """Whether the package envpool makes this game's environments, many at a time."""
        return self.kind == "envpool"

    @property
    def is_board(self) -> bool:
        """Whether this is a board game for two players."""
        return self.kind == BOARD

    def identity(self) -> dict[str, Any]:
        """The fields that can change a result."""
        return {
            "id": self.id,
            "kind": self.kind,
            "options": dict(self.options),
            "frames_per_step": self.frames_per_step,
        }


def find_game(text: str, families: Iterable[str] = ()) -> Game:
    """The game that a name means, for an algorithm that plays these families. Raises `BadInput`
    with the nearest known name.
    """
    by_name = games()
    if text in by_name:
        return by_name[text]
    for game in by_name.values():
        if game.id == text:
            return game
    old = OLD_ATARI_ID.fullmatch(text)
    if old and f"ALE/{old[1]}-v5" in {game.id for game in by_name.values()}:
        raise _unknown(text, f"did you mean game={_atari_name(old[1])} sticky_actions=0? ")
    if OPENSPIEL_ID.fullmatch(text) or (BOARD in families and is_import_path(text)):
        return Game(name=text, id=text, kind=BOARD, family=BOARD)
    if ENVPOOL.ids.fullmatch(text):
        return Game(name=text, id=text, kind="envpool")
    if is_import_path(text) or GYMNASIUM_ID.fullmatch(text):
        return Game(name=text, id=text)
    raise _unknown(text, families=families)


def default_game(families: Iterable[str]) -> str:
    """The game of an experiment that names none, for an algorithm that plays these families."""
    return next((USUAL[family] for family in families if family in USUAL), Experiment.game)


def playable(families: Iterable[str], names: Iterable[str]) -> list[str]:
    """The games with a short name that an algorithm of these families can play."""
    return [name for name in names if games()[name].family in families]


def is_well_formed(game: Game) -> bool:
    """Whether every field has a type and a form that this module produces. For games that were read
    back from a file.
    """
    texts = all(isinstance(text, str) for text in (game.name, game.id, game.kind))
    return (
        texts
        and any(form.fullmatch(game.id) for form in _forms(game.kind))
        and game.kind in KINDS
        and game.family in ("", *FAMILIES, BOARD)
        and isinstance(game.options, Mapping)
        and type(game.frames_per_step) is int
        and game.frames_per_step >= 1
        and (game.solved is None or type(game.solved) in (int, float))
    )


def twin(game: Game) -> Game:
    """The game of ale-py or gymnasium that has the id of one of envpool's."""
    id_ = game.id.partition(":")[2]
    of_ale = {game.id: game for game in games().values() if game.is_atari}
    return of_ale.get(f"ALE/{id_}") or find_game(id_)


def _without_atari_settings(sections: Mapping[str, Any]) -> dict[str, Any]:
    """A preset without the settings that only ale-py's games have."""
    return {
        name: {key: value for key, value in section.items() if key not in ATARI_ONLY}
        for name, section in sections.items()
        if name not in ("game", "games")
    }


def _forms(kind: str) -> tuple[re.Pattern[str], ...]:
    """The forms that ids of this kind of game may have."""
    if kind == BOARD:
        return BOARD_ID, OPENSPIEL_ID, IMPORT_PATH
    return GYMNASIUM_ID, IMPORT_PATH, ATARI.ids


def preset(game: Game) -> Mapping[str, Any]:
    """The sections of the game's preset, one for each algorithm that has one: the game's own, else
    its suite's, else the fallback's. A game of envpool's has that of the same game elsewhere.
    """
    if game.is_pooled:
        return _without_atari_settings(preset(twin(game)))
    suite = suite_of(game.id)
    of_suite = _file(suite.name) if suite else {}
    own = _file(game.name) if game.name in own_presets() else {}
    return {**_file(FALLBACK), **of_suite, **own}


@functools.cache
def games() -> Mapping[str, Game]:
    """Every game with a short name: first those with a preset of their own, then those of the
    suites.
    """
    of_suites = {name: game for suite in SUITES for name, game in games_of(suite).items()}
    named = {}
    for name in own_presets():
        described = _file(name).get("game")
        named[name] = Game(name=name, **described) if described else of_suites[name]
    return named | {name: game for name, game in of_suites.items() if name not in named}


@functools.cache
def games_of(suite: Suite) -> Mapping[str, Game]:
    """The games of a suite that have short names."""
    listed = _file(suite.name)["games"]
    if suite is ATARI:
        return {name: _atari(name) for name in listed}
    return {name: Game(name=name, **described) for name, described in listed.items()}


@functools.cache
def own_presets() -> tuple[str, ...]:
    """The names of the games that have a preset file of their own."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in SHARED))


def _atari(name: str) -> Game:
    return Game(
        name=name, id=f"ALE/{_camel(name)}-v5", kind="atari", family="discrete", frames_per_step=4
    )


def _camel(name: str) -> str:
    """`space_invaders` -> `SpaceInvaders`, `tic_tac_toe_3d` -> `TicTacToe3D`."""
    return name.title().replace("_", "")


def _atari_name(camel: str) -> str:
    return next(game.name for game in games().values() if game.id == f"ALE/{camel}-v5")


@functools.cache
def _file(name: str) -> Mapping[str, Any]:
    return load_mapping(FOLDER / f"{name}.yaml")


def _unknown(text: str, hint: str = "", families: Iterable[str] = ()) -> BadInput:
    boards = BOARD in families
    known_names = [name for name in own_presets() if games()[name].is_board == boards]
    nearest = difflib.get_close_matches(text[:64].lower(), known_names if boards else games(), n=1)
    question = f"did you mean {nearest[0]!r}? " if nearest else ""
    if boards:
        known = f"known: {', '.join(known_names)}, openspiel:NAME, package.module:Name of your own"
        return BadInput(f"unknown game {shown(text)}; {question}{known}")
    suites = ", ".join(suite.title for suite in SUITES)
    known = f"known: {', '.join(known_names)}, those of {suites} (--list), any gymnasium id, module:Name"
    return BadInput(f"unknown game {shown(text)}; {hint or question}{known}")
