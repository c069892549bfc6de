"""Differences and tests of two algorithms, against enumeration, scipy and closed forms."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steps.statistics import pairs as module
from steps.statistics.intervals import TAILS
from steps.statistics.pairs import (
    difference,
    hedges_correction,
    holm,
    pair_test,
    pair_tests,
    permutation_test,
    welch_test,
)
from steps.statistics.scores import iqm, probability_of_improvement

SLOW_RESAMPLES = 1_500
NOISE = 0.3
"""Of a 2.5 % point of so few resamples, in their standard deviations: four standard errors."""

whole = st.lists(st.integers(-3, 3), min_size=2, max_size=5)


def sides(*sizes: int, seed: int = 0, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(shift, 1, sizes[0]), generator.normal(0, 1.5, sizes[1])


@given(whole, whole)
def test_permutation_test_against_enumeration(ours, theirs):
    """Whole numbers have many ties, in exact arithmetic: sums are compared multiplied out."""
    both, n, m = ours + theirs, len(ours), len(theirs)

    def scaled(chosen: tuple[int, ...]) -> int:
        side = sum(both[index] for index in chosen)
        return abs(m * side - n * (sum(both) - side))

    every = [scaled(chosen) for chosen in combinations(range(n + m), n)]
    expected = sum(value >= scaled(tuple(range(n))) for value in every) / len(every)
    for factor, offset in ((1.0, 0.0), (1e-3, 0.1), (1e6, 1e8)):
        found = permutation_test(
            offset + factor * np.array(ours, float),
            offset + factor * np.array(theirs, float),
            seed=1,
        )
        assert found == (pytest.approx(expected, abs=1e-12), True)


def test_permutation_test_against_scipy():
    ours, theirs = sides(6, 7, shift=1.0)
    expected = stats.permutation_test(
        (ours, theirs),
        lambda x, y: abs(np.mean(x) - np.mean(y)),
        n_resamples=np.inf,
        alternative="greater",
    )
    assert permutation_test(ours, theirs, seed=1)[0] == pytest.approx(expected.pvalue, abs=1e-12)


def test_random_assignments_approach_the_exact_p(monkeypatch):
    ours, theirs = sides(8, 8, shift=1.2)
    exact, is_exact = permutation_test(ours, theirs, seed=1)
    monkeypatch.setattr(module, "EXACT_UP_TO", 10)
    p, was_exact = permutation_test(ours, theirs, seed=1)
    error = math.sqrt(exact * (1 - exact) / module.RANDOM_ASSIGNMENTS)
    assert is_exact and not was_exact
    assert p == pytest.approx(exact, abs=4 * error)


def test_a_p_of_random_assignments_is_never_zero():
    ours, theirs = np.arange(20.0) + 100, np.arange(20.0)
    assert permutation_test(ours, theirs, seed=1) == (pytest.approx(1e-5), False)


def test_the_permutation_test_keeps_its_level():
    """Without a difference p is below .05 in at most 5 %; exactly 4.76 % of 252 assignments."""
    generator = np.random.default_rng(1)
    rejected = [
        permutation_test(*generator.standard_cauchy((2, 5)), seed=1)[0] <= 0.05
        for _ in range(2_000)
    ]
    assert np.mean(rejected) == pytest.approx(12 / 252, abs=0.014)


@pytest.mark.parametrize("sizes", [(5, 5), (5, 9), (30, 12)])
def test_welch_against_scipy(sizes):
    ours, theirs = sides(*sizes, shift=0.7)
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    assert welch_test(ours, theirs) == pytest.approx(
        (expected.statistic, expected.df, expected.pvalue), rel=1e-12
    )
    interval = difference(ours, theirs, seed=1, resamples=50).mean
    low, high = expected.confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-10)


def test_effect_sizes_by_hand():
    """Means 3 and 5, both variances 2.5: d = −2 / √2.5; of eight degrees of freedom J = .9027."""
    test, reason = pair_test(np.arange(1.0, 6), np.arange(3.0, 8), seed=1)
    assert reason == "" and test is not None
    assert test.difference == -2
    assert test.cohen_d == pytest.approx(-2 / math.sqrt(2.5))
    assert test.hedges_g == pytest.approx(0.9027 * test.cohen_d, abs=1e-4)
    assert test.improvement == probability_of_improvement(range(1, 6), range(3, 8))


def test_hedges_correction_against_its_usual_approximation():
    for freedom in (8, 18, 200):
        assert hedges_correction(freedom) == pytest.approx(1 - 3 / (4 * freedom - 1), abs=1e-3)


def test_cohen_s_d_of_few_runs_is_too_large_and_hedges_g_is_not():
    generator = np.random.default_rng(3)
    found = [
        pair_test(generator.normal(1, 1, 5), generator.normal(0, 1, 5), seed=1)[0]
        for _ in range(1_000)
    ]
    error = np.std([test.hedges_g for test in found]) / math.sqrt(1_000)
    assert np.mean([test.hedges_g for test in found]) == pytest.approx(1, abs=4 * error)
    assert np.mean([test.cohen_d for test in found]) > 1.05


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.5]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values):
    corrected = holm(p_values)
    for level in (0.01, 0.05, 0.2):
        rejected, order = set(), sorted(range(len(p_values)), key=p_values.__getitem__)
        for position, index in enumerate(order):
            if (len(order) - position) * p_values[index] > level:
                break
            rejected.add(index)
        assert {index for index, p in enumerate(corrected) if p <= level} == rejected


def test_nothing_is_tested_below_five_runs_a_side():
    test, reason = pair_test(*sides(4, 9), seed=1)
    assert test is None and reason == "4 runs on a side, a test needs 5"


def test_a_family_is_corrected_for_the_tests_that_were_made():
    made = [sides(5, 6, seed=seed, shift=1.5) for seed in range(3)]
    results = pair_tests([made[0], sides(4, 5), made[1], made[2]], seed=1)
    assert results[1][0] is None
    tests = [test for test, _ in results if test]
    assert [test.permutation_holm for test in tests] == holm([t.permutation_p for t in tests])
    assert [test.welch_holm for test in tests] == holm([t.welch_p for t in tests])


def test_runs_without_spread():
    same, other = np.full(5, 2.0), np.full(6, 3.0)
    test, _ = pair_test(same, other, seed=1)
    assert test is not None and test.welch_p is None and test.cohen_d is None
    assert test.permutation_p == pytest.approx(1 / math.comb(11, 5))
    ((alone, _),) = pair_tests([(same, same)], seed=1)
    assert alone is not None and alone.permutation_p == alone.permutation_holm == 1
    assert alone.welch_holm is None and alone.improvement == 0.5
    found = difference(same, other, seed=1, resamples=50)
    assert found.iqm is not None
    assert (found.mean.low, found.mean.high) == (found.iqm.low, found.iqm.high) == (-1, -1)


@pytest.mark.parametrize("runs", [1, 2, 4, 5, 10])
def test_the_rule_of_runs_for_differences(runs):
    found = difference(*sides(runs, 12), seed=1, resamples=50)
    assert (found.mean.low is None) == (runs == 1) == bool(found.mean.reason)
    assert (found.iqm is None) == (runs < 5)
    assert found.mean.kind == ("" if runs == 1 else "Welch's t")


def test_the_bootstrap_of_a_difference_is_that_of_a_plain_loop():
    ours, theirs = sides(7, 9, shift=1.0)
    found = difference(ours, theirs, seed=1).iqm
    generator = np.random.default_rng(2)
    slow = [
        iqm(generator.choice(ours, 7)) - iqm(generator.choice(theirs, 9))
        for _ in range(SLOW_RESAMPLES)
    ]
    assert found is not None and found.value == iqm(ours) - iqm(theirs)
    assert (found.low, found.high) == pytest.approx(
        tuple(np.quantile(slow, TAILS)), abs=NOISE * np.std(slow)
    )


def test_no_order_of_the_runs_matters():
    ours, theirs = sides(12, 12, shift=0.5)
    assert pair_test(ours, theirs, seed=1) == pair_test(ours[::-1], theirs[::-1], seed=1)
    assert difference(ours, theirs, seed=1) == difference(ours[::-1], theirs[::-1], seed=1)


def test_affine_maps():
    ours, theirs = sides(6, 7, shift=0.5)
    plain, _ = pair_test(ours, theirs, seed=1)
    mapped, _ = pair_test(10 + 3 * ours, 10 + 3 * theirs, seed=1)
    assert plain is not None and mapped is not None
    assert mapped.permutation_p == plain.permutation_p
    assert (mapped.t, mapped.welch_p, mapped.hedges_g) == pytest.approx(
        (plain.t, plain.welch_p, plain.hedges_g)
    )
    before, after = (
        difference(*pair, seed=1, resamples=500).iqm
        for pair in ((ours, theirs), (10 + 3 * ours, 10 + 3 * theirs))
    )
    assert before is not None and after is not None
    assert (after.low, after.high) == pytest.approx((3 * before.low, 3 * before.high))
