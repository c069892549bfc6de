"""Curves as means over equal parts of their steps, against a slow reference and closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from steps.statistics.curves import (
    MOST_PARTS,
    PARTS,
    curve,
    equal_parts,
    hold,
    in_parts,
    mean_of_parts,
    middles,
)


def noisy(rows: int, seed: int = 2):
    generator = np.random.default_rng(seed)
    return curve(np.cumsum(generator.integers(1, 30, rows)), generator.normal(size=rows))


def slow(one, start: int, end: int) -> float:
    """The mean of the held value over every single step of a part."""
    return float(np.mean(hold(one, np.arange(start, end))))


def test_a_value_is_the_mean_over_all_steps_of_its_part_and_of_no_other():
    one = noisy(400)
    edges = equal_parts([one])
    assert len(edges) == PARTS + 1
    assert (edges[0], edges[-1]) == (one.steps[0], one.steps[-1])
    assert np.ptp(np.diff(edges)) <= 1, "equal parts"
    expected = [slow(one, start, end) for start, end in itertools.pairwise(edges)]
    assert mean_of_parts(one, edges) == pytest.approx(expected)
    changed = one.values.copy()
    changed[one.steps >= edges[20]] = 7.0
    assert (
        mean_of_parts(curve(one.steps, changed), edges)[:20] == mean_of_parts(one, edges)[:20]
    ).all()


def test_a_rising_line_does_not_lag():
    steps = np.arange(0, 10_001)
    one = curve(steps, steps * 1.0)
    edges = equal_parts([one])
    assert mean_of_parts(one, edges) == pytest.approx(middles(edges), abs=1)


def test_parts_are_of_the_steps_that_all_have():
    long, short = noisy(900, 3), noisy(400, 4)
    edges = equal_parts([long, short])
    assert edges[0] == max(long.steps[0], short.steps[0])
    assert edges[-1] == short.steps[-1]
    assert np.isfinite(mean_of_parts(long, edges)).all()
    beyond = np.array([edges[0] - 50, edges[0], edges[-1], edges[-1] + 1])
    assert np.isnan(mean_of_parts(short, beyond)).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("rows", "parts"), [(1, 1), (2, 1), (3, 2), (8, 7), (30, 10), (100, 25), (200, 50), (999, 50)]
)
def test_few_rows_have_fewer_parts(rows, parts):
    steps = np.linspace(1000, 101_000, rows)
    edges = equal_parts([curve(steps, steps), curve(np.arange(1000, 101_001), np.zeros(100_001))])
    assert len(edges) - 1 == parts


def test_curves_without_common_steps_have_no_parts():
    assert len(equal_parts([])) == 0
    assert len(equal_parts([curve([1, 2], [0, 0]), curve([5, 6], [0, 0])])) == 0
    assert len(equal_parts([noisy(9), curve([], [])])) == 0
    assert np.isnan(mean_of_parts(curve([], []), np.array([0, 5]))).all()


def test_one_common_step_is_a_point():
    one = curve([1, 5, 9], [1.0, 2.0, 3.0])
    edges = equal_parts([one, curve([5], [4.0])])
    assert edges.tolist() == [5, 5]
    assert mean_of_parts(one, edges) == [2.0]
    assert in_parts(one, edges).values.tolist() == [1.0, 2.0], "in parts of its own"


def test_a_longer_run_goes_on_in_parts_of_the_same_length():
    long = noisy(900, 3)
    inner = curve(long.steps[300:700], long.values[300:700])
    edges = equal_parts([long, inner])
    whole = in_parts(long, edges)
    common = np.isin(whole.steps, middles(edges))
    assert common.sum() == PARTS
    assert whole.values[common] == pytest.approx(mean_of_parts(long, edges))
    assert np.ptp(np.diff(whole.steps)) <= 2
    length = np.diff(edges).mean()
    for end, of_run in ((whole.steps[0], long.steps[0]), (whole.steps[-1], long.steps[-1])):
        assert abs(end - of_run) <= 1.5 * length + 1


def test_a_run_outside_or_shorter_than_a_part_is_shown():
    edges = np.arange(1000, 6001, 100)
    early = in_parts(curve([100, 160, 500], [1.0, 2.0, 3.0]), edges)
    assert early.steps.tolist() == [150, 250, 350, 450]
    assert early.values == pytest.approx([1.4, 2, 2, 2]), "the first 60 of its first 100 steps: 1"
    tiny = in_parts(curve([1210, 1220], [4.0, 6.0]), edges)
    assert (tiny.steps.tolist(), tiny.values.tolist()) == ([1215], [4.0])
    single = curve([1210], [4.0])
    assert in_parts(single, edges) is single


def test_a_run_is_not_drawn_in_a_million_parts():
    steps = np.arange(0, 1_000_000, 100)
    assert len(in_parts(curve(steps, steps), np.array([500, 501, 502]))) <= MOST_PARTS
