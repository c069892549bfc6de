"""Which statistics may be shown for how many runs, and the statistics themselves.

| runs | centre | interval | why |
|---|---|---|---|
| 1 | the run | none | one run says nothing about another |
| 2–4 | mean | t | the bootstrap of 3 runs covers .76 instead of .95 |
| 5–9 | IQM | bootstrap, slightly too narrow; t beside it | its coverage is .90 |
| ≥ 10 | IQM | bootstrap; t beside it | .95 |

Over several games the stratified bootstrap resamples the runs of each game. How often its interval
of the interquartile mean contains the true value (400 simulations, normal scores, ± .03):

| games | 3 runs | 5 runs | 10 runs |
|---|---|---|---|
| 1 | .75 | .90 | .94 |
| 5 | .82 | .90 | .95 |
| 10 | .87 | .91 | .95 |
| 26 | .90 | .92 | .95 |

So three runs a game are enough from ten games on, where they cover as well as five runs of one game.
With fewer games every game needs five.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from steps.statistics.intervals import bootstrap_iqm_interval, resample_counts, t_interval
from steps.statistics.scores import Floats, iqm, mean, standard_deviation

INTERVAL_FROM = 2
BOOTSTRAP_FROM = 5
WIDE_ENOUGH_FROM = 10
TESTED_FROM = 5
"""Runs on each side of a test: of two sides with three runs the smallest possible p is .1, with four
.03, which is lost once a second test is made.
"""
MANY_GAMES = 10
STRATIFIED_FROM = 3
"""Runs of each of many games."""


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Statistics over N runs at each of G points. Every array is [G], or None if N is too small for
    it.
    """

    n: int
    mean: Floats
    minimum: Floats
    maximum: Floats
    median: Floats | None = None
    sd: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    iqm: Floats | None = None
    iqm_low: Floats | None = None
    iqm_high: Floats | None = None


def aggregate(values: Floats, *, seed: int, resamples: int) -> Aggregate:
    """Aggregate values [N, G], N ≥ 1, finite, one row per run. seed: of the bootstrap's generator.

    Of two calls with one seed, the one with fewer resamples uses the first resamples of the other,
    so curves and tables agree.
    """
    count = len(values)
    columns = list(values.T)
    optional: dict[str, Floats] = {}
    if count >= INTERVAL_FROM:
        intervals = np.array([t_interval(column) for column in columns], np.float64).reshape(-1, 2)
        optional |= {
            "sd": _each(standard_deviation, columns),
            "low": intervals[:, 0],
            "high": intervals[:, 1],
        }
    if count >= BOOTSTRAP_FROM:
        low, high = bootstrap_iqm_interval(values, resample_counts(count, resamples, seed))
        optional |= {"iqm": _each(iqm, columns), "iqm_low": low, "iqm_high": high}
    return Aggregate(
        n=count,
        mean=_each(mean, columns),
        minimum=values.min(axis=0),
        maximum=values.max(axis=0),
        median=np.median(values, axis=0),
        **optional,
    )


def _each(statistic: Callable[[Floats], float], columns: list[Floats]) -> Floats:
    return np.array([statistic(column) for column in columns], np.float64)


def why_no_bootstrap(runs: Sequence[int]) -> str:
    """Why the runs of these games may not be resampled; empty if they may. runs: [M], per game."""
    needed = STRATIFIED_FROM if len(runs) >= MANY_GAMES else BOOTSTRAP_FROM
    if min(runs) >= needed:
        return ""
    games = "1 game" if len(runs) == 1 else f"{len(runs)} games"
    return f"{min(runs)} runs of a game; the bootstrap over {games} needs {needed}"
