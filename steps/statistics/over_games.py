"""One algorithm over many games, and two algorithms over many games (Agarwal et al. 2021,
arXiv:2108.13264).

Scores are normalised, so that games can be averaged, and given per game: one array [N_m] of runs for
each of M games. The numbers of runs may differ; every game counts the same, so a run has the weight
1 / (M · N_m). Intervals come from the stratified bootstrap: whole runs are resampled within each
game. They are about other runs on these games, and say nothing about other games.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from steps.statistics.intervals import (
    CURVE_RESAMPLES,
    TABLE_RESAMPLES,
    TAILS,
    Band,
    Estimate,
    combined_t_interval,
    in_fixed_order,
    resampled_iqm,
    stratified_counts,
)
from steps.statistics.rule import INTERVAL_FROM, why_no_bootstrap
from steps.statistics.scores import (
    Floats,
    mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    weighted_iqm,
)

Scores = Sequence[Floats]
TARGET = 1.0
STRATIFIED = "stratified bootstrap"


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """The scores of all games in one number, in four ways.

    iqm: interquartile mean over all runs of all games. median: of the games' means. mean: of the
    games' means. optimality_gap: how far scores stay below 1; lower is better.
    """

    iqm: Estimate
    median: Estimate
    mean: Estimate
    optimality_gap: Estimate


def aggregates(scores: Scores, *, seed: int, resamples: int = TABLE_RESAMPLES) -> Aggregates:
    """Aggregate the scores of one algorithm; scores: M arrays [N_m], N_m ≥ 1, M ≥ 1.

    Where the runs are too few for the bootstrap, mean and gap have Student's interval. One game has
    it always, because there the bootstrap of a mean covers .84 with five runs and .89 with ten.
    """
    runs = _Runs(scores)
    shortfalls = [np.maximum(TARGET - game, 0.0) for game in scores]
    values = (
        weighted_iqm(runs.values, runs.weights),
        float(np.median([mean(game) for game in scores])),
        mean([mean(game) for game in scores]),
        mean([optimality_gap(game, target=TARGET) for game in scores]),
    )
    reason = why_no_bootstrap(runs.sizes)
    if reason:
        iqm, median, average, gap = (Estimate(value=value, reason=reason) for value in values)
    else:
        resampled = _resampled_aggregates(runs, seed, resamples)
        iqm, median, average, gap = map(_percentile_estimate, values, resampled)
    if (reason or len(scores) == 1) and min(runs.sizes) >= INTERVAL_FROM:
        average = _t_estimate(average.value, scores)
        gap = _t_estimate(gap.value, shortfalls)
    if len(scores) == 1:
        median = average
    return Aggregates(iqm=iqm, median=median, mean=average, optimality_gap=gap)


def _resampled_aggregates(runs: _Runs, seed: int, resamples: int) -> list[Floats]:
    """Interquartile mean, median, mean and optimality gap of every resample, [B] each."""
    shortfall = np.maximum(TARGET - runs.values, 0.0)
    blocks = [
        (
            resampled_iqm(runs.values, weights),
            np.median(runs.game_means(weights), axis=0),
            runs.values @ weights / runs.total,
            shortfall @ weights / runs.total,
        )
        for weights in runs.resampled(seed, resamples)
    ]
    return [np.concatenate(blocks_of_one) for blocks_of_one in zip(*blocks, strict=True)]


def profile(
    scores: Scores, thresholds: Floats, *, seed: int, resamples: int = CURVE_RESAMPLES
) -> Band:
    """Performance profile: the share of runs with a score above each threshold [T] -> [T].

    Each threshold's interval comes from the same resamples.
    """
    runs = _Runs(scores)
    shares = np.mean([performance_profile(game, thresholds) for game in scores], axis=0)
    reason = why_no_bootstrap(runs.sizes)
    if reason:
        return Band(values=shares, reason=reason)
    above = (thresholds[:, None] < runs.values).astype(np.float64)
    resampled = [above @ weights / runs.total for weights in runs.resampled(seed, resamples)]
    low, high = np.quantile(np.concatenate(resampled, axis=1), TAILS, axis=1)
    return Band(values=shares, low=low, high=high, kind=STRATIFIED)


def improvement(
    ours: Scores, theirs: Scores, *, seed: int, resamples: int = TABLE_RESAMPLES
) -> Estimate:
    """Probability that a run of ours beats a run of theirs on the same game, averaged over games.

    ours, theirs: M arrays each, of the same games in the same order. Both are resampled
    independently.
    """
    pairs = list(zip(ours, theirs, strict=True))
    value = mean([probability_of_improvement(*pair) for pair in pairs])
    sides = _Runs(ours), _Runs(theirs)
    reason = why_no_bootstrap(sides[0].sizes) or why_no_bootstrap(sides[1].sizes)
    if reason:
        return Estimate(value=value, reason=reason)
    if value in (0.0, 1.0):
        return Estimate(
            value=value, reason="the runs do not overlap, so every resample is the same"
        )
    wins = _wins(*sides)
    blocks = zip(
        sides[0].resampled(seed, resamples, side=0),
        sides[1].resampled(seed, resamples, side=1),
        strict=True,
    )
    resampled = [np.sum(first * (wins @ second), axis=0) for first, second in blocks]
    return _percentile_estimate(value, np.concatenate(resampled))


def curve_over_games(
    curves: Sequence[Floats], *, seed: int, resamples: int = CURVE_RESAMPLES
) -> Band:
    """Interquartile mean over all runs of all games at each point of a common grid.

    curves: M arrays [N_m, G] of normalised scores, finite; the grid is the number or the share of
    steps. Whole runs are resampled, once for all points.
    """
    runs = _Runs(curves)
    heights = [weighted_iqm(column, runs.weights) for column in runs.values.T]
    values = np.array(heights, np.float64)
    reason = why_no_bootstrap(runs.sizes)
    if reason:
        return Band(values=values, reason=reason)
    resampled = [
        [resampled_iqm(column, weights) for column in runs.values.T]
        for weights in runs.resampled(seed, resamples)
    ]
    low, high = np.quantile(np.concatenate(resampled, axis=1), TAILS, axis=1)
    return Band(values=values, low=low, high=high, kind=STRATIFIED)


class _Runs:
    """The runs of all games in one row, game after game, sorted within each.

    values: [K] or [K, G]. weights: [K], such that every game counts the same; 1 where all games have
    the same number of runs. total: their sum. sizes: runs per game [M].
    """

    def __init__(self, scores: Scores) -> None:
        self.sizes = [len(game) for game in scores]
        self.values = np.concatenate(
            [np.sort(game) if game.ndim == 1 else in_fixed_order(game) for game in scores]
        )
        self.weights = np.repeat(max(self.sizes) / np.array(self.sizes, np.float64), self.sizes)
        self.total = max(self.sizes) * len(self.sizes)
        self.games = np.repeat(np.arange(len(self.sizes)), self.sizes)

    def game_means(self, weights: Floats) -> Floats:
        """Mean of each game [M, B] in resamples with weights [K, B]."""
        starts = np.cumsum(self.sizes, dtype=np.int64) - np.array(self.sizes)
        sums: Floats = np.add.reduceat(weights * self.values[:, None], starts, axis=0)
        return sums / max(self.sizes)

    def resampled(self, seed: int, resamples: int, side: int | None = None) -> Iterator[Floats]:
        """How much each run counts in each resample, in blocks [K, b]; sides are independent."""
        generator = np.random.default_rng(seed if side is None else [seed, side])
        for counts in stratified_counts(self.sizes, resamples, generator):
            yield np.multiply(counts.T, self.weights[:, None], order="C")


def _wins(ours: _Runs, theirs: _Runs) -> Floats:
    """[K, K′]: for two runs of one game the share in the result that ours beats theirs has, half of
    it in a tie.
    """
    better = (1 + np.sign(ours.values[:, None] - theirs.values)) / 2
    same_game = ours.games[:, None] == theirs.games
    pairs = len(ours.sizes) * max(ours.sizes) * max(theirs.sizes)
    wins: Floats = better * same_game / pairs
    return wins


def _t_estimate(value: float, games: Scores) -> Estimate:
    """The mean of the games' means with Student's interval; every game has two runs at least."""
    low, high = combined_t_interval(games, [1 / len(games)] * len(games))
    return Estimate(value=value, low=low, high=high, kind="t")


def _percentile_estimate(value: float, resampled: Floats) -> Estimate:
    low, high = np.quantile(resampled, TAILS)
    return Estimate(value=value, low=float(low), high=float(high), kind=STRATIFIED)
