"""Learning curves of all labels, a small panel for each game."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from config.numbers import duration, short
from steps.comparison.compared import Averaged, Comparison, Standing
from steps.figures.averaged_runs import shown
from steps.figures.labelled import (
    Mark,
    Texts,
    band_alpha,
    few_numbers,
    line_handle,
    line_width,
    marks,
    runs_of,
    sheet,
)
from steps.figures.scores_per_game import panel_title
from steps.figures.style import steps_axis, time_axis
from steps.statistics.curves import Curve, common_grid, mean_of_last_steps, trailing_window
from steps.statistics.intervals import CURVE_RESAMPLES
from steps.statistics.rule import BOOTSTRAP_FROM, aggregate
from steps.statistics.scores import Floats

COLUMNS = 3
PANEL_IN = {1: 2.9, 2: 2.1}
"""Number of panels -> their height, where there is room for more."""
POINTS = 120
"""Of a curve: a panel is some 300 pixels wide."""
SEED = 20_211_021
"""Of the bootstrap's generator, for curves that exist only in figures."""
ALIKE = 1.02
"""Ends of curves whose ratio is below this share their x axis."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """What is drawn of one label on one game. singles: runs, each by itself."""

    label: str
    at: Floats
    centre: Floats
    low: Floats | None
    high: Floats | None
    singles: Sequence[tuple[Floats, Floats]]
    count: int
    planned: int


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One of the figures. of: the curves that it shows; smoothed: whether each run is."""

    title: str
    of: Callable[[Standing], Averaged | None]
    over_time: bool = False
    smoothed: bool = True

    @property
    def against(self) -> str:
        """What is on the x axis."""
        return "time of training" if self.over_time else "environment steps"


def against_steps(comparison: Comparison) -> Figure | None:
    """Returns of training episodes against environment steps; None without any curve."""
    kind = _Kind(title="Learning curves", of=lambda standing: standing.training)
    return _curves(comparison, kind)


def against_hours(comparison: Comparison) -> Figure | None:
    """The same against the time of the training."""
    title = "Learning curves over time"
    return _curves(
        comparison, _Kind(title=title, of=lambda standing: standing.hours, over_time=True)
    )


def of_evaluations(comparison: Comparison) -> Figure | None:
    """Returns of evaluations in the course of the training against environment steps."""
    title = "Evaluation curves"
    return _curves(
        comparison, _Kind(title=title, of=lambda standing: standing.policy, smoothed=False)
    )


def _curves(comparison: Comparison, kind: _Kind) -> Figure | None:
    panels: dict[str, list[_Line]] = {}
    windows: dict[str, int] = {}
    for game in comparison.games:
        found = _of_game(comparison, game, kind.of)
        windows[game] = _window(found) if kind.smoothed else 0
        if found:
            panels[game] = [
                _smoothed_line(standing, curves, windows[game])
                if kind.smoothed
                else _line(standing, curves)
                for standing, curves in found
            ]
    if not panels:
        return None
    present = [
        label
        for label in comparison.labels
        if any(line.label == label for lines in panels.values() for line in lines)
    ]
    each = {label: mark for label, mark in marks(comparison.labels).items() if label in present}
    ends = [max(line.at[-1] for line in lines) for lines in panels.values()]
    own_x = max(ends) > ALIKE * min(ends)
    figure, all_axes = sheet(
        Texts(
            title=kind.title,
            subtitle=_subtitle(comparison, list(panels), kind),
            caption=_caption(panels, windows, kind),
        ),
        len(panels),
        columns=2 if len(panels) == 4 else COLUMNS,
        panel_in=PANEL_IN.get(len(panels), 1.3),
        handles={label: line_handle(mark) for label, mark in each.items()},
        own_x=own_x or kind.over_time,
        x_label=kind.against,
    )
    for axes, (game, lines) in zip(all_axes, panels.items(), strict=True):
        axes.set_title(panel_title(comparison, game))
        for line in lines:
            _draw(axes, line, each[line.label], len(present))
        few_numbers(axes.yaxis, 4)
        _x_axis(axes, max(ends), over_time=kind.over_time, narrow=len(panels) > 1)
        if not own_x:
            axes.set_xlim(0, 1.01 * max(ends))
    return figure


def _of_game(
    comparison: Comparison, game: str, of: Callable[[Standing], Averaged | None]
) -> list[tuple[Standing, Averaged]]:
    """The labels on this game, with their curves; those with a point in common."""
    found = []
    for label in comparison.labels:
        standing = comparison.standings.get((label, game))
        curves = None if standing is None else of(standing)
        if standing is not None and curves is not None and len(common_grid(curves.runs)):
            found.append((standing, curves))
    return found


def _window(found: Sequence[tuple[Standing, Averaged]]) -> int:
    """One window for all runs of a panel, so that all labels are treated alike."""
    runs = [run for _, curves in found for run in curves.runs]
    return trailing_window(runs) if runs else 0


def _line(standing: Standing, curves: Averaged) -> _Line:
    """The average as it was computed, by the rule of the number of runs."""
    count = len(curves.runs)
    few = count < BOOTSTRAP_FROM
    singles = [(one.steps.astype(np.float64), one.values) for one in curves.runs]
    return _Line(
        label=standing.label,
        at=curves.grid,
        centre=curves.band.values,
        low=None if few else curves.band.low,
        high=None if few else curves.band.high,
        singles=singles if few and count > 1 else [],
        count=count,
        planned=standing.planned,
    )


def _smoothed_line(standing: Standing, curves: Averaged, window: int) -> _Line:
    """The average of the runs, each smoothed before."""
    count = len(curves.runs)
    few = count < BOOTSTRAP_FROM
    grid = common_grid(curves.runs, points=POINTS)
    values = np.array([mean_of_last_steps(one, grid, window) for one in curves.runs])
    centre, low, high, _, _ = shown(aggregate(values, seed=SEED, resamples=CURVE_RESAMPLES))
    return _Line(
        label=standing.label,
        at=grid.astype(np.float64),
        centre=centre,
        low=None if few else low,
        high=None if few else high,
        singles=[_whole(one, window) for one in curves.runs] if few and count > 1 else [],
        count=count,
        planned=standing.planned,
    )


def _whole(one: Curve, window: int) -> tuple[Floats, Floats]:
    at = common_grid([one], points=POINTS)
    return at.astype(np.float64), mean_of_last_steps(one, at, window)


def _draw(axes: Axes, line: _Line, mark: Mark, labels: int) -> None:
    for at, values in line.singles:
        axes.plot(at, values, color=mark.colour, linewidth=0.5, alpha=0.45 if labels <= 6 else 0.25)
    if line.low is not None and line.high is not None:
        axes.fill_between(
            line.at, line.low, line.high, color=mark.colour, alpha=band_alpha(labels), linewidth=0
        )
    is_point = len(line.at) == 1
    axes.plot(
        line.at,
        line.centre,
        color=mark.colour,
        linestyle=mark.line,
        linewidth=line_width(labels),
        marker=mark.marker if is_point else None,
        markersize=4,
    )


def _x_axis(axes: Axes, longest: float, *, over_time: bool, narrow: bool) -> None:
    is_labelled = bool(axes.get_xlabel())
    if over_time:
        time_axis(axes, longest, narrow=narrow)
    else:
        steps_axis(axes, 1, narrow=narrow)
    axes.xaxis.label.set_visible(is_labelled)


def _subtitle(comparison: Comparison, games: Sequence[str], kind: _Kind) -> str:
    measures = {comparison.measures[game] for game in games}
    if len(measures) > 1:
        return f"against {kind.against}"
    (measure,) = measures
    quantity = measure.training_axis if kind.smoothed else measure.axis("evaluations")
    return f"{quantity} against {kind.against}"


def _caption(panels: Mapping[str, Sequence[_Line]], windows: Mapping[str, int], kind: _Kind) -> str:
    lines = [line for every in panels.values() for line in every]
    counts = sorted({line.count for line in lines})
    runs = runs_of(counts, [line.planned for line in lines])
    sentences = [f"n = {runs} of each label; unit: the run."]
    if any(1 < count < BOOTSTRAP_FROM for count in counts):
        sentences.append("Up to four runs: each run thin, their mean strong, no interval.")
    if any(count >= BOOTSTRAP_FROM for count in counts):
        sentences.append(
            "From five runs on: interquartile mean and its 95 % bootstrap interval over whole runs, "
            "pointwise" + (", slightly too narrow below ten runs." if min(counts) < 10 else ".")
        )
    if counts[0] == 1:
        sentences.append("One run: the line alone, no interval.")
    if kind.smoothed:
        used = sorted({windows[game] for game in panels})
        sentences.append(
            f"Smoothing: each run by a trailing mean over {_span(used, kind.over_time)}; what is drawn "
            "over runs is that of the smoothed runs."
        )
    else:
        sentences.append("Smoothing: none.")
    return " ".join(sentences)


def _span(windows: Sequence[int], over_time: bool) -> str:
    """`its last 10k steps`, or a range of them where panels differ."""
    ends = sorted({windows[0], windows[-1]})
    if over_time:
        return f"its last {' to '.join(duration(window / 1000) for window in ends)} of training"
    return f"its last {' to '.join(short(window) for window in ends)} steps"
