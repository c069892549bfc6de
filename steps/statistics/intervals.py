"""95 % intervals over runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from steps.statistics.scores import Floats, iqm_weights, mean, standard_deviation

LEVEL = 0.95
CURVE_RESAMPLES = 2_000
TABLE_RESAMPLES = 20_000
"""With fewer resamples the 2.5 % point itself is noisy; with 10 it would be the minimum."""


def t_interval(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Student's interval of the mean; values: [N], N ≥ 2. Equal values give an interval of width 0,
    which is right.
    """
    half = t_quantile(len(values) - 1) * standard_deviation(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


@cache
def t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t with `freedom` degrees."""
    # Imported here because it takes 0.15 s of a core, and only `average` needs it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def resample_counts(runs: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """How often each run is drawn in each resample of whole runs, with replacement -> [resamples,
    runs].
    """
    drawn = np.random.default_rng(seed).integers(runs, size=(resamples, runs))
    counts = np.zeros((resamples, runs), np.int64)
    np.add.at(counts, (np.arange(resamples)[:, None], drawn), 1)
    return counts


def bootstrap_iqm_interval(values: Floats, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Percentile interval of the interquartile mean; values: [N, G] per run and grid point, counts:
    [B, N] -> two [G].

    All grid points use the same resamples of whole runs. The rows are sorted first, so that the
    order in which the runs arrive cannot change the answer. The interval is pointwise: it says
    nothing about the whole curve at once.
    """
    # `lexsort` takes its last key first: reversed, the first grid point decides, then the second.
    values = values[np.lexsort(values.T[::-1])]
    columns = [
        np.quantile(_resampled_iqm(column, counts), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        for column in values.T
    ]
    low, high = np.array(columns, np.float64).reshape(-1, 2).T
    return low, high


def _resampled_iqm(values: Floats, counts: NDArray[np.int64]) -> Floats:
    """The interquartile mean of every resample [B] without building the resamples: repeated values
    share one interval of ranks.
    """
    order = np.argsort(values, kind="stable")
    drawn = counts[:, order]
    # Of the sorted resample, the value number i takes the ranks from upper - drawn to upper.
    upper = drawn.cumsum(axis=1)
    count = len(values)
    inside = np.minimum(upper, 0.75 * count) - np.maximum(upper - drawn, 0.25 * count)
    resampled: Floats = np.maximum(inside, 0.0) @ values[order] / iqm_weights(count).sum()
    return resampled
