"""The smoothing of curves for figures, against a slow reference and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from steps.statistics.curves import common_grid, curve, hold, mean_of_last_steps, trailing_window


def slow(one, at: int, window: int) -> float:
    """The mean of the held value at every single step of the window."""
    first = max(at - window, int(one.steps[0]))
    if first == at:
        return float(hold(one, np.array([at]))[0])
    return float(np.mean(hold(one, np.arange(first, at))))


@pytest.mark.parametrize("window", [1, 7, 40, 1000])
def test_it_is_the_mean_over_all_steps_of_the_window(window):
    generator = np.random.default_rng(2)
    steps = np.cumsum(generator.integers(1, 30, 25))
    one = curve(steps, generator.normal(size=25))
    grid = np.arange(steps[0], steps[-1] + 1)
    expected = [slow(one, int(at), window) for at in grid]
    assert mean_of_last_steps(one, grid, window) == pytest.approx(expected)


def test_a_rising_line_lags_half_a_window_and_a_constant_does_not():
    steps = np.arange(0, 10_001)
    line = mean_of_last_steps(curve(steps, steps * 1.0), np.array([5000, 10_000]), 1000)
    assert line == pytest.approx([4500, 9500], abs=1)
    same = mean_of_last_steps(curve(steps, np.full(len(steps), 3.0)), steps, 777)
    assert same == pytest.approx(3.0)


def test_there_is_nothing_outside_of_a_run_and_no_smoothing_without_a_window():
    one = curve([10, 20, 30], [1.0, 2.0, 4.0])
    grid = np.array([0, 10, 25, 30, 31])
    averaged = mean_of_last_steps(one, grid, 10)
    assert np.isnan(averaged[[0, 4]]).all()
    assert averaged[1:4] == pytest.approx([1.0, 1.5, 2.0])
    assert mean_of_last_steps(one, grid[1:4], 0).tolist() == [1, 2, 4]
    assert np.isnan(mean_of_last_steps(curve([], []), grid, 10)).all()


@pytest.mark.parametrize(
    ("rows", "share"), [(10, 0.1), (100, 0.08), (160, 0.05), (1000, 0.05), (2, 0.1)]
)
def test_few_rows_are_smoothed_over_more_steps(rows, share):
    steps = np.linspace(1000, 101_000, rows)
    window = trailing_window([curve(steps, steps)])
    assert window == pytest.approx(share * 100_000, rel=0.05)


def test_curves_of_one_point_have_no_window():
    assert trailing_window([curve([5], [1.0])]) == 0
    assert len(common_grid([curve([5], [1.0])])) == 1
