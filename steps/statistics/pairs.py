"""Two algorithms on one game: how large the difference is, and whether chance explains it.

ours: [N] and theirs: [N′] are the scores of independent runs; both sides need not have equally many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from steps.statistics.intervals import (
    TABLE_RESAMPLES,
    TAILS,
    Estimate,
    combined_t_interval,
    resampled_iqm,
    stratified_counts,
    welch_freedom,
)
from steps.statistics.rule import BOOTSTRAP_FROM, INTERVAL_FROM, TESTED_FROM
from steps.statistics.scores import (
    Floats,
    iqm,
    mean,
    probability_of_improvement,
    standard_deviation,
)

EXACT_UP_TO = 200_000
"""Assignments of runs to sides that are all tried: two sides of ten runs have 184 756."""
RANDOM_ASSIGNMENTS = 99_999
"""Drawn where there are more, so that the smallest p is 1e-5."""
TIED = 1e-10
"""Differences this close, in units of the largest score, are equal: sums in another order."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Ours minus theirs. mean: with Welch's interval from two runs a side on. iqm: with the bootstrap,
    None below five runs a side.
    """

    mean: Estimate
    iqm: Estimate | None = None


def difference(
    ours: Floats, theirs: Floats, *, seed: int, resamples: int = TABLE_RESAMPLES
) -> Difference:
    """By how much a run of ours exceeds one of theirs, by the rule of runs."""
    fewest = min(len(ours), len(theirs))
    value = mean(ours) - mean(theirs)
    if fewest < INTERVAL_FROM:
        return Difference(mean=Estimate(value=value, reason="one run on a side"))
    low, high = combined_t_interval([ours, theirs], [1, -1])
    average = Estimate(value=value, low=low, high=high, kind="Welch's t")
    if fewest < BOOTSTRAP_FROM:
        return Difference(mean=average)
    resampled = _resampled_iqms(ours, [seed, 0], resamples) - _resampled_iqms(
        theirs, [seed, 1], resamples
    )
    low, high = np.quantile(resampled, TAILS)
    middle = Estimate(
        value=iqm(ours) - iqm(theirs), low=float(low), high=float(high), kind="bootstrap"
    )
    return Difference(mean=average, iqm=middle)


def _resampled_iqms(scores: Floats, seed: list[int], resamples: int) -> Floats:
    blocks = stratified_counts([len(scores)], resamples, np.random.default_rng(seed))
    ordered = np.sort(scores)
    return np.concatenate(
        [resampled_iqm(ordered, counts.T.astype(np.float64)) for counts in blocks]
    )


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """Whether chance explains the difference of two algorithms on one game; p-values are two-sided.

    difference: of the means, ours minus theirs. permutation_p: of the permutation test on it; is_exact:
    all assignments of runs to sides were tried. t, freedom, welch_p: Welch's test. cohen_d: the
    difference in pooled standard deviations; hedges_g: the same without its bias in few runs. These
    five are None where no run differs from the others of its side. improvement: probability that a
    run of ours beats one of theirs. *_holm: p-values after Holm's correction over all tests of the
    family.
    """

    runs: tuple[int, int]
    difference: float
    permutation_p: float
    is_exact: bool
    improvement: float
    t: float | None = None
    freedom: float | None = None
    welch_p: float | None = None
    cohen_d: float | None = None
    hedges_g: float | None = None
    permutation_holm: float | None = None
    welch_holm: float | None = None


def pair_tests(
    pairs: Sequence[tuple[Floats, Floats]], *, seed: int
) -> list[tuple[PairTest | None, str]]:
    """Test each pair (ours, theirs) of a family, and correct for their number.

    A pair with fewer than five runs on a side has None and the reason, and does not count in the
    correction.
    """
    results = [pair_test(ours, theirs, seed=seed) for ours, theirs in pairs]
    tested = [test for test, _ in results if test]
    permutation = iter(holm([test.permutation_p for test in tested]))
    welch = iter(holm([test.welch_p for test in tested if test.welch_p is not None]))
    return [
        (
            test
            and replace(
                test,
                permutation_holm=next(permutation),
                welch_holm=None if test.welch_p is None else next(welch),
            ),
            reason,
        )
        for test, reason in results
    ]


def pair_test(ours: Floats, theirs: Floats, *, seed: int) -> tuple[PairTest | None, str]:
    """Test one pair; None and the reason with fewer than five runs on a side."""
    fewest = min(len(ours), len(theirs))
    if fewest < TESTED_FROM:
        return None, f"{fewest} runs on a side, a test needs {TESTED_FROM}"
    p, is_exact = permutation_test(ours, theirs, seed=seed)
    spread = _pooled_deviation(ours, theirs)
    test = PairTest(
        runs=(len(ours), len(theirs)),
        difference=mean(ours) - mean(theirs),
        permutation_p=p,
        is_exact=is_exact,
        improvement=probability_of_improvement(ours, theirs),
    )
    if spread == 0:
        return test, ""
    t, freedom, welch_p = welch_test(ours, theirs)
    d = test.difference / spread
    g = d * hedges_correction(len(ours) + len(theirs) - 2)
    return replace(test, t=t, freedom=freedom, welch_p=welch_p, cohen_d=d, hedges_g=g), ""


def permutation_test(ours: Floats, theirs: Floats, *, seed: int) -> tuple[float, bool]:
    """The two-sided p of the difference of means, and whether it is exact.

    The share of all assignments of the runs to the two sides whose difference is at least as large.
    Where these are too many, B random ones: p = (b + 1) / (B + 1) (Phipson and Smyth 2010).
    """
    scores = np.concatenate([np.sort(ours), np.sort(theirs)])
    count, size = len(scores), len(ours)
    # About the middle and in units of the largest score, so that rounding has one size.
    scores = scores - mean(scores)
    scores = scores / (np.abs(scores).max() or 1.0)
    is_exact = math.comb(count, size) <= EXACT_UP_TO
    chosen = all_choices(count, size) if is_exact else _random_choices(count, size, seed)
    # Scores sum to zero, so the sum of one side decides the difference of means.
    observed = abs(math.fsum(scores[:size]))
    at_least = int(np.sum(np.abs(_sums(scores, chosen)) >= observed - TIED))
    return (at_least + (not is_exact)) / (len(chosen) + (not is_exact)), is_exact


def _sums(scores: Floats, chosen: NDArray[np.int64]) -> Floats:
    """Sum of the chosen scores; chosen: [A, n] indices -> [A]."""
    sums = np.zeros(len(chosen))
    for column in chosen.T:
        sums += scores[column]
    return sums


@lru_cache(maxsize=4)
def all_choices(count: int, size: int) -> NDArray[np.int64]:
    """All choices of `size` of `count` runs -> [count over size, size]."""
    flat = np.fromiter(chain.from_iterable(combinations(range(count), size)), np.int64)
    return np.asfortranarray(flat.reshape(math.comb(count, size), size))


@lru_cache(maxsize=4)
def _random_choices(count: int, size: int, seed: int) -> NDArray[np.int64]:
    """Random choices of `size` of `count` runs -> [RANDOM_ASSIGNMENTS, size]."""
    generator = np.random.default_rng(seed)
    every = np.broadcast_to(np.arange(count), (RANDOM_ASSIGNMENTS, count))
    return np.asfortranarray(generator.permuted(every, axis=1)[:, :size])


def welch_test(ours: Floats, theirs: Floats) -> tuple[float, float, float]:
    """Welch's t, its degrees of freedom and two-sided p; the runs of one side at least must differ."""
    # Imported here because it takes 0.15 s of a core.
    from scipy.special import stdtr

    variances = [standard_deviation(side) ** 2 / len(side) for side in (ours, theirs)]
    t = (mean(ours) - mean(theirs)) / math.sqrt(math.fsum(variances))
    freedom = welch_freedom(variances, [len(ours), len(theirs)])
    return t, freedom, 2 * float(stdtr(freedom, -abs(t)))


def _pooled_deviation(ours: Floats, theirs: Floats) -> float:
    squares = [(len(side) - 1) * standard_deviation(side) ** 2 for side in (ours, theirs)]
    return math.sqrt(math.fsum(squares) / (len(ours) + len(theirs) - 2))


def hedges_correction(freedom: int) -> float:
    """Cohen's d of few runs is too large by the inverse of this factor (Hedges 1981, equation 6e)."""
    gammas = math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)
    return math.exp(gammas) / math.sqrt(freedom / 2)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values after Holm's (1979) correction, in the given order.

    The chance of any wrong rejection in the family stays below the level, whatever the dependence of
    the tests.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for position, index in enumerate(order):
        largest = max(largest, (len(p_values) - position) * p_values[index])
        corrected[index] = min(1.0, largest)
    return corrected
