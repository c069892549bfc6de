"""95 % intervals over runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from steps.statistics.scores import Floats, mean, standard_deviation

LEVEL = 0.95
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
CURVE_RESAMPLES = 2_000
TABLE_RESAMPLES = 20_000
"""With fewer resamples the 2.5 % point itself is noisy; with 10 it would be the minimum."""
BLOCK = 500
"""Resamples that are held at once: 1 MB for 26 games with ten runs each, which stays in the cache of
a core; 2000 at once take three times as long.
"""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and its 95 % interval.

    kind: of the interval, such as `t`. Without an interval low and high are None, and `reason` says
    why.
    """

    value: float
    low: float | None = None
    high: float | None = None
    kind: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Band:
    """Values [G] with pointwise 95 % intervals, each [G]; None, with the reason, if there are none.

    Pointwise: each interval is of its own point, and the band says nothing about a whole curve.
    """

    values: Floats
    low: Floats | None = None
    high: Floats | None = None
    kind: str = ""
    reason: str = ""


def t_interval(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Student's interval of the mean; values: [N], N ≥ 2. Equal values give an interval of width 0,
    which is right.
    """
    half = t_quantile(len(values) - 1) * standard_deviation(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def combined_t_interval(samples: Sequence[Floats], factors: Sequence[float]) -> tuple[float, float]:
    """Interval of the sum of factor · mean over independent samples, each [N_i], N_i ≥ 2.

    The degrees of freedom are those of Welch (1947) and Satterthwaite (1946). Factors 1 and −1 give
    Welch's interval of a difference; one sample gives Student's.
    """
    centre = math.fsum(
        factor * mean(sample) for sample, factor in zip(samples, factors, strict=True)
    )
    parts = [
        (factor * standard_deviation(sample)) ** 2 / len(sample)
        for sample, factor in zip(samples, factors, strict=True)
    ]
    variance = math.fsum(parts)
    if variance == 0:
        return centre, centre
    freedom = welch_freedom(parts, [len(sample) for sample in samples])
    half = t_quantile(freedom) * math.sqrt(variance)
    return centre - half, centre + half


def welch_freedom(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Degrees of freedom of the sum of independent variances of means, not all zero; each comes from
    counts[i] values.
    """
    total = math.fsum(variances)
    return 1 / math.fsum(
        (variance / total) ** 2 / (count - 1)
        for variance, count in zip(variances, counts, strict=True)
    )


@lru_cache(maxsize=1024)
def t_quantile(freedom: float) -> float:
    """97.5 % quantile of Student's t with `freedom` degrees."""
    # Imported here because it takes 0.15 s of a core, and only `average` needs it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, TAILS[1]))


def resample_counts(runs: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """How often each run is drawn in each resample of whole runs, with replacement -> [resamples,
    runs].
    """
    return np.concatenate(list(stratified_counts([runs], resamples, np.random.default_rng(seed))))


def stratified_counts(
    runs: Sequence[int], resamples: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """How often each run is drawn when the runs of each game are resampled among themselves.

    runs: [M], the number of runs per game. Yields blocks [≤ BLOCK, K] of `resamples` rows in all; the
    K columns are all runs, game after game. One game has the counts of `resample_counts`, and fewer
    resamples are the first of more.
    """
    sizes = np.repeat(runs, runs)
    starts = np.repeat(np.cumsum(runs) - runs, runs)
    for first in range(0, resamples, BLOCK):
        rows = min(BLOCK, resamples - first)
        drawn = generator.integers(sizes, size=(rows, len(sizes))) + starts
        cells = drawn + len(sizes) * np.arange(rows)[:, None]
        counts = np.bincount(cells.ravel(), minlength=cells.size)
        yield counts.reshape(cells.shape)


def bootstrap_iqm_interval(values: Floats, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Percentile interval of the interquartile mean; values: [N, G] per run and grid point, counts:
    [B, N] -> two [G].

    All grid points use the same resamples of whole runs, and the order in which the runs arrive
    cannot change the answer. The interval is pointwise: it says nothing about the whole curve.
    """
    weights = counts.T.astype(np.float64, order="C")
    columns = [
        np.quantile(resampled_iqm(column, weights), TAILS) for column in in_fixed_order(values).T
    ]
    low, high = np.array(columns, np.float64).reshape(-1, 2).T
    return low, high


def in_fixed_order(values: Floats) -> Floats:
    """Sort the rows of values [N, G]: equal sets of runs get equal resamples."""
    # `lexsort` takes its last key first: reversed, the first grid point decides, then the second.
    return values[np.lexsort(values.T[::-1])]


def resampled_iqm(values: Floats, weights: Floats) -> Floats:
    """The interquartile mean of every resample [B] without building the resamples; values: [N],
    weights: [N, B], of equal sums.

    The mean of the middle half is the area under the quantile function between ¼ and ¾: a sorted
    value reaches up to the sum of the weights until there.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    total = float(weights[:, 0].sum())
    upper = weights[order]
    # In place: making these arrays anew takes longer than filling them.
    np.cumsum(upper, axis=0, out=upper)
    np.clip(upper, 0.25 * total, 0.75 * total, out=upper)
    above: Floats = np.diff(ordered) @ (0.75 * total - upper[:-1])
    resampled: Floats = ordered[0] + above / (0.5 * total)
    return resampled
