"""Averages over the runs of one entry, by the rule of their number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steps.average import SAME_SCORE
from steps.comparison.compared import Averaged
from steps.statistics.curves import (
    Curve,
    common_grid,
    equal_parts,
    hold,
    in_parts,
    mean_of_parts,
    middles,
)
from steps.statistics.intervals import CURVE_RESAMPLES, TABLE_RESAMPLES, Band, Estimate
from steps.statistics.rule import BOOTSTRAP_FROM, INTERVAL_FROM, WIDE_ENOUGH_FROM, aggregate
from steps.statistics.scores import Floats

CURVE_POINTS = 200
"""Of averaged evaluations: one small panel for each game."""
RUN_POINTS = 100
"""Of a single run's curve beside the average."""
MS_PER_HOUR = 3_600_000
NO_INTERVAL = "n = 1, no interval"
NARROW = "bootstrap interval slightly too narrow at this n"


def averaged(curves: Iterable[Curve], *, seed: int) -> Averaged | None:
    """Average curves against environment steps over equal parts of the range that all of them have;
    None if there is none. Empty curves do not count.
    """
    kept = [one for one in curves if len(one)]
    edges = equal_parts(kept)
    if len(edges) == 0:
        return None
    return _averaged(
        middles(edges),
        np.array([mean_of_parts(one, edges) for one in kept]),
        [in_parts(one, edges) for one in kept],
        seed,
    )


def averaged_over_time(curves: Iterable[Curve], *, seed: int) -> Averaged | None:
    """The same of curves against milliseconds; the grid is in hours."""
    found = averaged(curves, seed=seed)
    return None if found is None else replace(found, grid=found.grid / MS_PER_HOUR)


def averaged_evaluations(curves: Iterable[Curve], *, seed: int) -> Averaged | None:
    """The same of evaluations in the course of the training. They are few, and each is the mean of
    many episodes, so every point is the last evaluation before it.
    """
    kept = [one for one in curves if len(one)]
    grid = common_grid(kept, CURVE_POINTS)
    if len(grid) == 0:
        return None
    values = np.array([hold(one, grid) for one in kept])
    return _averaged(grid, values, [thinned(one) for one in kept], seed)


def _averaged(
    grid: NDArray[np.int64], values: Floats, runs: Sequence[Curve], seed: int
) -> Averaged:
    return Averaged(
        grid=grid.astype(np.float64),
        band=band_of(values, seed=seed),
        runs=tuple(runs),
        centre="mean" if len(runs) < BOOTSTRAP_FROM else "IQM",
    )


def band_of(values: Floats, *, seed: int) -> Band:
    """Centre and interval at each of G points; values: [N, G], one row for each run."""
    one = aggregate(values, seed=seed, resamples=CURVE_RESAMPLES)
    if one.n < INTERVAL_FROM:
        return Band(values=one.mean, reason=NO_INTERVAL)
    if one.iqm is None:
        return Band(values=one.mean, low=one.low, high=one.high, kind="t")
    return Band(values=one.iqm, low=one.iqm_low, high=one.iqm_high, kind="bootstrap")


def estimates(scores: Sequence[float], *, seed: int) -> tuple[Estimate | None, Estimate | None]:
    """Mean and interquartile mean of the runs' scores [N]; None where N is too small for them."""
    if not scores:
        return None, None
    one = aggregate(np.array(scores, np.float64)[:, None], seed=seed, resamples=TABLE_RESAMPLES)
    if one.low is None or one.high is None:
        return Estimate(value=float(one.mean[0]), reason=NO_INTERVAL), None
    mean = Estimate(
        value=float(one.mean[0]), low=float(one.low[0]), high=float(one.high[0]), kind="t"
    )
    if one.iqm is None or one.iqm_low is None or one.iqm_high is None:
        return mean, None
    low, high = float(one.iqm_low[0]), float(one.iqm_high[0])
    return mean, Estimate(value=float(one.iqm[0]), low=low, high=high, kind="bootstrap")


def remarks_on(scores: Sequence[float]) -> tuple[str, ...]:
    """What a reader of the intervals must know."""
    if len(scores) >= INTERVAL_FROM and len(set(scores)) == 1:
        return (SAME_SCORE,)
    if BOOTSTRAP_FROM <= len(scores) < WIDE_ENOUGH_FROM:
        return (NARROW,)
    return ()


def thinned(one: Curve) -> Curve:
    """The curve at RUN_POINTS steps of its own range; as it is if it has no more points."""
    if len(one) <= RUN_POINTS:
        return one
    grid = common_grid([one], RUN_POINTS)
    return Curve(steps=grid, values=hold(one, grid))
