"""Renders the declared parameters, presets and settings of a cluster as Markdown tables, for the documentation's
reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from config.algorithms import find_algorithm
from config.algorithms.descriptor import ACTOR_LEARNER, SELF_PLAY, SINGLE
from config.cluster import Cluster, Pool, load_cluster
from config.described import (
    WITHOUT_PRESETS,
    ParameterInfo,
    further_parameters,
    own_parameters,
    shared_parameters,
)
from config.games import Game, find_game, games_of, own_presets, playable
from config.parameters import to_text
from config.presets import preset_parameters, preset_values
from config.sections import Row, rows
from config.suites import SUITES, Suite

WHICH = {
    SINGLE: "Without actors",
    ACTOR_LEARNER: "With actors",
    SELF_PLAY: "With workers of self-play",
}
OF_NO_PRESET = Game(name="other", id="Other-v0")


def parameter_tables(algorithms: Sequence[str]) -> dict[str, str]:
    """Heading -> table: the parameters of all experiments, then those of each topology, then each
    algorithm's hyperparameters. Algorithms with the same hyperparameters share a table.
    """
    of_owner: dict[type, list[str]] = {}
    for algorithm in algorithms:
        of_owner.setdefault(find_algorithm(algorithm).hyperparameters, []).append(algorithm)
    own = {title(*names): parameter_table(own_parameters(names[0])) for names in of_owner.values()}
    tables = {"Every experiment:": parameter_table(shared_parameters(algorithms))}
    for names, infos in further_parameters(algorithms).items():
        tables[f"{_which(names)}: {title(*names)}"] = parameter_table(infos)
    return tables | own


def _which(algorithms: Sequence[str]) -> str:
    """What these algorithms have in common, in words."""
    topologies = {find_algorithm(name).topology for name in algorithms}
    if len(topologies) == 1:
        return WHICH[topologies.pop()]
    return "With environments of Gymnasium or Atari"


def title(*algorithms: str) -> str:
    """The heading of a table for these algorithms: names with commas, and "and" before the last."""
    *others, last = (f"`{name}`" for name in algorithms)
    return f"{', '.join(others)} and {last}:" if others else f"{last}:"


def parameter_table(infos: Iterable[ParameterInfo]) -> str:
    """One row for each parameter: name, default, allowed values, help. Ends with a newline."""
    rows = [(f"`{info.name}`", _default(info), _allowed(info), info.help) for info in infos]
    return _markdown(("parameter", "default", "allowed", "meaning"), rows)


def preset_table(algorithm: str) -> str:
    """One row for each hyperparameter that presets set, one column for each game and each suite that
    the algorithm plays. Ends with a newline.
    """
    families = find_algorithm(algorithm).families
    games = [find_game(name) for name in playable(families, own_presets())]
    shown = [game for game in games if not game.is_atari]
    shown += [one for suite in SUITES if (one := _like_most(suite)).family in families]
    shown += [OF_NO_PRESET]
    presets = [preset_values(algorithm, game) for game in shown]
    known = preset_parameters(find_algorithm(algorithm))
    defaults = {name: parameter.default for name, parameter in known.items()}
    decided = set().union(*presets)
    names = [name for name in known if name in decided]
    rows = [
        (f"`{name}`", *(to_text(values.get(name, defaults.get(name))) for values in presets))
        for name in names
    ]
    return _markdown(("", *(game.name for game in shown)), rows)


def cluster_tables() -> dict[str, str]:
    """Heading -> table: the settings of a cluster that hold for all pods, then those of each pool."""
    cluster = load_cluster()
    pools = [
        field.name for field in fields(Cluster) if isinstance(getattr(cluster, field.name), Pool)
    ]
    of_all = [row for row in rows(Cluster) if row.name.partition(".")[0] not in pools]
    given = {row.name: _in_code(getattr(cluster, row.name)) for row in of_all}
    return {
        "For all pods": _settings([replace(row, default=given[row.name]) for row in of_all]),
        f"In {', '.join(f'`{name}`' for name in pools)}": _settings(
            replace(row, default=_in_code(row.default)) for row in rows(Pool)
        ),
    }


def _settings(listed: Iterable[Row]) -> str:
    """One row for each setting of a cluster. Ends with a newline."""
    head = ("setting", "default", "allowed", "meaning")
    return _markdown(
        head,
        [(f"`{row.name}`", row.default, row.allowed, row.help) for row in listed],
    )


def _in_code(value: object) -> str:
    """A value as code; a list with each item for itself, so that a narrow column can break it."""
    items = value if isinstance(value, tuple) else (value,)
    return ", ".join(f"`{text}`" for text in map(to_text, items) if text)


def _like_most(suite: Suite) -> Game:
    """A game with the settings that the suite's games share, under the suite's name."""
    games = games_of(suite).values()
    one = next(game for game in games if game.name not in own_presets())
    return replace(one, name=suite.title)


def _default(info: ParameterInfo) -> str:
    if info.section in WITHOUT_PRESETS:
        return f"`{info.default}`" if info.default else ""
    return f"the preset's, else {f'`{info.fallback}`' if info.fallback else 'empty'}"


def _allowed(info: ParameterInfo) -> str:
    return f"{info.allowed} ({info.unit})" if info.unit else info.allowed


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )
