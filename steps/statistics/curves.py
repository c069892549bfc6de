"""Curves of single runs, and their treatment before runs are averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from config.games import LARGEST_RETURN
from config.measures import Measure
from steps.statistics.scores import Floats

GRID_POINTS = 250
PARTS = 50
"""Of the common steps, in figures: each point is the mean over one of them."""
FEWEST_PARTS = 10
ROWS_OF_A_PART = 4
"""Fewer parts where a part would have fewer rows than this, each the mean of a few episodes only."""
MOST_PARTS = 1000
"""Of a single run that is far longer than the steps that all have."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One run: steps [T] strictly increasing, finite values [T]."""

    steps: NDArray[np.int64]
    values: Floats

    def __len__(self) -> int:
        """The number of points T."""
        return len(self.steps)


def curve(steps: Sequence[float] | Floats, values: Sequence[float] | Floats) -> Curve:
    """Keep the rows with a finite value: a row in which no episode ended has none, which does not
    mean zero.
    """
    heights = np.asarray(values, np.float64)
    kept = np.abs(heights) <= LARGEST_RETURN  # false for NaN, too
    return Curve(steps=np.asarray(steps)[kept].astype(np.int64), values=heights[kept])


def training_curve_of(columns: Mapping[str, Floats], measure: Measure) -> Curve:
    """The curve in the columns of a train.csv; empty if there is none."""
    if not {"step", measure.training_column} <= columns.keys():
        return curve([], [])
    return curve(columns["step"], columns[measure.training_column])


def wall_ms(steps: Floats, resources: Mapping[str, Floats]) -> Floats:
    """When a training reached each of its steps [T], in milliseconds of training, by the samples in
    resources.csv; empty without any. Between two samples the speed is taken to be even.
    """
    if not len(resources.get("step", ())):
        return np.empty(0)
    reached, first = np.unique(resources["step"], return_index=True)
    times = resources["wall_s"][first]
    # The training began at step 0; a sample of step 0 may be taken later than that.
    inner = reached > 0
    known = np.concatenate(([0.0], reached[inner]))
    moments: Floats = np.interp(steps, known, np.concatenate(([0.0], times[inner])))
    return np.round(1000 * moments)


def against_time(one: Curve, resources: Mapping[str, Floats]) -> Curve:
    """The same curve with milliseconds of training in place of environment steps; empty without
    samples of the time.
    """
    moments = wall_ms(one.steps.astype(np.float64), resources)
    if not len(moments):
        return curve([], [])
    # Several rows may fall into one millisecond: the last of them counts.
    last = np.append(np.diff(moments) > 0, True)
    return curve(moments[last], one.values[last])


def common_grid(curves: Sequence[Curve], points: int = GRID_POINTS) -> NDArray[np.int64]:
    """Steps from the largest first to the smallest last of all curves -> [≤ points]; empty when
    they share no range.

    The grid ends with the shortest run: beyond it the mean would change with the set of runs.
    """
    if not curves or any(len(one) == 0 for one in curves):
        return np.empty(0, np.int64)
    first = max(int(one.steps[0]) for one in curves)
    last = min(int(one.steps[-1]) for one in curves)
    if first > last:
        return np.empty(0, np.int64)
    return np.unique(np.linspace(first, last, points).round().astype(np.int64))


def hold(one: Curve, grid: NDArray[np.int64]) -> Floats:
    """The last value at or before each grid step [G] -> [G]; NaN outside of the run's own range.

    Interpolating between two episodes would invent values and look into the future; holding the last
    value beyond the end would make a short run look like a long one.
    """
    held = np.full(len(grid), np.nan)
    if len(one) == 0:
        return held
    inside = (grid >= one.steps[0]) & (grid <= one.steps[-1])
    held[inside] = one.values[np.searchsorted(one.steps, grid[inside], side="right") - 1]
    return held


def area_under_curve(one: Curve, first: int, last: int) -> float:
    """Trapezoids of the run's own points over [first, last], divided by its length: the mean height
    of the curve.

    Both ends must lie in the run's range; a range of one step has the height there.
    """
    if first == last:
        return float(hold(one, np.array([first], np.int64))[0])
    inner = (one.steps > first) & (one.steps < last)
    steps = np.concatenate(([first], one.steps[inner], [last])).astype(np.float64)
    values = np.interp(steps, one.steps, one.values, left=np.nan, right=np.nan)
    return float(np.trapezoid(values, steps)) / (last - first)


def trailing_mean(values: Floats, window: int) -> Floats:
    """Mean of the last `window` existing values [T] -> [T]. There are no edge effects; it lags
    (window − 1) / 2 values behind.
    """
    sums = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    averaged: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return averaged


def equal_parts(curves: Sequence[Curve]) -> NDArray[np.int64]:
    """Edges of equal parts of the steps that all curves have -> [P + 1], P up to PARTS; empty when they
    share no range, one step twice where they share only that one. Curves of few rows have fewer parts, so
    that the value in a part is the mean of several rows.
    """
    ends = common_grid(curves, points=2)
    if len(ends) == 0:
        return ends
    rows = min(_rows_between(one, int(ends[0]), int(ends[-1])) for one in curves)
    parts = min(max(rows // ROWS_OF_A_PART, min(FEWEST_PARTS, rows - 1), 1), PARTS)
    edges = np.unique(np.linspace(ends[0], ends[-1], parts + 1).round().astype(np.int64))
    return edges if len(edges) > 1 else np.repeat(edges, 2)


def _rows_between(one: Curve, first: int, last: int) -> int:
    return int(((one.steps >= first) & (one.steps <= last)).sum())


def mean_of_parts(one: Curve, edges: NDArray[np.int64]) -> Floats:
    """Mean of the curve, as `hold` has it, over each part between two edges [P + 1] -> [P]: the parts
    do not overlap, so every step counts once. NaN for a part that reaches beyond the run.
    """
    starts, ends = edges[:-1].astype(np.float64), edges[1:].astype(np.float64)
    if len(one) == 0:
        return np.full(len(starts), np.nan)
    steps = one.steps.astype(np.float64)
    # The area under the held curve up to each of its points; between them it grows evenly.
    areas = np.concatenate(([0.0], np.cumsum(one.values[:-1] * np.diff(steps))))
    covered = np.interp(ends, steps, areas) - np.interp(starts, steps, areas)
    lengths = ends - starts
    held = hold(one, starts.astype(np.int64))
    means: Floats = np.where(lengths > 0, covered / np.where(lengths > 0, lengths, 1.0), held)
    means[(starts < steps[0]) | (ends > steps[-1])] = np.nan
    return means


def middles(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The middle step of each part, rounded down: [P + 1] -> [P]."""
    return (edges[:-1] + edges[1:]) // 2


def in_parts(one: Curve, edges: NDArray[np.int64]) -> Curve:
    """A run as means of the parts between these edges, each at its middle. Beyond the edges, parts of
    the same length go on as far as the run has whole ones; a run shorter than a part is one part.
    """
    if len(one) < 2:
        return one
    first, last = int(one.steps[0]), int(one.steps[-1])
    length = float(edges[-1] - edges[0]) / (len(edges) - 1)
    if last - first > MOST_PARTS * length:
        return in_parts(one, equal_parts([one]))
    before = edges[0] - length * np.arange(max((edges[0] - first) // length, 0), 0, -1)
    after = edges[-1] + length * np.arange(1, max((last - edges[-1]) // length, 0) + 1)
    whole = np.concatenate([before, edges, after]).round().astype(np.int64)
    own = whole[(whole >= first) & (whole <= last)]
    if len(own) < 2:
        own = np.array([first, last], np.int64)
    return Curve(steps=middles(own), values=mean_of_parts(one, own))
