"""The plots of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from config.measures import RETURN, Measure
from config.numbers import number, short
from steps.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    VERMILION,
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
from steps.statistics.curves import trailing_mean
from steps.statistics.scores import Floats

Columns = Mapping[str, Floats]
"""Columns of a CSV file, all of one length [T]; NaN where a field is empty."""

NOT_METRICS = (
    "epoch",
    "step",
    "frame",
    "episodes",
    "length_mean",
    "valid_rows",
)
METRICS = {
    "alpha": "temperature α",
    "approximate_kl": "approximate KL, nats",
    "entropy": "entropy, nats",
    "epsilon": "exploration ε",
    "generations_behind": "generations behind, mean",
    "generations_behind_max": "generations behind, most",
    "positions": "positions played",
    "q_mean": "mean Q value",
    "replayed": "learnt from, times",
    "td_error": "mean |TD error|",
    "unique_percent": "different positions, %",
    "window": "window, positions",
}
"""Titles of the panels whose column in train.csv has another name."""
RESOURCES = {
    "steps_per_second": ("speed, steps per second", 1.0),
    "cpu_percent": ("CPU, % of one core", 1.0),
    "memory_bytes": ("memory, GiB", 2.0**30),
    "gpu_percent": ("GPU, %", 1.0),
    "gpu_memory_bytes": ("GPU memory, GiB", 2.0**30),
    "trainer_busy_percent": ("trainer busy, % of time", 1.0),
    "workers_waiting_percent": ("workers waiting, % of time", 1.0),
    "positions_per_second": ("positions per second", 1.0),
    "balancing_ratio": ("balancing replay ratio", 1.0),
    "actors": ("actors connected", 1.0),
    "learner_busy_percent": ("learner busy, % of time", 1.0),
    "actors_waiting_percent": ("actors waiting, % of time", 1.0),
    "waiting_unrolls": ("unrolls waiting", 1.0),
    "message_ms": ("handling a message, ms", 1.0),
    "received_bytes_per_second": ("received, MiB/s", 2.0**20),
    "sent_bytes_per_second": ("weights sent, MiB/s", 2.0**20),
}


def window_of(rows: int) -> int:
    """Number of rows in the trailing mean of a curve: one in forty, so that it lags an eightieth of
    the curve behind.

    Twice as many would put the averaged line visibly below its band where the returns rise.
    """
    return max(1, rows // 40)


def training_curve(
    columns: Columns,
    measure: Measure,
    *,
    title: str,
    subtitle: str,
    frames_per_step: int,
    solved: float | None,
    moments_ms: Floats | None = None,
) -> Figure | None:
    """The measure over environment steps: every row pale, a trailing mean strong. None before the
    first episode has ended. moments_ms [T]: over the time of the training instead.
    """
    measured = columns.get(measure.training_column, np.empty(0))
    if not np.isfinite(measured).any():
        return None
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    rows = np.isfinite(measured)
    steps = (columns["step"] if moments_ms is None else moments_ms)[rows]
    values = measured[rows]
    window = window_of(len(values))
    each_row = "mean of the episodes of one row"
    axes.plot(
        *visible(steps, values),
        color=BLUE,
        alpha=0.3,
        linewidth=0.8,
        label=each_row if window > 1 else None,
    )
    axes.plot(
        *visible(steps, trailing_mean(values, window)),
        color=BLUE,
        label=f"trailing mean of {window} rows" if window > 1 else each_row,
    )
    mark_solved(axes, solved)
    axes.set_ylabel(measure.training_axis)
    if moments_ms is None:
        steps_axis(axes, frames_per_step)
    else:
        time_axis(axes)
    legend(axes)
    episodes = int(np.nansum(columns["episodes"]))
    unclipped = " with unclipped rewards" if measure.column == RETURN.column else ""
    arrange(
        figure,
        f"One run, no interval: {short(episodes)} episodes{unclipped}. {smoothing_caption(window)}",
    )
    return figure


def smoothing_caption(window: int, where: str = "") -> str:
    """One sentence that names the smoothing."""
    if window > 1:
        return f"Smoothing: the strong line only, a trailing mean of {window} rows{where}."
    return "Smoothing: none."


def mark_solved(axes: Axes, solved: float | None) -> None:
    """Draw a dashed line at the return that counts as solved, if the game has one and the curve
    comes near it.
    """
    low, high = axes.get_ylim()
    near = 0.25 * (high - low)
    if solved is not None and low - near < solved < high + near:
        axes.set_ylim(min(low, solved - near / 4), max(high, solved + near / 4))
        axes.axhline(
            solved,
            color=GREEN,
            linewidth=1.0,
            linestyle=(0, (5, 3)),
            zorder=1,
            label=f"solved: {number(solved)}",
        )


def losses(
    columns: Columns, measure: Measure, *, title: str, subtitle: str, frames_per_step: int
) -> Figure | None:
    """The learner's own metrics, a panel each; None if it measured nothing."""
    names = metric_names(columns, measure)
    if not names:
        return None
    figure, all_axes = panels(len(names), title=title, subtitle=subtitle)
    window = window_of(len(columns["step"]))
    for axes, name in zip(all_axes, names, strict=True):
        kept = np.isfinite(columns[name])
        steps = columns["step"][kept]
        values = columns[name][kept]
        axes.plot(*visible(steps, values), color=BLUE, alpha=0.3, linewidth=0.8)
        axes.plot(*visible(steps, trailing_mean(values, window)), color=BLUE, linewidth=1.4)
        steps_axis(axes, frames_per_step, narrow=True)
        small_multiple(axes, metric_title(name))
    share_x(figure)
    arrange(
        figure,
        f"One run; every row of train.csv.{steps_caption(frames_per_step)} {smoothing_caption(window)}",
    )
    return figure


def metric_names(columns: Columns, measure: Measure) -> list[str]:
    """The columns of train.csv that the algorithm added and that contain a number."""
    return [
        name
        for name, values in columns.items()
        if is_metric(name, measure) and np.isfinite(values).any()
    ]


def metric_title(name: str) -> str:
    """The title of a column's panel, with symbol and unit where the field has them."""
    return METRICS.get(name, name.replace("_", " "))


def is_metric(name: str, measure: Measure) -> bool:
    """Whether the algorithm added this column: it is neither a counter nor the measure of the run."""
    spread = (f"{measure.column}_min", f"{measure.column}_max")
    return name not in (*NOT_METRICS, measure.training_column, *spread)


def resources(columns: Columns, *, title: str, subtitle: str) -> Figure | None:
    """Speed and use of the machine over wall time, a panel for each measured quantity; None if
    nothing was measured.
    """
    names = [name for name in RESOURCES if name in columns and np.isfinite(columns[name]).any()]
    if not names:
        return None
    figure, all_axes = panels(len(names), title=title, subtitle=subtitle)
    for axes, name in zip(all_axes, names, strict=True):
        label, unit = RESOURCES[name]
        seconds, values = visible(columns["wall_s"], columns[name] / unit)
        axes.plot(seconds, values, color=VERMILION, linewidth=1.2)
        resource_axis(axes, label)
    share_x(figure)
    arrange(figure, "One run, as measured in its pod; every attempt counts its own time.")
    return figure


def resource_axis(axes: Axes, label: str) -> None:
    """Label the x axis with wall time and let the y axis begin at zero: a speed that is cut off at
    the bottom looks unsteady.
    """
    axes.set_xlabel("wall time, s")
    axes.set_ylim(0, 1.1 * axes.dataLim.y1 or 1)  # matplotlib warns of equal limits
    axes.xaxis.set_major_locator(MaxNLocator(5))
    small_multiple(axes, label)


def evaluation(
    episodes: Sequence[float],
    measure: Measure,
    *,
    title: str,
    subtitle: str,
    policy: str,
    solved: float | None,
) -> Figure:
    """The distribution of the evaluation's episodes: a histogram above a mark for each episode."""
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    values = np.asarray(episodes, np.float64)
    centre = measure.of_run(episodes)
    counts, edges = np.histogram(values, bins=_bins(values))
    axes.stairs(counts, edges, fill=True, color=BLUE, alpha=0.28)
    axes.stairs(counts, edges, color=BLUE, linewidth=1.2)
    axes.plot(
        values,
        np.full(len(values), -0.035),
        "|",
        color=BLUE,
        markersize=9,
        alpha=0.7,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
    )
    axes.axvline(centre, color=INK, linewidth=1.6, label=f"mean {measure.shown(centre)}")
    if solved is not None and edges[0] <= solved <= edges[-1]:
        axes.axvline(
            solved,
            color=GREEN,
            linewidth=1.0,
            linestyle=(0, (5, 3)),
            label=f"solved: {number(solved)}",
        )
    axes.set_xlabel(measure.axis("an episode"))
    axes.set_ylabel("episodes")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.tick_params(axis="x", pad=7)
    if len(counts) == 1:
        axes.set_xlim(edges[0] - 4, edges[-1] + 4)
    axes.spines["bottom"].set_color(GREY)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="upper right",
        ncols=2,
        handlelength=1.2,
        columnspacing=1.2,
    )
    arrange(
        figure,
        f"n = {len(values)} fresh, seeded episodes of the final policy ({policy}) of one run; marks: single episodes.",
        "The spread is that of the episodes; one run allows no interval.",
    )
    return figure


def _bins(values: Floats) -> Floats:
    """The edges of at most 20 equal bins around all values. Equal values get one bin of width one."""
    low = float(values.min())
    high = float(values.max())
    if low == high:
        return np.array([low - 0.5, high + 0.5])
    return np.linspace(low, high, min(20, max(5, math.ceil(math.sqrt(len(values)) * 2))) + 1)
