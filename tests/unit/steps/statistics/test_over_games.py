"""Aggregates, profiles and curves over games, against rliable's definitions, slow loops and
simulations with known truth."""

from __future__ import annotations

import math
from dataclasses import asdict, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steps.statistics.intervals import (
    BLOCK,
    TAILS,
    combined_t_interval,
    stratified_counts,
    t_interval,
)
from steps.statistics.over_games import aggregates, curve_over_games, improvement, profile
from steps.statistics.rule import (
    BOOTSTRAP_FROM,
    MANY_GAMES,
    STRATIFIED_FROM,
    aggregate,
    why_no_bootstrap,
)
from steps.statistics.scores import iqm

SLOW_RESAMPLES = 1_500
NOISE = 0.3
"""Of a 2.5 % point of so few resamples, in their standard deviations: four standard errors."""
THRESHOLDS = np.linspace(-0.5, 2.5, 61)
NAMES = ["iqm", "median", "mean", "optimality_gap"]


def drawn(*sizes: int, seed: int = 0) -> list[np.ndarray]:
    """Scores of games of different difficulty."""
    generator = np.random.default_rng(seed)
    return [0.3 * game + 0.4 * generator.standard_normal(size) for game, size in enumerate(sizes)]


def loop(scores: list[np.ndarray], statistic, seed: int, resamples: int) -> np.ndarray:
    """A plain bootstrap: every resample is built."""
    generator = np.random.default_rng(seed)
    return np.array(
        [
            statistic([generator.choice(game, len(game)) for game in scores])
            for _ in range(resamples)
        ]
    )


def slow_iqm(scores: list[np.ndarray]) -> float:
    """Every run repeated until every game has as many values, which four divides."""
    most = 4 * math.lcm(*map(len, scores))
    values = np.sort(np.concatenate([np.repeat(game, most // len(game)) for game in scores]))
    cut = len(values) // 4
    return float(values[cut:-cut].mean())


SLOW = {
    "iqm": slow_iqm,
    "median": lambda scores: np.median([game.mean() for game in scores]),
    "mean": lambda scores: np.mean([game.mean() for game in scores]),
    "optimality_gap": lambda scores: np.mean([np.maximum(1 - game, 0).mean() for game in scores]),
}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 100))
def test_aggregates_against_slow_references(sizes, seed):
    scores = drawn(*sizes, seed=seed)
    found = aggregates(scores, seed=1, resamples=10)
    for name in NAMES:
        assert getattr(found, name).value == pytest.approx(SLOW[name](scores), abs=1e-12)


@pytest.mark.parametrize("shape", [(4, 26), (8, 3), (2, 6)])
def test_the_iqm_is_scipy_s_where_four_divides_the_scores(shape):
    matrix = np.random.default_rng(3).normal(size=shape)
    found = aggregates(list(matrix.T), seed=1, resamples=10).iqm.value
    assert found == pytest.approx(stats.trim_mean(matrix, 0.25, axis=None), abs=1e-12)


def test_equal_to_rliable():
    metrics = pytest.importorskip("rliable.metrics", reason="rliable is not installed")
    ours, theirs = np.random.default_rng(5).normal(0.7, 0.5, size=(2, 8, 13)).round(1)
    found = aggregates(list(ours.T), seed=1, resamples=10)
    assert found.iqm.value == pytest.approx(metrics.aggregate_iqm(ours), abs=1e-9)
    assert found.median.value == pytest.approx(metrics.aggregate_median(ours), abs=1e-9)
    assert found.mean.value == pytest.approx(metrics.aggregate_mean(ours), abs=1e-9)
    assert found.optimality_gap.value == pytest.approx(
        metrics.aggregate_optimality_gap(ours), abs=1e-9
    )
    better = improvement(list(ours.T), list(theirs.T), seed=1, resamples=10).value
    assert better == pytest.approx(metrics.probability_of_improvement(ours, theirs), abs=1e-9)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 100))
def test_profile_and_improvement_against_slow_references(sizes, seed):
    ours = [game.round(1) for game in drawn(*sizes, seed=seed)]
    theirs = [game.round(1) for game in drawn(*sizes[::-1], seed=seed + 1)]
    shares = [np.mean([np.mean(game > threshold) for game in ours]) for threshold in THRESHOLDS]
    assert profile(ours, THRESHOLDS, seed=1, resamples=10).values == pytest.approx(shares, abs=1e-9)
    wins = [
        np.mean([(x > y) + (x == y) / 2 for x in first for y in second])
        for first, second in zip(ours, theirs, strict=True)
    ]
    found = improvement(ours, theirs, seed=1, resamples=10)
    back = improvement(theirs, ours, seed=1, resamples=10)
    assert found.value == pytest.approx(np.mean(wins), abs=1e-9)
    assert found.value + back.value == pytest.approx(1)
    assert improvement(ours, ours, seed=1, resamples=10).value == 0.5


@pytest.mark.parametrize("sizes", [(5,) * 4, (5, 6, 9)])
def test_interval_ends_are_those_of_a_plain_loop(sizes):
    scores = drawn(*sizes)
    found = aggregates(scores, seed=1, resamples=20_000)
    for name in NAMES:
        slow = loop(scores, SLOW[name], seed=2, resamples=SLOW_RESAMPLES)
        estimate = getattr(found, name)
        low, high = np.quantile(slow, TAILS)
        assert estimate.low == pytest.approx(low, abs=NOISE * slow.std()), name
        assert estimate.high == pytest.approx(high, abs=NOISE * slow.std()), name
        assert estimate.kind == "stratified bootstrap" and not estimate.reason


def test_bands_are_those_of_a_plain_loop():
    scores = drawn(5, 7, 6)
    band = profile(scores, THRESHOLDS, seed=1)
    slow = loop(
        scores,
        lambda drawn: np.mean(
            [(game[:, None] > THRESHOLDS).mean(axis=0) for game in drawn], axis=0
        ),
        seed=2,
        resamples=2_000,
    )
    low, high = np.quantile(slow, TAILS, axis=0)
    # Shares of 5 and 7 runs are steps of a few hundredths.
    assert np.abs(band.low - low).max() < 0.04 and np.abs(band.high - high).max() < 0.04
    assert np.all((band.low <= band.values) & (band.values <= band.high))


def test_the_interval_of_improvement_is_that_of_a_plain_loop():
    ours, theirs = drawn(6, 8, 5), drawn(7, 5, 9, seed=1)
    found = improvement(ours, theirs, seed=1)
    generator = np.random.default_rng(2)
    slow = [
        np.mean(
            [
                np.mean(
                    generator.choice(first, len(first))[:, None]
                    > generator.choice(second, len(second))
                )
                for first, second in zip(ours, theirs, strict=True)
            ]
        )
        for _ in range(SLOW_RESAMPLES)
    ]
    assert (found.low, found.high) == pytest.approx(
        tuple(np.quantile(slow, TAILS)), abs=NOISE * np.std(slow)
    )


def test_both_sides_are_resampled_independently():
    """With one stream for both, the difference of a set and itself would never vary."""
    scores = drawn(6, 6, 6)
    found = improvement(scores, scores, seed=1)
    assert found.low < 0.4 and found.high > 0.6


def test_separated_sides_have_no_interval():
    found = improvement(drawn(5, 5), [game - 10 for game in drawn(5, 5)], seed=1)
    assert found.value == 1 and found.low is None and "overlap" in found.reason


def test_a_curve_over_one_game_is_that_of_the_experiment():
    curves = np.random.default_rng(1).normal(size=(7, 9)).cumsum(axis=1)
    band = curve_over_games([curves], seed=4)
    experiment = aggregate(curves, seed=4, resamples=2_000)
    assert band.values == pytest.approx(experiment.iqm)
    assert band.low == pytest.approx(experiment.iqm_low)
    assert band.high == pytest.approx(experiment.iqm_high)


def test_every_point_of_a_curve_is_an_aggregate():
    curves = [np.stack([game, game[::-1], game**2], axis=1) for game in drawn(5, 8, 6)]
    band = curve_over_games(curves, seed=1)
    for point in range(3):
        column = [game[:, point] for game in curves]
        found = aggregates(column, seed=1).iqm
        assert band.values[point] == pytest.approx(found.value)
        assert (band.low[point], band.high[point]) == pytest.approx(
            (found.low, found.high), abs=0.05
        )


def test_a_game_with_more_runs_counts_no_more():
    """Pooling the runs would give .1 · 0 + .9 · 1."""
    few, many = np.zeros(5), np.ones(45)
    found = aggregates([few, many], seed=1, resamples=100)
    assert (found.mean.value, found.iqm.value, found.optimality_gap.value) == (0.5, 0.5, 0.5)
    assert (found.mean.low, found.mean.high) == (0.5, 0.5)
    assert profile([few, many], np.array([0.5]), seed=1).values == [0.5]


@pytest.mark.parametrize("sizes", [(6,) * 3, (5, 6, 9)])
def test_no_order_of_the_runs_matters(sizes):
    scores = [game.round(1) for game in drawn(*sizes)]
    other = [game.round(1) for game in drawn(*sizes, seed=1)]
    back = [game[::-1] for game in scores]
    assert aggregates(scores, seed=1, resamples=300) == aggregates(back, seed=1, resamples=300)
    assert improvement(scores, other, seed=1, resamples=300) == improvement(
        back, other[:], seed=1, resamples=300
    )
    first, second = (profile(runs, THRESHOLDS, seed=1) for runs in (scores, back))
    np.testing.assert_equal(asdict(first), asdict(second))
    curves = [np.stack([game, game**2], axis=1) for game in scores]
    first, second = (
        curve_over_games(runs, seed=1) for runs in (curves, [game[::-1] for game in curves])
    )
    np.testing.assert_equal(asdict(first), asdict(second))


def test_an_affine_map_of_the_scores_maps_every_interval():
    scores = drawn(5, 6, 7)
    plain = aggregates(scores, seed=1, resamples=500)
    mapped = aggregates([3 + 50 * game for game in scores], seed=1, resamples=500)
    for name in ("iqm", "median", "mean"):
        for part in ("value", "low", "high"):
            before, after = (
                getattr(getattr(plain, name), part),
                getattr(getattr(mapped, name), part),
            )
            assert after == pytest.approx(3 + 50 * before)


def test_fewer_resamples_are_the_first_of_more_and_blocks_do_not_show():
    few, many = (
        np.concatenate(list(stratified_counts([3, 5], number, np.random.default_rng(1))))
        for number in (7, BLOCK + 7)
    )
    assert few.tolist() == many[:7].tolist() and len(many) == BLOCK + 7
    assert np.all(many[:, :3].sum(axis=1) == 3) and np.all(many[:, 3:].sum(axis=1) == 5)


@pytest.mark.parametrize(
    ("sizes", "allowed"),
    [
        ([4], False),
        ([5], True),
        ([4] * (MANY_GAMES - 1), False),
        ([5] * (MANY_GAMES - 1), True),
        ([3] * MANY_GAMES, True),
        ([3] * (MANY_GAMES - 1) + [2], False),
    ],
)
def test_the_rule_of_the_stratified_bootstrap(sizes, allowed):
    assert (MANY_GAMES, STRATIFIED_FROM, BOOTSTRAP_FROM) == (10, 3, 5)
    assert (why_no_bootstrap(sizes) == "") == allowed
    scores = drawn(*sizes)
    found = aggregates(scores, seed=1, resamples=50)
    bands = [
        profile(scores, THRESHOLDS, seed=1, resamples=50),
        curve_over_games([game[:, None] for game in scores], seed=1, resamples=50),
        improvement(scores, drawn(*sizes, seed=1), seed=1, resamples=50),
        found.iqm,
    ]
    for estimate in bands:
        assert (estimate.low is not None) == (estimate.high is not None) == allowed
        assert bool(estimate.reason) != allowed
    assert found.mean.low is not None, "by t where the bootstrap is too narrow"


def test_one_run_has_no_interval_at_all():
    found = aggregates([np.array([0.3])], seed=1)
    for field in fields(found):
        estimate = getattr(found, field.name)
        assert estimate.low is None and "1 runs" in estimate.reason
    assert (found.mean.value, found.iqm.value, found.optimality_gap.value) == (0.3, 0.3, 0.7)


@pytest.mark.parametrize("runs", [2, 3, 4, 5, 12])
def test_the_mean_over_one_game_has_student_s_interval(runs):
    (scores,) = drawn(runs)
    found = aggregates([scores], seed=1, resamples=50)
    assert found.mean == found.median and found.mean.kind == "t"
    assert (found.mean.low, found.mean.high) == pytest.approx(t_interval(scores))
    clipped = np.minimum(scores, 1)
    low, high = t_interval(clipped)
    gap = found.optimality_gap
    assert (gap.low, gap.high) == pytest.approx((1 - high, 1 - low)) and gap.kind == "t"


def test_equal_runs_have_intervals_of_no_width():
    found = aggregates([np.full(5, 0.25), np.full(6, 0.25)], seed=1, resamples=100)
    for field in fields(found):
        estimate = getattr(found, field.name)
        assert estimate.low == estimate.high == estimate.value


def test_welch_s_interval_of_a_difference_by_hand():
    """s² / n are 1/3 and 4/3: freedom (5/3)² / (1/18 + 16/18) = 50/17."""
    low, high = combined_t_interval([np.array([1.0, 2, 3]), np.array([0.0, 2, 4])], [1, -1])
    half = stats.t.ppf(0.975, 50 / 17) * math.sqrt(5 / 3)
    assert (low, high) == pytest.approx((-half, half))


def test_student_s_interval_over_games_covers_with_three_runs_each():
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(1_000):
        scores = [generator.normal(0, 1 + game, 3) for game in range(4)]
        mean = aggregates(scores, seed=1).mean
        hits += mean.low <= 0 <= mean.high
    assert 0.93 <= hits / 1_000 <= 0.985


def test_iqm_of_one_game_is_the_iqm():
    (scores,) = drawn(7)
    assert aggregates([scores], seed=1, resamples=10).iqm.value == iqm(scores)
