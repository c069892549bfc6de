"""The formulas against closed forms, slow references and simulations; negative twins show the error
that each rule prevents."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from config.measures import RETURN
from steps.statistics.curves import (
    Curve,
    area_under_curve,
    common_grid,
    curve,
    hold,
    trailing_mean,
    training_curve_of,
)
from steps.statistics.intervals import (
    bootstrap_iqm_interval,
    resample_counts,
    t_interval,
    t_quantile,
)
from steps.statistics.rule import BOOTSTRAP_FROM, INTERVAL_FROM, WIDE_ENOUGH_FROM, aggregate
from steps.statistics.scores import (
    iqm,
    iqm_weights,
    mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    standard_deviation,
    wilson_interval,
)

finite = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
scores = st.lists(finite, min_size=1, max_size=24)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (range(8), 3.5),
        ((1, 3), 2),
        ((7,), 7),
        ((1, 2, 3, 4), 2.5),
        ((0, 1, 100), 52 / 3),
        ((0, 1, 2, 3, 100), 2),
        (range(1, 7), 3.5),
    ],
)
def test_iqm_by_hand(values, expected):
    assert iqm(list(values)) == pytest.approx(expected, abs=1e-12)


def test_trim_mean_is_not_the_iqm_of_three():
    assert stats.trim_mean((0, 1, 100), 0.25) == pytest.approx(101 / 3)


@given(st.lists(finite, min_size=1, max_size=6).flatmap(lambda row: st.permutations(row * 4)))
def test_iqm_equals_trim_mean_where_four_divides(values):
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-12, abs=1e-9)


@given(st.integers(1, 300))
def test_iqm_weights_sum_to_half(count):
    assert iqm_weights(count).sum() == pytest.approx(count / 2, rel=1e-14)


@given(scores)
def test_iqm_against_the_slow_reference(values):
    repeated = sorted(value for value in values for _ in range(4))
    assert iqm(values) == pytest.approx(
        math.fsum(repeated[len(values) : -len(values)]) / (2 * len(values)), rel=1e-12, abs=1e-9
    )


def _t_central(t: float, freedom: int) -> float:
    """P(|T| < t) for whole degrees of freedom (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    angle, odd = math.atan(t / math.sqrt(freedom)), freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range((freedom - odd) // 2):
        total += term
        term *= math.cos(angle) ** 2 * (
            (2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2)
        )
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 7, 9, 19, 50, 255])
def test_t_quantile_against_the_closed_form(freedom):
    assert _t_central(t_quantile(freedom), freedom) == pytest.approx(0.95, rel=1e-12)


@pytest.mark.parametrize(
    ("freedom", "published"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262)]
)
def test_t_quantile_as_printed_in_tables(freedom, published):
    assert t_quantile(freedom) == pytest.approx(published, abs=5e-4)


def test_t_interval_by_hand():
    low, high = t_interval((380.0, 400.0, 420.0))
    assert (low, high) == (pytest.approx(400 - 49.68275), pytest.approx(400 + 49.68275))
    assert standard_deviation((380.0, 400.0, 420.0)) == pytest.approx(20)
    assert np.std((380.0, 400.0, 420.0)) < 16.4, "ddof=0 is what this is not"


def test_equal_values_have_an_interval_of_no_width():
    assert t_interval((3.0, 3.0, 3.0)) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [(8, 10, (0.49016, 0.94332)), (95, 100, (0.88825, 0.97846)), (0, 20, (0, 0.16113))],
)
def test_wilson(successes, trials, expected):
    assert wilson_interval(successes, trials) == pytest.approx(expected, abs=1e-5)


def test_wilson_stays_a_proportion_whatever_the_rounding():
    for trials in range(1, 200):
        assert wilson_interval(trials, trials)[1] <= 1 and wilson_interval(0, trials)[0] >= 0


def test_probability_of_improvement_by_hand():
    assert probability_of_improvement((1, 2, 2, 5), (2, 2, 3)) == pytest.approx(5 / 12)


@given(scores, scores)
def test_probabilities_of_improvement_are_complementary(ours, theirs):
    assert probability_of_improvement(ours, theirs) + probability_of_improvement(
        theirs, ours
    ) == pytest.approx(1)
    assert probability_of_improvement(ours, ours) == 0.5


def test_optimality_gap_of_a_constant():
    assert optimality_gap([0.3] * 5) == pytest.approx(0.7)
    assert optimality_gap([5.0, 0.0]) == 0.5, "what exceeds the target does not help"


@given(
    st.lists(st.floats(0, 2), min_size=1, max_size=20),
    st.lists(st.floats(0, 2), min_size=1, max_size=20),
)
def test_profile_against_the_slow_reference(values, thresholds):
    slow = [sum(value > threshold for value in values) / len(values) for threshold in thresholds]
    assert performance_profile(values, thresholds) == pytest.approx(slow)


def test_area_under_the_profile_is_the_mean_of_the_clipped_scores():
    thresholds = (np.arange(100_000) + 0.5) / 100_000
    assert performance_profile([0.2, 0.5, 3.0], thresholds).mean() == pytest.approx(
        (0.2 + 0.5 + 1) / 3, abs=1e-5
    )


def test_sd_of_unit_noise_around_a_billion():
    values = (1e9 + np.random.default_rng(1).normal(size=1000)).tolist()
    exact = [Fraction(value) for value in values]
    centre = sum(exact) / 1000
    variance = float(sum((value - centre) ** 2 for value in exact) / 999)
    assert standard_deviation(values) ** 2 == pytest.approx(variance, rel=1e-7)
    squares = np.mean(np.square(values)) - np.mean(values) ** 2
    assert abs(squares - variance) > 0.5, "the textbook's shortcut loses every digit"


def _exponential(last: int) -> Curve:
    steps = np.arange(0, last + 1, 1000)
    return Curve(steps=steps, values=1 - np.exp(-steps / 3e5))


def test_runs_of_different_length_share_one_true_curve():
    curves = [_exponential(500_000), _exponential(1_000_000)]
    grid = common_grid(curves, 501)
    assert (grid[0], grid[-1]) == (0, 500_000)
    averaged = np.mean([hold(one, grid) for one in curves], axis=0)
    assert np.abs(averaged - (1 - np.exp(-grid / 3e5))).max() < 1e-12


def test_negative_averaging_by_index_bends_the_curve():
    short, long = _exponential(500_000), _exponential(1_000_000)
    stretched = [
        np.interp(np.linspace(0, 1, 501), np.linspace(0, 1, len(one)), one.values)
        for one in (short, long)
    ]
    by_index = np.mean(stretched, axis=0)
    at = int(500 * 2 / 3)
    assert abs(by_index[at] - (1 - math.exp(-at / 500 * 1e6 / 3e5))) > 0.1


def test_negative_interpolation_past_the_end_holds_the_last_value():
    short = _exponential(500_000)
    grid = np.array([500_000, 1_000_000])
    assert np.interp(grid, short.steps, short.values)[1] == short.values[-1]
    assert np.isnan(hold(short, grid)[1])


def test_hold_is_a_step_function_with_nothing_outside():
    held = hold(curve([10, 20, 30], [1.0, math.nan, 3.0]), np.array([5, 10, 29, 30, 31]))
    np.testing.assert_array_equal(held, [math.nan, 1, 1, 3, math.nan])
    at_once = hold(curve([7], [2.0]), np.array([6, 7, 8]))
    np.testing.assert_array_equal(at_once, [math.nan, 2, math.nan])
    np.testing.assert_array_equal(hold(curve([], []), np.array([6, 7])), [math.nan, math.nan])


def test_area_under_the_curve_by_hand():
    one = curve([0, 5, 10], [0.0, 1.0, 1.0])
    assert area_under_curve(one, 0, 10) == 0.75
    assert area_under_curve(one, 5, 10) == 1.0
    assert area_under_curve(one, 5, 5) == 1.0
    assert area_under_curve(one, 0, 3) == pytest.approx(0.3)
    assert math.isnan(area_under_curve(one, -1, 10)) and math.isnan(area_under_curve(one, 0, 11))


def test_a_training_s_curve_is_its_mean_return_over_steps():
    columns = {"step": np.array([5.0, 9, 12]), "return_mean": np.array([1.0, math.nan, 3])}
    found = training_curve_of(columns | {"epoch": np.arange(3.0)}, RETURN)
    assert (found.steps.tolist(), found.values.tolist()) == ([5, 12], [1, 3])
    assert len(training_curve_of({"step": columns["step"]}, RETURN)) == 0
    assert len(training_curve_of({}, RETURN)) == 0


def test_trailing_mean_has_no_edges():
    assert trailing_mean(np.ones(8), 5) == pytest.approx(1)
    assert trailing_mean(np.array([1.0, 2, 3, 4]), 2).tolist() == [1, 1.5, 2.5, 3.5]
    assert np.convolve(np.ones(8), np.full(5, 0.2), "same")[0] == pytest.approx(0.6), (
        "what this is not"
    )


def test_common_grid_of_nothing_and_of_strangers_is_empty():
    assert len(common_grid([])) == 0
    assert len(common_grid([curve([1, 2], [0.0, 0.0]), curve([5, 6], [0.0, 0.0])])) == 0
    assert len(common_grid([curve([1, 2], [0.0, 0.0]), curve([1], [math.nan])])) == 0
    assert common_grid([curve([7], [0.0])]).tolist() == [7]


def test_grid_has_at_most_250_whole_steps():
    grid = common_grid([_exponential(500_000)])
    assert len(grid) == 250
    assert np.all(np.diff(grid) > 0)


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 6, 9, 10, 20])
def test_the_rule_by_number_of_runs(runs):
    values = np.random.default_rng(runs).normal(size=(runs, 3))
    result = aggregate(values, seed=1, resamples=200)
    assert result.n == runs
    assert (result.low is not None) == (runs >= 2)
    assert (result.iqm is not None) == (result.iqm_low is not None) == (runs >= 5)
    if result.low is not None and result.high is not None:
        assert np.all((result.low < result.mean) & (result.mean < result.high))


def test_bootstrap_intervals_are_wide_enough_from_ten_runs_on():
    """Coverage .90 at 5 runs, .95 at 10; below 5 there is none, below 2 no interval at all."""
    assert (INTERVAL_FROM, BOOTSTRAP_FROM, WIDE_ENOUGH_FROM) == (2, 5, 10)


@pytest.mark.parametrize("runs", [1, 4, 6])
def test_every_column_is_aggregated_by_itself(runs):
    values = np.random.default_rng(runs).normal(size=(runs, 3))
    result = aggregate(values, seed=1, resamples=200)
    for at, column in enumerate(values.T):
        assert (result.minimum[at], result.maximum[at]) == (column.min(), column.max())
        assert result.median is not None and result.median[at] == np.median(column)
        assert result.mean[at] == mean(column)
        if runs >= 2:
            assert result.sd is not None and result.low is not None and result.high is not None
            assert result.sd[at] == pytest.approx(column.std(ddof=1), rel=1e-12)
            assert (result.low[at], result.high[at]) == t_interval(column)
        if runs >= 5:
            assert result.iqm is not None and result.iqm[at] == iqm(column)
            low, high = bootstrap_iqm_interval(values, resample_counts(runs, 200, seed=1))
            assert result.iqm_low is not None and result.iqm_low.tolist() == low.tolist()
            assert result.iqm_high is not None and result.iqm_high.tolist() == high.tolist()


@pytest.mark.parametrize("runs", [3, 7])
def test_no_order_of_the_runs_matters(runs):
    values = np.random.default_rng(0).normal(size=(runs, 4)) * 1e3
    straight, reversed_ = (
        aggregate(values, seed=3, resamples=300),
        aggregate(values[::-1], seed=3, resamples=300),
    )
    for name in ("mean", "sd", "low", "high", "iqm", "iqm_low", "iqm_high", "median"):
        first, second = getattr(straight, name), getattr(reversed_, name)
        assert (first is None and second is None) or first.tolist() == second.tolist()


def test_an_affine_map_of_the_returns_maps_every_interval():
    values = np.random.default_rng(0).normal(size=(8, 2))
    plain, mapped = (
        aggregate(values, seed=3, resamples=300),
        aggregate(200 + 50 * values, seed=3, resamples=300),
    )
    for name in (
        "mean",
        "low",
        "high",
        "iqm",
        "iqm_low",
        "iqm_high",
        "median",
        "minimum",
        "maximum",
    ):
        assert getattr(mapped, name) == pytest.approx(200 + 50 * getattr(plain, name), rel=1e-12)


def test_bootstrap_equals_building_every_resample():
    values = np.random.default_rng(2).normal(size=(6, 2)).round(1)
    values = values[np.lexsort(values.T[::-1])]
    counts = resample_counts(6, 50, seed=9)
    slow = [[iqm(np.repeat(column, row)) for row in counts] for column in values.T]
    low, high = bootstrap_iqm_interval(values, counts)
    assert low == pytest.approx(np.quantile(slow, 0.025, axis=1))
    assert high == pytest.approx(np.quantile(slow, 0.975, axis=1))


def test_curves_use_the_first_resamples_of_the_table():
    np.testing.assert_array_equal(
        resample_counts(5, 20, seed=4), resample_counts(5, 200, seed=4)[:20]
    )


def test_resampling_steps_instead_of_runs_would_be_far_too_sure():
    generator = np.random.default_rng(5)
    values = generator.normal(size=(10, 1)) + np.zeros((1, 100))
    low, high = bootstrap_iqm_interval(
        values.mean(axis=1, keepdims=True), resample_counts(10, 2000, seed=1)
    )
    each = [
        np.mean([iqm(generator.choice(values[:, at], 10)) for at in range(100)]) for _ in range(200)
    ]
    assert high[0] - low[0] > 5 * (np.quantile(each, 0.975) - np.quantile(each, 0.025))


def test_coverage_is_the_reason_for_the_rule():
    def coverage(runs: int, statistic: str) -> float:
        values = np.random.default_rng(runs).normal(size=(runs, 1000))
        if statistic == "t":
            low, high = np.array([t_interval(column) for column in values.T]).T
        else:
            low, high = bootstrap_iqm_interval(values, resample_counts(runs, 2000, seed=1))
        return float(np.mean((low <= 0) & (high >= 0)))

    assert 0.90 <= coverage(10, "iqm") <= 0.98
    assert coverage(3, "iqm") < 0.85
    assert 0.93 <= coverage(3, "t") <= 0.97


@given(scores)
def test_the_mean_is_exact(values):
    assert mean(values) == float(
        sum((Fraction(value) for value in values), Fraction(0)) / len(values)
    ) or mean(values) == pytest.approx(
        float(sum((Fraction(value) for value in values), Fraction(0)) / len(values)), rel=1e-15
    )
