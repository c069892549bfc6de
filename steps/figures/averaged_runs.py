"""The plots over all runs. `steps/statistics/rule.py` decides which of them a number of runs
allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from config.measures import Measure
from config.numbers import number
from steps.figures.run import (
    RESOURCES,
    Columns,
    is_metric,
    mark_solved,
    metric_names,
    metric_title,
    resource_axis,
)
from steps.figures.style import (
    ABSENT,
    BLUE,
    GREEN,
    GREY,
    INK,
    RUN_COLOURS,
    arrange,
    legend,
    panels,
    share_x,
    small_multiple,
    steps_axis,
    steps_caption,
    time_axis,
    visible,
)
from steps.statistics.curves import Curve, equal_parts, in_parts, mean_of_parts, middles
from steps.statistics.intervals import CURVE_RESAMPLES
from steps.statistics.rule import WIDE_ENOUGH_FROM, Aggregate, aggregate
from steps.statistics.scores import Floats

LEGEND_UP_TO = 6
BAND_BEYOND = 0.5
"""How far a band is shown beyond the curves, as a share of their height."""
OF_EVALUATIONS = "Each point is the last evaluation before it."
Lines = Mapping[str, tuple[Floats, Floats]]
"""Quantity -> x and y of a line, reduced to as many points as can be seen."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The texts above a plot. sample: how many runs of which kind, as every caption says it."""

    title: str
    subtitle: str
    sample: str


def training_curve(
    heading: Heading,
    measure: Measure,
    used: Mapping[int, Curve],
    excluded: Mapping[int, Curve],
    *,
    seed: int,
    frames_per_step: int,
    solved: float | None,
    over_time: bool = False,
) -> Figure | None:
    """The averaged measure with its band; None where the runs have no common range. Single runs are
    thin beneath it; excluded runs are dashed and enter no average.

    Every run is its means over equal parts of the common range, and line and band are of these. seed:
    of the bootstrap. over_time: the curves are in milliseconds of training, not in environment steps.
    """
    edges = equal_parts(list(used.values()))
    if len(edges) == 0:
        return None
    grid = middles(edges)
    values = np.array([mean_of_parts(one, edges) for one in used.values()])
    averaged = aggregate(values, seed=seed, resamples=CURVE_RESAMPLES)
    figure, (axes,) = panels(1, title=heading.title, subtitle=heading.subtitle)
    _excluded_runs(axes, {run: in_parts(one, edges) for run, one in excluded.items()})
    if averaged.n == 1:
        for one in used.values():
            axes.plot(*_points(one), color=BLUE, alpha=0.3, linewidth=0.8)
    elif averaged.n < WIDE_ENOUGH_FROM:
        for index, one in enumerate(used.values()):
            label = "single runs" if index == 0 else None
            axes.plot(
                *_points(in_parts(one, edges)), color=BLUE, alpha=0.5, linewidth=0.7, label=label
            )
    centre, low, high, name, band = shown(averaged)
    if low is not None and high is not None:
        axes.fill_between(
            grid, low, high, color=BLUE, alpha=0.15, linewidth=0, label=f"95 % {band}"
        )
    axes.plot(grid, centre, color=BLUE, linewidth=2.0, label=name)
    lines = [np.concatenate([line.get_ydata() for line in axes.lines])]
    clipped = keep_in_view(axes, lines, low, high)
    mark_solved(axes, solved)
    axes.set_ylabel(measure.training_axis)
    if over_time:
        time_axis(axes)
    else:
        steps_axis(axes, frames_per_step)
    legend(axes)
    arrange(
        figure,
        f"{heading.sample}; unit: the run. {interval_caption(averaged, 'band')} "
        f"{of_a_point(len(grid), over_time=over_time)}{clipped}",
    )
    return figure


def of_a_point(parts: int, fewest: int | None = None, *, over_time: bool) -> str:
    """One sentence that says what the curves of a figure show at a point. fewest: parts of one of them,
    if they differ.
    """
    share = f"1/{parts}" if fewest in (None, parts) else f"1/{parts} to 1/{fewest}"
    return f"Each point is the mean over {share} of the {'time' if over_time else 'steps'}."


def _excluded_runs(axes: Axes, excluded: Mapping[int, Curve]) -> None:
    for index, (run, one) in enumerate(excluded.items()):
        label = f"not averaged: run {', '.join(map(str, excluded))}" if index == 0 else None
        steps, values = _points(one)
        axes.plot(steps, values, color=ABSENT, linewidth=0.8, linestyle=(0, (4, 1.2)), label=label)
        end = (float(steps[-1]), float(values[-1]))
        axes.annotate(
            f"run {run}",
            end,
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=7.5,
            color=GREY,
            va="center",
        )


def _points(one: Curve) -> tuple[Floats, Floats]:
    return visible(one.steps.astype(np.float64), one.values)


def keep_in_view(
    axes: Axes, lines: Sequence[Floats], low: Floats | None, high: Floats | None
) -> str:
    """Show the whole band, unless it reaches far beyond the curves: the t band of two runs is 18
    standard errors wide and would flatten every curve. Returns the caption's sentence for that.
    """
    bottom = min(float(line.min()) for line in lines)
    top = max(float(line.max()) for line in lines)
    # A constant curve gets a margin of 1, because equal limits are an error for matplotlib.
    margin = 0.12 * (top - bottom) or 1.0
    lowest, highest = bottom - margin, top + margin
    if low is None or high is None:
        axes.set_ylim(lowest, highest)
        return ""
    room = BAND_BEYOND * (top - bottom)
    is_shown = low.min() >= bottom - room and high.max() <= top + room
    if is_shown:
        lowest = min(lowest, float(low.min()) - margin / 3)
        highest = max(highest, float(high.max()) + margin / 3)
    axes.set_ylim(lowest, highest)
    is_inside = lowest <= low.min() and high.max() <= highest
    return "" if is_inside else " The band goes beyond the axes."


def shown(averaged: Aggregate) -> tuple[Floats, Floats | None, Floats | None, str, str]:
    """What is drawn for this number of runs: centre, low, high, and the names of centre and
    interval.
    """
    if averaged.n == 1:
        return averaged.mean, None, None, "the only run", ""
    if averaged.iqm is not None:
        return (
            averaged.iqm,
            averaged.iqm_low,
            averaged.iqm_high,
            f"IQM of {averaged.n} runs",
            "bootstrap interval",
        )
    return (
        averaged.mean,
        averaged.low,
        averaged.high,
        f"mean of {averaged.n} runs",
        "t interval of the mean",
    )


def interval_caption(averaged: Aggregate, drawn: str) -> str:
    """One sentence that says what the band or the bar is."""
    pointwise = ", pointwise" if drawn == "band" else ""
    if averaged.n == 1:
        return "n = 1, no interval."
    if averaged.iqm is None:
        return f"{drawn.capitalize()}: 95 % t interval of the mean{pointwise}."
    remark = ", slightly too narrow at this n" if averaged.n < WIDE_ENOUGH_FROM else ""
    return f"{drawn.capitalize()}: 95 % bootstrap interval of the interquartile mean over whole runs{pointwise}{remark}."


def evaluation(
    heading: Heading,
    measure: Measure,
    episodes: Mapping[int, Sequence[float]],
    missing: Mapping[int, str],
    scores: Aggregate,
    *,
    dots: str,
    solved: float | None,
    of: str = "an episode",
) -> Figure:
    """Each run's episodes pale, its mean strong, and on the right the result over runs with its
    interval.

    missing: why a run has no evaluation; its place stays empty and says so. dots: what the dots
    are. of: what the measure on the y axis is a measure of.
    """
    figure, (axes,) = panels(1, title=heading.title, subtitle=heading.subtitle)
    places = sorted([*episodes, *missing])
    for place, run in enumerate(places):
        if run in missing:
            _draw_missing(axes, place, missing[run])
        else:
            _draw_episodes(axes, place, episodes[run], measure)
    at = len(places) + 0.25
    name = _draw_over_runs(axes, at, scores)
    every = max(1, len(places) // 24)
    prefix = "run " if len(places) <= 10 else ""  # more of them would overlap
    labels = [f"{prefix}{run}" for run in places[::every]]
    axes.set_xticks([*range(0, len(places), every), at], [*labels, name])
    axes.set_xlim(-0.6, at + 0.55)
    axes.set_ylabel(measure.axis(of))
    if solved is not None:
        mark_solved(axes, solved)
        bottom, top = axes.get_ylim()
        # Far outside of the axes, in units of a narrow range, the renderer fails: raster overflow.
        if bottom <= solved <= top:
            words = f"solved: {number(solved)}"
            axes.text(-0.55, solved, words, color=GREEN, fontsize=8, va="bottom")
    arrange(
        figure,
        f"{heading.sample}; unit: the run. Dots: {dots}; diamonds: means. "
        f"{interval_caption(scores, 'bar')}",
    )
    return figure


def _draw_missing(axes: Axes, place: float, why: str) -> None:
    """Say at a run's empty place why it has no evaluation."""
    axes.text(
        place,
        0.03,
        why,
        rotation=90,
        color=ABSENT,
        fontsize=7.5,
        ha="center",
        va="bottom",
        transform=axes.get_xaxis_transform(),
    )


def _draw_episodes(axes: Axes, place: float, episodes: Sequence[float], measure: Measure) -> None:
    """Draw a run's episodes as pale dots, and what they come to as a diamond."""
    values = np.asarray(episodes, np.float64)
    axes.plot(
        place + _spread(len(values)),
        values,
        "o",
        color=BLUE,
        alpha=0.25,
        markersize=3.2,
        markeredgewidth=0,
    )
    axes.plot(
        place,
        measure.of_run(episodes),
        "D",
        color=BLUE,
        markersize=6.5,
        markeredgecolor="white",
        markeredgewidth=0.8,
    )


def _draw_over_runs(axes: Axes, place: float, scores: Aggregate) -> str:
    """Draw the result over all runs with its interval on a grey ground. Returns its label."""
    centre, low, high, name, _ = shown(scores)
    axes.axvspan(place - 0.5, place + 0.5, color=GREY, alpha=0.07, linewidth=0)
    if low is not None and high is not None:
        axes.errorbar(
            place,
            centre[0],
            [[centre[0] - low[0]], [high[0] - centre[0]]],
            color=INK,
            linewidth=1.6,
            capsize=5,
        )
    axes.plot(place, centre[0], "D", color=INK, markersize=7.5)
    return name.replace(" of ", "\nof ") if scores.n > 1 else "n = 1"


def _spread(count: int) -> Floats:
    """Horizontal places of dots that would cover each other: spread evenly by the golden ratio, so
    always the same.
    """
    return np.asarray((np.arange(count) * 0.6180339887498949) % 1.0 - 0.5, np.float64) * 0.5


def is_drawn(name: str, measure: Measure) -> bool:
    """Whether a column of train.csv is drawn over all runs."""
    return name in {"step", measure.training_column} or is_metric(name, measure)


def thin_losses(columns: Columns, measure: Measure) -> Lines:
    """The points of one run's losses that are drawn, so that not all runs must be held in memory at
    once.
    """
    return _thin(columns, metric_names(columns, measure), "step")


def thin_resources(columns: Columns) -> Lines:
    """The points of one run's use of the machine that are drawn."""
    return _thin(
        columns,
        [name for name in RESOURCES if name in columns and np.isfinite(columns[name]).any()],
        "wall_s",
    )


def _thin(columns: Columns, names: Sequence[str], against: str) -> Lines:
    finite = {name: np.isfinite(columns[name]) for name in names}
    return {
        name: visible(columns[against][kept], columns[name][kept]) for name, kept in finite.items()
    }


def losses(heading: Heading, runs: Mapping[int, Lines], *, frames_per_step: int) -> Figure | None:
    """The learners' own metrics, a panel each with every run thin; None if they measured nothing."""

    def finish(axes: Axes, label: str) -> None:
        steps_axis(axes, frames_per_step, narrow=True)
        small_multiple(axes, label)

    names = list(dict.fromkeys(name for lines in runs.values() for name in lines))
    quantities = {name: (metric_title(name), 1.0) for name in names}
    return _thin_runs(heading, runs, quantities, finish, steps_caption(frames_per_step))


def resources(heading: Heading, runs: Mapping[int, Lines]) -> Figure | None:
    """Speed and use of the machine over wall time, every run thin; None if nothing was measured."""
    quantities = {
        name: described
        for name, described in RESOURCES.items()
        if any(name in lines for lines in runs.values())
    }
    return _thin_runs(heading, runs, quantities, resource_axis)


def _thin_runs(
    heading: Heading,
    runs: Mapping[int, Lines],
    quantities: Mapping[str, tuple[str, float]],
    finish: Callable[[Axes, str], None],
    remark: str = "",
) -> Figure | None:
    if not quantities:
        return None
    figure, all_axes = panels(len(quantities), title=heading.title, subtitle=heading.subtitle)
    few = len(runs) <= LEGEND_UP_TO
    for axes, (name, (label, unit)) in zip(all_axes, quantities.items(), strict=True):
        for index, (run, lines) in enumerate(runs.items()):
            if name in lines:
                at, values = lines[name]
                # Few runs are told apart by colour; of many, only their spread can be seen.
                colour, alpha = (RUN_COLOURS[index], 0.85) if few else (BLUE, 0.35)
                axes.plot(
                    at, values / unit, color=colour, linewidth=0.9, alpha=alpha, label=f"run {run}"
                )
        finish(axes, label)
    share_x(figure)
    if few:
        handles, labels = all_axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="upper right", ncols=len(runs), handlelength=1.2, columnspacing=1.0
        )
    arrange(figure, f"{heading.sample}; every run by itself, nothing averaged or smoothed.{remark}")
    return figure
