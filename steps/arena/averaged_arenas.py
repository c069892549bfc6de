"""Summarises the arenas of several runs: the rating of each player, and what the agents scored
against it.

The unit is the run: every number of a run is computed from its own arena first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from config.errors import BadInput
from config.ladder import AGENT
from config.measures import ELO, WIN_RATE
from steps.arena.games import read_all
from steps.arena.standing import anchor_of, tournament
from steps.directory.layout import RunDirectory
from steps.directory.tables import Cell
from steps.statistics.elo import cross_table, elo, totals
from steps.statistics.intervals import TABLE_RESAMPLES
from steps.statistics.rule import Aggregate, aggregate

NUMBERS = ("mean", "sd", "low", "high", "iqm", "iqm_low", "iqm_high")
COLUMNS = (
    "player",
    "n",
    *(f"{measure.column}_{number}" for measure in (ELO, WIN_RATE) for number in NUMBERS),
)


@dataclass(frozen=True)
class Standing:
    """One player in the arenas of several runs. ratings: its rating in each run. rates: what each
    run's agent scored against it, in %; none for the agent itself.
    """

    player: str
    ratings: Mapping[int, float]
    rates: Mapping[int, float]

    def rating(self, seed: int) -> Aggregate:
        """Its rating over runs, as a point with an interval."""
        return _over_runs(self.ratings, seed)

    def rate(self, seed: int) -> Aggregate | None:
        """What the agents scored against it over runs; None for the agent itself."""
        return _over_runs(self.rates, seed) if self.rates else None


def standings(runs: Iterable[RunDirectory]) -> list[Standing]:
    """The players that took part in all of these arenas, in the order of the first. Raises
    `BadInput` for damaged tables.
    """
    ratings: dict[str, dict[int, float]] = {}
    rates: dict[str, dict[int, float]] = {}
    indices = list[int]()
    for run in runs:
        indices.append(run.index)
        try:
            names, pairings, scores = tournament(read_all(run))
        except FileNotFoundError as error:
            raise BadInput(f"no file {error.filename}: evaluate makes it") from None
        games = float(scores.shape[1] * scores.shape[2])
        matches = totals(len(names), pairings, scores.sum(axis=(1, 2)), games)
        rated = elo(*matches, anchor_of(names))
        shares = cross_table(len(names), pairings, scores)
        for row, name in enumerate(names):
            ratings.setdefault(name, {})[run.index] = float(rated[row])
            share = float(shares[names.index(AGENT), row])
            if np.isfinite(share):
                rates.setdefault(name, {})[run.index] = 100 * share
    return [
        Standing(name, ratings[name], rates.get(name, {}))
        for name in ratings
        if len(ratings[name]) == len(indices)
    ]


def standing_rows(of: Sequence[Standing], seed: int) -> Iterable[dict[str, Cell]]:
    """The rows of average/arena.csv. Cells stay empty where the number of runs allows no statistic."""
    for one in of:
        cells: list[Cell] = [one.player, len(one.ratings)]
        for averaged in (one.rating(seed), one.rate(seed)):
            cells += _cells(averaged)
        yield dict(zip(COLUMNS, cells, strict=True))


def _cells(averaged: Aggregate | None) -> list[Cell]:
    if averaged is None:
        return [None] * len(NUMBERS)
    columns = [getattr(averaged, name) for name in NUMBERS]
    return [None if column is None else float(column[0]) for column in columns]


def _over_runs(values: Mapping[int, float], seed: int) -> Aggregate:
    # One column: `aggregate` takes runs by points. In the order of runs, like every other table.
    ordered = np.array([[values[run]] for run in sorted(values)], np.float64)
    return aggregate(ordered, seed=seed, resamples=TABLE_RESAMPLES)
