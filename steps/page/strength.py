"""What the page says about an arena: the ratings beside the win rate, and a row for each player."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.errors import BadInput
from config.ladder import LADDER, VALUE_KEPT
from config.measures import ELO, WIN_RATE, Measure
from config.numbers import number
from config.resolved import Resolved
from steps.directory.tables import read_rows
from steps.page.facts import Facts


@dataclass(frozen=True)
class Row:
    """A player as the table shows it. win_rate: the agents' rate against it; empty for the agents
    themselves.
    """

    player: str
    rating: str
    win_rate: str
    runs: str


def standing(facts: Facts) -> list[Row]:
    """The players, strongest first; empty without self-play or a readable table."""
    if not facts.resolved.descriptor.has_workers:
        return []
    try:
        rows = read_rows(facts.directory.average / "arena.csv")
        ordered = sorted(rows, key=lambda row: -float(row[f"{ELO.column}_mean"]))
        return [
            Row(row["player"], _cell(row, ELO), _cell(row, WIN_RATE), row["n"]) for row in ordered
        ]
    except (OSError, BadInput, KeyError, ValueError, TypeError):
        return []


def said_of_strength(summary: Mapping[str, Any]) -> list[str]:
    """`Elo rating 113, 95 % t interval of the mean −139 to 365`, and the share of moves that keep
    the value. What summary.json does not contain is left out.
    """
    said = []
    for name, text, unit in (
        (ELO.column, ELO.name, ""),
        (VALUE_KEPT, "moves that keep the value", " %"),
    ):
        scores = summary.get(name)
        if not isinstance(scores, Mapping) or not _is_number(scores.get("mean")):
            continue
        interval = scores.get("t_interval")
        ends = ""
        if isinstance(interval, list) and len(interval) == 2 and all(map(_is_number, interval)):
            ends = f", 95 % t interval of the mean {number(interval[0])} to {number(interval[1])}{unit}"
        said.append(f"{text} {number(scores['mean'])}{unit}{ends}")
    return said


def sample(resolved: Resolved) -> str:
    """Which games a win rate is computed from, in words."""
    games = resolved.experiment.evaluation_episodes
    simulations = resolved.hyperparameters.evaluation_simulations
    ladder = f"{', '.join(LADDER[:-1])} and {LADDER[-1]}"
    return (
        f"{games} games against each of {ladder}, {number(simulations)} simulations for each move"
    )


def _cell(row: Mapping[str, str], measure: Measure) -> str:
    """`113 (−139 to 365)`, as far as the number of runs allows."""
    of = {name: row[f"{measure.column}_{name}"] for name in ("mean", "low", "high")}
    if not of["mean"]:
        return ""
    centre = measure.shown(float(of["mean"]))
    if of["low"]:
        return f"{centre} ({number(float(of['low']))} to {number(float(of['high']))})"
    return centre


def _is_number(value: object) -> bool:
    # JSON written by hand may hold true, which Python counts among the integers, or NaN.
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value)  # type: ignore[arg-type]
