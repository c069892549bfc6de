"""What a study varies: algorithms, variants of them, games, and the grid's parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from config.algorithms import find_algorithm
from config.errors import BadInput, shown
from config.games import Game, find_game
from config.located import Located
from config.study.given_settings import (
    Setting,
    Settings,
    read_given,
    read_setting,
    read_settings,
    refuse_seed,
)
from config.study.labels import check_label

MOST_CELLS = 10_000


@dataclass(frozen=True, kw_only=True)
class Contender:
    """An algorithm with parameters of its own under one label. place: where the label stands."""

    label: str
    algorithm: str
    own: Settings
    place: Located

    def document(self) -> Any:
        """The entry of `algorithms`."""
        if self.label == find_algorithm(self.algorithm).name:
            return {self.algorithm: _values(self.own)} if self.own else self.algorithm
        return {self.algorithm: _values(self.own), "label": self.label}


@dataclass(frozen=True, kw_only=True)
class PlayedGame:
    """A game with the parameters of its experiments. place: where its name stands."""

    game: Game
    own: Settings
    place: Located

    def document(self) -> Any:
        """The entry of `games`."""
        return {self.game.name: _values(self.own)} if self.own else self.game.name


@dataclass(frozen=True, kw_only=True)
class Axes:
    """All that a study varies, and the parameters of all its experiments.

    variants: label -> parameters, empty without variants; grid: parameter -> values.
    """

    algorithms: tuple[Contender, ...]
    variants: Mapping[str, Settings]
    games: tuple[PlayedGame, ...]
    grid: Mapping[str, Sequence[Setting]]
    parameters: Settings

    @property
    def contenders(self) -> list[Contender]:
        """Each algorithm, or each variant of each algorithm. Raises `BadInput` for equal labels and
        for those that are too long with the variant's.
        """
        found: dict[str, Contender] = {}
        for one in self._combined():
            with one.place.named():
                check_label(one.label)
            if one.label in found:
                raise one.place.refused(
                    f"label {one.label!r} stands twice; allowed: a label of its own for each, "
                    f"as in {{{one.algorithm}: {{…}}, label: …}}"
                )
            found[one.label] = one
        return list(found.values())

    def _combined(self) -> list[Contender]:
        if not self.variants:
            return list(self.algorithms)
        return [
            replace(one, label=f"{one.label}, {label}", own={**one.own, **settings})
            for one in self.algorithms
            for label, settings in self.variants.items()
        ]

    def with_given(self, given: Mapping[str, str]) -> Axes:
        """The axes with parameters that hold for all experiments, whatever the file says. Raises
        `BadInput`.
        """
        over = read_given(given, [one.algorithm for one in self.algorithms])
        for name in over:
            if name in self.grid:
                raise BadInput(
                    f"parameter {name!r} is an axis of the study's grid, so -p cannot set it for all"
                )

        def rest(settings: Settings) -> Settings:
            return {name: one for name, one in settings.items() if name not in over}

        return Axes(
            algorithms=tuple(replace(one, own=rest(one.own)) for one in self.algorithms),
            variants={label: rest(settings) for label, settings in self.variants.items()},
            games=tuple(replace(one, own=rest(one.own)) for one in self.games),
            grid=self.grid,
            parameters={**self.parameters, **over},
        )

    def document(self) -> dict[str, Any]:
        """The keys of the study's file that describe these axes."""
        variants = {label: _values(settings) for label, settings in self.variants.items()}
        grid = {name: [one.value for one in axis] for name, axis in self.grid.items()}
        return {
            "algorithms": [one.document() for one in self.algorithms],
            "games": [one.document() for one in self.games],
            **({"parameters": _values(self.parameters)} if self.parameters else {}),
            **({"grid": grid} if grid else {}),
            **({"variants": variants} if variants else {}),
        }


def read_axes(entries: Mapping[str, Located]) -> Axes:
    """Read the axes from the entries of a study's file. Raises `BadInput`."""
    refuse_too_many(entries)
    algorithms = tuple(
        _read_algorithm(node) for node in entries["algorithms"].elements("algorithms")
    )
    names = list(dict.fromkeys(one.algorithm for one in algorithms))
    parameters = entries.get("parameters")
    return Axes(
        algorithms=algorithms,
        variants=_read_variants(entries, names),
        games=_read_games(entries["games"], names),
        grid={name: _read_axis(name, node, names) for name, node in _grid(entries).items()},
        parameters=read_settings(parameters, "parameters", names) if parameters else {},
    )


def refuse_too_many(entries: Mapping[str, Located]) -> None:
    """Raise `BadInput` for a study of too many cells, before any of them is made."""
    axes = {
        name: node.elements(name)
        for name, node in entries.items()
        if name in ("algorithms", "games")
    }
    axes |= {name: node.elements(f"grid {shown(name)}") for name, node in _grid(entries).items()}
    variants = _sections(entries, "variants")
    count = math.prod(len(axis) for axis in axes.values()) * max(1, len(variants))
    if count > MOST_CELLS:
        place = entries["grid" if "grid" in entries else "algorithms"]
        raise place.refused(
            f"the study has {count} cells (algorithms × variants × games × grid); "
            f"allowed: {MOST_CELLS}"
        )


def _read_algorithm(node: Located) -> Contender:
    name, own, labelled = _named(node, "an algorithm", "label")
    with node.named():
        algorithm = find_algorithm(name)
    place = labelled or node
    label = labelled.text("a label") if labelled else algorithm.name
    with place.named():
        check_label(label)
    settings = _read_own(own, f"parameters of {shown(name)}", [name]) if own else {}
    return Contender(label=label, algorithm=name, own=settings, place=place)


def _read_variants(
    entries: Mapping[str, Located], algorithms: Sequence[str]
) -> dict[str, Settings]:
    found: dict[str, Settings] = {}
    for label, node in _sections(entries, "variants").items():
        with node.named():
            check_label(label)
        found[label] = _read_own(node, f"variant {shown(label)}", algorithms)
    return found


def _read_games(node: Located, algorithms: Sequence[str]) -> tuple[PlayedGame, ...]:
    families = {family for one in algorithms for family in find_algorithm(one).families}
    found: dict[str, PlayedGame] = {}
    for element in node.elements("games"):
        name, own, _ = _named(element, "a game")
        with element.named():
            game = find_game(name, sorted(families))
        if game.id in found:
            raise element.refused(f"game {name!r} stands twice; allowed: once")
        settings = _read_own(own, f"parameters of {shown(name)}", algorithms) if own else {}
        found[game.id] = PlayedGame(game=game, own=settings, place=element)
    return tuple(found.values())


def _read_axis(name: str, node: Located, algorithms: Sequence[str]) -> tuple[Setting, ...]:
    axis: dict[str, Setting] = {}
    for element in node.elements(f"grid {shown(name)}"):
        setting = read_setting(name, element, algorithms)
        if setting.text in axis:
            raise element.refused(f"grid {name!r}: value {shown(setting.text)} stands twice")
        axis[setting.text] = setting
    refuse_seed((name, setting) for setting in axis.values())
    return tuple(axis.values())


def _read_own(node: Located, what: str, algorithms: Sequence[str]) -> dict[str, Setting]:
    """Read parameters that only some experiments have."""
    settings = read_settings(node, what, algorithms)
    refuse_seed(settings.items())
    return settings


def _named(node: Located, what: str, *further: str) -> tuple[str, Located | None, Located | None]:
    """Read `name`, or `{name: {parameter: value}}` beside which a further key may stand: the name,
    the parameters, and the value of that key.
    """
    if not isinstance(node.value, dict):
        return node.text(what), None, None
    entries = node.entries(what)
    names = [name for name in entries if name not in further]
    if len(names) != 1:
        beside = "".join(f", {key}: …" for key in further)
        raise node.refused(
            f"{what} has {len(names)} names; allowed: one, as in {{name: {{parameter: value}}{beside}}}"
        )
    own = entries[names[0]]
    label = next((entries[key] for key in further if key in entries), None)
    return names[0], None if own.value is None else own, label


def _grid(entries: Mapping[str, Located]) -> dict[str, Located]:
    return _sections(entries, "grid")


def _sections(entries: Mapping[str, Located], key: str) -> dict[str, Located]:
    """The entries of an optional mapping of the file that cannot be empty."""
    if key not in entries:
        return {}
    found = entries[key].entries(key)
    if not found:
        raise entries[key].refused(f"{key}: an empty mapping; allowed: at least one entry")
    return found


def _values(settings: Settings) -> dict[str, Any]:
    return {name: setting.value for name, setting in settings.items()}
