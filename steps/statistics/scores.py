"""Point estimates over runs and episodes. Every sum is exact (`math.fsum`), so the order of the runs
cannot change a result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean(values: Sequence[float] | Floats) -> float:
    """The exact mean of values [N], N ≥ 1."""
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float] | Floats) -> float:
    """The standard deviation of a sample, values [N], N ≥ 2 (`ddof=1`: with 3 runs `ddof=0` is a
    third too small).

    Two passes, because E[x²] − E[x]² cancels: of unit noise around 10⁹ nothing would be left.
    """
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def iqm_weights(count: int) -> Floats:
    """Weights [count] of the sorted values in the interquartile mean; they sum to count / 2.

    A value at the edge of the middle half counts with the fraction of it that lies inside, which is
    exact for every count. `scipy.stats.trim_mean(.25)` floors the cut instead and keeps 60 % of
    five runs, and all of three.
    """
    return middle_half(np.ones(count))


def middle_half(weights: Floats) -> Floats:
    """The part of each weight that lies in the middle half of their sum; weights [K] of sorted
    values -> [K].
    """
    total = weights.sum()
    upper = weights.cumsum()
    inside: Floats = np.minimum(upper, 0.75 * total) - np.maximum(upper - weights, 0.25 * total)
    return np.maximum(inside, 0.0)


def iqm(values: Sequence[float] | Floats) -> float:
    """Interquartile mean, the mean of the middle half (Agarwal et al. 2021, arXiv:2108.13264);
    values: [N], N ≥ 1.
    """
    heights = np.asarray(values, np.float64)
    return weighted_iqm(heights, np.ones(len(heights)))


def weighted_iqm(values: Floats, weights: Floats) -> float:
    """Interquartile mean of values [N] that count with weights [N]."""
    order = np.argsort(values, kind="stable")
    inside = middle_half(weights[order])
    return math.fsum(inside * values[order]) / math.fsum(inside)


def optimality_gap(scores: Sequence[float] | Floats, *, target: float = 1.0) -> float:
    """How far normalised scores [K] stay below `target` on average. Values above it do not
    compensate. Lower is better.
    """
    return target - mean([min(score, target) for score in scores])


def performance_profile(
    scores: Sequence[float] | Floats, thresholds: Sequence[float] | Floats
) -> Floats:
    """Share of scores [K] strictly above each threshold [T] -> [T]; its area over [0, 1] is the
    mean of the clipped scores.
    """
    ordered = np.sort(np.asarray(scores, np.float64))
    return 1.0 - np.searchsorted(ordered, np.asarray(thresholds, np.float64), side="right") / len(
        ordered
    )


def probability_of_improvement(
    ours: Sequence[float] | Floats, theirs: Sequence[float] | Floats
) -> float:
    """Probability that a run of ours beats one of theirs, ties counting one half: Mann–Whitney U /
    (N·N′). ours: [N], theirs: [N′].
    """
    signs = np.sign(np.asarray(ours, np.float64)[:, None] - np.asarray(theirs, np.float64)[None, :])
    return (signs.size + float(signs.sum())) / (2 * signs.size)


def wilson_interval(
    successes: float, trials: int, *, z: float = 1.959963984540054
) -> tuple[float, float]:
    """95 % interval of a proportion that is also right near 0 and 1 (Wilson 1927). A draw is half a
    success.
    """
    share = successes / trials
    scale = z * z / trials
    centre = share + scale / 2
    half = z * math.sqrt(share * (1 - share) / trials + scale / (4 * trials))
    return max(0.0, (centre - half) / (1 + scale)), min(1.0, (centre + half) / (1 + scale))
