"""Each label over all games that have normalised scores and that every label has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steps.comparison.compared import Overall
from steps.comparison.contenders import Contender
from steps.comparison.sample_efficiency import Efficiency, sample_efficiency
from steps.comparison.standings import Range, Standings, normalised
from steps.directory.cost import total
from steps.statistics.over_games import Scores, aggregates, improvement, profile
from steps.statistics.scores import Floats, mean

THRESHOLDS = 101
"""Equally spaced, and as many quantiles of the scores: a few games may have far larger ones."""


@dataclass(frozen=True, kw_only=True)
class OverGames:
    """What is found over games. shared: these games. thresholds: of the profiles."""

    shared: tuple[str, ...]
    thresholds: Floats
    efficiency: Efficiency
    overall: Mapping[str, Overall]


def over_all_games(
    contenders: Sequence[Contender],
    standings: Standings,
    ranges: Mapping[str, Range],
    opponents: Mapping[str, Contender],
    *,
    seed: int,
) -> OverGames:
    """Aggregate every label. One without any run has no aggregates, and takes no game from others."""
    competing = [one for one in contenders if any(entry.used for entry in one.entries.values())]
    shared = shared_games([one.label for one in competing], standings, ranges)
    scores = {
        one.label: [normalised(standings[one.label, game].scores, ranges[game]) for game in shared]
        for one in competing
    }
    thresholds = _thresholds(scores)
    efficiency = sample_efficiency(competing, {game: ranges[game] for game in shared}, seed=seed)
    overall: dict[str, Overall] = {}
    for one in contenders:
        ours = scores.get(one.label)
        opponent = opponents.get(one.label)
        theirs = scores.get(opponent.label) if opponent else None
        overall[one.label] = Overall(
            label=one.label,
            aggregates=aggregates(ours, seed=seed) if ours else None,
            mean_rank=_mean_rank(one.label, standings, shared) if ours else None,
            improvement=improvement(ours, theirs, seed=seed) if ours and theirs else None,
            profile=profile(ours, thresholds, seed=seed) if ours else None,
            efficiency=efficiency.bands.get(one.label),
            cost=total(run.cost for entry in one.entries.values() for run in entry.runs),
            baseline=opponent.label if opponent else "",
        )
    return OverGames(shared=shared, thresholds=thresholds, efficiency=efficiency, overall=overall)


def shared_games(
    labels: Sequence[str], standings: Standings, ranges: Mapping[str, Range]
) -> tuple[str, ...]:
    """The games with a range on which each of the labels has a run."""
    present = {place for place, standing in standings.items() if standing.n}
    return tuple(
        game for game in ranges if labels and all((label, game) in present for label in labels)
    )


def _mean_rank(label: str, standings: Standings, games: Sequence[str]) -> float:
    found = [standings[label, game].rank for game in games]
    return mean([rank for rank in found if rank is not None])


def _thresholds(scores: Mapping[str, Scores]) -> Floats:
    """Thresholds from the smallest score, or 0, to the largest, or 1; none without scores."""
    every = [game for games in scores.values() for game in games]
    if not every:
        return np.empty(0)
    together = np.concatenate([*every, np.array([0.0, 1.0])])
    even = np.linspace(together.min(), together.max(), THRESHOLDS)
    return np.unique(np.concatenate([even, np.quantile(together, np.linspace(0, 1, THRESHOLDS))]))
