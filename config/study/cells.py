"""The experiments of a study: the product of its axes without what is excluded, each with a name and
checked as an experiment is checked that is alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.errors import BadInput, shown, unknown
from config.located import Located
from config.resolve import resolve
from config.resolved import Resolved
from config.study.axes import Axes, Contender, PlayedGame
from config.study.given_settings import Setting, Settings, parameters_of, read_setting
from config.study.labels import slug, value_slug

LONGEST_NAME = 200
"""Characters of a directory's name; the most that file systems allow is 255."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One experiment of a study.

    name: its directory's name, of a-z, 0-9 and -; label: for figures, by default the algorithm's
    name; given: the parameters of the experiment as `-p` would give them, `game` and `runs` among
    them but not `outdir`; settings: the grid's values by parameter, empty without a grid.
    """

    name: str
    label: str
    algorithm: str
    game: str
    given: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def traits(self) -> dict[str, str]:
        """What an entry of `exclude` may name."""
        own = {"algorithm": self.algorithm, "label": self.label, "game": self.game}
        return own | dict(self.settings)


@dataclass(frozen=True, kw_only=True)
class PlannedCell:
    """A cell with what the file says about it, to name the line of what is wrong.

    given: every parameter that the file or `-p` gives this experiment, besides `game` and `runs`.
    """

    cell: Cell
    contender: Contender
    played: PlayedGame
    given: Settings


def plan(axes: Axes, runs: int) -> list[PlannedCell]:
    """The product of the axes: for each label each game, for each game each point of the grid. runs:
    of each experiment.
    """
    return [
        _planned(axes, contender, played, point, runs)
        for contender in axes.contenders
        for played in axes.games
        for point in _points(axes.grid)
    ]


def _points(grid: Mapping[str, Sequence[Setting]]) -> Iterator[dict[str, Setting]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _planned(
    axes: Axes, contender: Contender, played: PlayedGame, point: Settings, runs: int
) -> PlannedCell:
    given = {**axes.parameters, **played.own, **contender.own, **point}
    game = played.game.name
    parts = [slug(contender.label), slug(game), *(value_slug(one.text) for one in point.values())]
    cell = Cell(
        name="-".join(part for part in parts if part),
        label=contender.label,
        algorithm=contender.algorithm,
        game=game,
        given={"game": game, "runs": str(runs), **{name: one.text for name, one in given.items()}},
        settings={name: one.text for name, one in point.items()},
    )
    return PlannedCell(cell=cell, contender=contender, played=played, given=given)


@dataclass(frozen=True)
class Exclusion:
    """An entry of `exclude`: a cell that has all these values is left out.

    values: as YAML can write them; texts: as cells have them.
    """

    values: Mapping[str, Any]
    texts: Mapping[str, str]
    place: Located

    def matches(self, traits: Mapping[str, str]) -> bool:
        """Whether the cell with these traits is left out."""
        return traits.items() >= self.texts.items()


def read_exclusions(node: Located, axes: Axes) -> list[Exclusion]:
    """Read the list `exclude`. Raises `BadInput` for a value that no cell has."""
    contenders = axes.contenders
    names = {
        "algorithm": list(dict.fromkeys(one.algorithm for one in contenders)),
        "label": [one.label for one in contenders],
        "game": [one.game.name for one in axes.games],
    }
    return [_read_exclusion(element, names, axes) for element in node.elements("exclude")]


def _read_exclusion(node: Located, names: Mapping[str, list[str]], axes: Axes) -> Exclusion:
    entries = node.entries("exclude", [*names, *axes.grid])
    if not entries:
        raise node.refused("exclude: an empty mapping would leave out every cell")
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for key, entry in entries.items():
        if key in names:
            values[key] = texts[key] = _one_of(entry, key, names[key])
            continue
        setting = read_setting(key, entry, names["algorithm"])
        known = [one.text for one in axes.grid[key]]
        if setting.text not in known:
            raise entry.refused(
                f"exclude: {key} cannot be {shown(setting.text)}; allowed: {', '.join(known)}"
            )
        values[key] = setting.value
        texts[key] = setting.text
    return Exclusion(values, texts, node)


def _one_of(entry: Located, key: str, known: list[str]) -> str:
    text = entry.text(f"exclude: {key}")
    if text not in known:
        raise entry.refused(unknown(f"{key} in exclude", text, known))
    return text


def without_excluded(
    planned: Sequence[PlannedCell], exclusions: Sequence[Exclusion]
) -> list[PlannedCell]:
    """The cells that no exclusion matches. Raises `BadInput` for an exclusion that matches none, and
    if no cell is left.
    """
    traits = [one.cell.traits for one in planned]
    for exclusion in exclusions:
        if not any(map(exclusion.matches, traits)):
            raise exclusion.place.refused(f"exclude: no cell has {shown(dict(exclusion.values))}")
    left = [
        one
        for one, its in zip(planned, traits, strict=True)
        if not any(exclusion.matches(its) for exclusion in exclusions)
    ]
    if not left:
        raise exclusions[-1].place.refused("exclude: no cell is left")
    return left


def checked(planned: Sequence[PlannedCell]) -> list[Resolved]:
    """Check every cell and return them resolved. Raises `BadInput` for the first that is wrong, with
    the line of the value if it is known, else of the game.
    """
    _refuse_names(planned)
    for one in planned:
        _refuse_parameter_of_others(one, planned)
    return [_resolved(one) for one in planned]


def _refuse_names(planned: Sequence[PlannedCell]) -> None:
    """Raise `BadInput` for two cells with the same directory, and for names that are too long."""
    first: dict[str, PlannedCell] = {}
    for one in planned:
        name = one.cell.name
        if len(name) > LONGEST_NAME:
            raise one.contender.place.refused(
                f"the directory of {_described(one.cell)} would have a name of {len(name)} characters; "
                f"allowed: {LONGEST_NAME}"
            )
        other = first.setdefault(name, one)
        if other is not one:
            raise one.contender.place.refused(
                f"{_described(other.cell)} and {_described(one.cell)} would have the same directory, "
                f"{name}; allowed: labels that differ in a-z or 0-9"
            )


def _described(cell: Cell) -> str:
    values = "".join(f", {name}={text}" for name, text in cell.settings.items())
    return f"{cell.label!r} on {cell.game}{values}"


def _refuse_parameter_of_others(one: PlannedCell, planned: Sequence[PlannedCell]) -> None:
    """Raise `BadInput` if the cell's algorithm lacks a parameter that it is given along with other
    algorithms: to leave it out silently would mislead.
    """
    for name, setting in one.given.items():
        if name in parameters_of(one.cell.algorithm):
            continue
        given = dict.fromkeys(
            other.cell.algorithm for other in planned if other.given.get(name) is setting
        )
        lacking = [algorithm for algorithm in given if name not in parameters_of(algorithm)]
        raise setting.refused(
            f"parameter {name!r} is unknown to {', '.join(lacking)}; allowed here: parameters that all "
            f"have; give it to an algorithm alone under 'algorithms': {{name: {{{name}: …}}}}"
        )


def _resolved(one: PlannedCell) -> Resolved:
    try:
        return resolve(one.cell.algorithm, one.cell.given)
    except BadInput as error:
        reason = str(error)
    raise _refuser(reason, one)(f"cell {one.cell.name!r}: {reason}")


def _refuser(reason: str, one: PlannedCell) -> Callable[[object], BadInput]:
    """Where the first parameter that the reason names was given, or else the game."""
    found = {}
    for name, setting in one.given.items():
        match = re.search(rf"\b{re.escape(name)}\b", reason)
        if match:
            found[match.start()] = setting
    return found[min(found)].refused if found else one.played.place.refused
