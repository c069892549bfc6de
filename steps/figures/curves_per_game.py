"""Learning curves of all labels, a small panel for each game."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from steps.comparison.averaging import MS_PER_HOUR
from steps.comparison.compared import Averaged, Comparison, Standing
from steps.figures.averaged_runs import OF_EVALUATIONS, of_a_point
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
from steps.statistics.rule import BOOTSTRAP_FROM
from steps.statistics.scores import Floats

COLUMNS = 3
PANEL_IN = {1: 2.9, 2: 2.1}
"""Number of panels -> their height, where there is room for more."""
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
    """One of the figures. of: the curves that it shows; in_parts: whether a point is the mean over a
    part of the steps.
    """

    title: str
    of: Callable[[Standing], Averaged | None]
    over_time: bool = False
    in_parts: bool = True

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
        comparison, _Kind(title=title, of=lambda standing: standing.policy, in_parts=False)
    )


def _curves(comparison: Comparison, kind: _Kind) -> Figure | None:
    found = {game: _of_game(comparison, game, kind) for game in comparison.games}
    panels = {game: lines for game, lines in found.items() if lines}
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
            caption=_caption(panels, kind),
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


def _of_game(comparison: Comparison, game: str, kind: _Kind) -> list[_Line]:
    """The lines of the labels that have curves on this game."""
    standings = [comparison.standings.get((label, game)) for label in comparison.labels]
    found = [(one, kind.of(one)) for one in standings if one is not None]
    return [
        _line(standing, curves, MS_PER_HOUR if kind.over_time else 1)
        for standing, curves in found
        if curves is not None
    ]


def _line(standing: Standing, curves: Averaged, unit: float) -> _Line:
    """The average as it was computed, by the rule of the number of runs. unit: of the grid, in that of
    single runs.
    """
    count = len(curves.runs)
    few = count < BOOTSTRAP_FROM
    singles = [(one.steps.astype(np.float64), one.values) for one in curves.runs]
    return _Line(
        label=standing.label,
        at=curves.grid * unit,
        centre=curves.band.values,
        low=None if few else curves.band.low,
        high=None if few else curves.band.high,
        singles=singles if few and count > 1 else [],
        count=count,
        planned=standing.planned,
    )


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
    quantity = measure.training_axis if kind.in_parts else measure.axis("evaluations")
    return f"{quantity} against {kind.against}"


def _caption(panels: Mapping[str, Sequence[_Line]], kind: _Kind) -> str:
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
    if kind.in_parts:
        parts = [len(line.at) for line in lines]
        sentences.append(of_a_point(max(parts), min(parts), over_time=kind.over_time))
    else:
        sentences.append(OF_EVALUATIONS)
    return " ".join(sentences)
