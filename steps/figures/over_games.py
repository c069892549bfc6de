"""All labels over all games: aggregates, profiles, improvement and sample efficiency (Agarwal et al.
2021, arXiv:2108.13264).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from config.numbers import counted
from steps.comparison.compared import Comparison, Overall
from steps.comparison.sample_efficiency import TRAINING
from steps.figures.averaged_runs import OF_EVALUATIONS, of_a_point
from steps.figures.labelled import (
    Mark,
    Texts,
    band_alpha,
    few_numbers,
    line_handle,
    line_width,
    marks,
    row_height_in,
    row_labels,
    rows_axis,
    runs_of,
    sheet,
    widest_in,
)
from steps.figures.style import INK, value_label
from steps.statistics.intervals import Band, Estimate
from steps.statistics.scores import Floats

Known = TypeVar("Known")
PANELS = {
    "iqm": "IQM ↑",
    "median": "median ↑",
    "mean": "mean ↑",
    "optimality_gap": "optimality gap ↓",
}


def aggregates(comparison: Comparison) -> Figure | None:
    """Interquartile mean, median, mean and optimality gap, a row for each label; None with fewer than
    two games.
    """
    found = _known(comparison, lambda one: one.aggregates)
    estimates = {
        name: {label: getattr(one, name) for label, one in found.items()} for name in PANELS
    }
    return _rows(
        comparison,
        {PANELS[name]: panel for name, panel in estimates.items()},
        title="Scores over all games",
        subtitle="normalised: 0 and 1 are the ends of each game's range",
        remark="",
    )


def improvement(comparison: Comparison) -> Figure | None:
    """The probability that a run beats one of the baseline's; None with fewer than two games."""
    found = _known(comparison, lambda one: one.improvement)
    figure = _rows(
        comparison,
        {"": found},
        title=f"Probability of improvement over {comparison.baseline}",
        subtitle="that a run beats a run of the baseline on the same game, mean over games",
        remark=" Dashed: one half, no difference.",
    )
    if figure is not None:
        (axes,) = figure.axes
        axes.axvline(0.5, color=INK, linewidth=1.0, linestyle=(0, (5, 3)), zorder=1)
        axes.set_xlim(-0.02, 1.02)
        few_numbers(axes.xaxis, 10)
    return figure


def profiles(comparison: Comparison) -> Figure | None:
    """The share of runs above each score; None with fewer than two games."""
    bands = _known(comparison, lambda one: one.profile)
    return _bands(
        comparison,
        bands,
        comparison.thresholds,
        title="Performance profiles",
        subtitle="share of runs with a normalised score above τ",
        x_label="normalised score τ",
        remark="",
    )


def efficiency(comparison: Comparison) -> Figure | None:
    """Scores over all games in the course of the training; None with fewer than two games."""
    bands = _known(comparison, lambda one: one.efficiency)
    of_training = comparison.efficiency_of == TRAINING
    what = "training episodes" if of_training else "evaluations"
    point = of_a_point(len(comparison.shares), over_time=False) if of_training else OF_EVALUATIONS
    figure = _bands(
        comparison,
        bands,
        comparison.shares,
        title="Sample efficiency",
        subtitle=f"interquartile mean of normalised returns of {what}, over all games",
        x_label="share of the environment steps",
        remark=f" {point}",
    )
    if figure is not None:
        percent = FuncFormatter(lambda share, _: f"{100 * share:g} %")
        figure.axes[0].xaxis.set_major_formatter(percent)
    return figure


def _known(comparison: Comparison, of: Callable[[Overall], Known | None]) -> dict[str, Known]:
    """What is known of the labels that have it."""
    found = {label: of(one) for label, one in comparison.overall.items()}
    return {label: one for label, one in found.items() if one is not None}


def _rows(
    comparison: Comparison,
    panels: Mapping[str, Mapping[str, Estimate]],
    *,
    title: str,
    subtitle: str,
    remark: str,
) -> Figure | None:
    """A row for each label, a panel for each quantity, beside each other."""
    labels = [one for one in comparison.labels if any(one in panel for panel in panels.values())]
    if not labels or not comparison.common_games:
        return None
    names = row_labels(labels)
    every = [one for panel in panels.values() for one in panel.values()]
    caption = f"{_sample(comparison)} {_intervals(every)}{remark}"
    figure, all_axes = sheet(
        Texts(title=title, subtitle=subtitle, caption=caption),
        len(panels),
        columns=len(panels),
        panel_in=1.1 * row_height_in(names.values()) * len(labels) + 0.1,
        left_in=widest_in(names.values()) + 0.22,
        between_in=0.2,
        titled=any(panels),
        own_x=True,
    )
    each = marks(comparison.labels)
    for index, (axes, (name, estimates)) in enumerate(zip(all_axes, panels.items(), strict=True)):
        axes.set_title(name)
        for row, label in enumerate(labels):
            if label in estimates:
                draw_estimate(axes, row, estimates[label], each[label])
        rows_axis(axes, [names[label] for label in labels], named=index == 0)
    return figure


def draw_estimate(axes: Axes, row: float, estimate: Estimate, mark: Mark) -> None:
    """The interval as a bar with the value as a stroke through it; without an interval a point."""
    if estimate.low is None or estimate.high is None:
        axes.plot(
            estimate.value, row, mark.marker, color=mark.colour, markersize=5, markeredgewidth=0
        )
        return
    # A line with butt caps: a patch of width 0 would not be seen where all runs are equal.
    axes.plot(
        [estimate.low, estimate.high],
        [row, row],
        color=mark.colour,
        alpha=0.45,
        linewidth=7,
        solid_capstyle="butt",
    )
    axes.plot(
        [estimate.value, estimate.value],
        [row - 0.3, row + 0.3],
        color=mark.colour,
        linewidth=2.0,
        solid_capstyle="butt",
    )


def _bands(
    comparison: Comparison,
    bands: Mapping[str, Band],
    at: Floats,
    *,
    title: str,
    subtitle: str,
    x_label: str,
    remark: str,
) -> Figure | None:
    """One panel with a line and a band for each label."""
    if not bands or len(at) == 0 or not comparison.common_games:
        return None
    each = {label: mark for label, mark in marks(comparison.labels).items() if label in bands}
    figure, (axes,) = sheet(
        Texts(
            title=title,
            subtitle=subtitle,
            caption=f"{_sample(comparison)} {_pointwise(list(bands.values()))}{remark}",
        ),
        1,
        columns=1,
        panel_in=2.9,
        handles={label: line_handle(mark) for label, mark in each.items()},
        titled=False,
        own_x=True,
        x_label=x_label,
    )
    for label, mark in each.items():
        band = bands[label]
        if band.low is not None and band.high is not None:
            axes.fill_between(
                at,
                band.low,
                band.high,
                color=mark.colour,
                alpha=band_alpha(len(each)),
                linewidth=0,
            )
        axes.plot(
            at, band.values, color=mark.colour, linestyle=mark.line, linewidth=line_width(len(each))
        )
    few_numbers(axes.xaxis, 7)
    axes.xaxis.set_major_formatter(FuncFormatter(value_label))
    return figure


def _sample(comparison: Comparison) -> str:
    """How many runs of how many games, in words."""
    games = comparison.common_games
    those = [comparison.standings[label, game] for label in comparison.labels for game in games]
    runs = runs_of([one.n for one in those], [one.planned for one in those])
    return f"n = {runs} of each label on each of {counted(len(games), 'game')}; unit: the run."


def _intervals(estimates: Sequence[Estimate]) -> str:
    """Which intervals the bars are, and why points have none."""
    kinds = list(dict.fromkeys(one.kind for one in estimates if one.low is not None))
    reasons = list(dict.fromkeys(one.reason for one in estimates if one.low is None and one.reason))
    said = ""
    if kinds:
        said = f"Bars: 95 % intervals ({' or '.join(kinds)}), over other runs on these games."
    if reasons:
        said += f" Points without an interval: {'; '.join(reasons)}."
    return said.strip() or "No intervals."


def _pointwise(bands: Sequence[Band]) -> str:
    kinds = list(dict.fromkeys(band.kind for band in bands if band.low is not None))
    if kinds:
        return f"Bands: 95 % intervals ({' or '.join(kinds)}), pointwise."
    reasons = dict.fromkeys(band.reason for band in bands if band.reason)
    return f"No bands: {'; '.join(reasons)}." if reasons else "No bands."
