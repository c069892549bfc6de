"""The plots of evaluations over the whole training, of one run and over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from config.measures import Measure
from steps.evaluations.curve import Point
from steps.figures.averaged_runs import Heading, interval_caption, keep_in_view, shown
from steps.figures.run import mark_solved, window_of
from steps.figures.style import (
    BLUE,
    GREY,
    VERMILION,
    arrange,
    legend,
    panels,
    steps_axis,
    visible,
)
from steps.statistics.curves import Curve, trailing_mean
from steps.statistics.rule import WIDE_ENOUGH_FROM, Aggregate
from steps.statistics.scores import Floats


def run_curve(
    points: Sequence[Point],
    best: Point,
    again: float,
    measure: Measure,
    training: Curve,
    *,
    title: str,
    subtitle: str,
    frames_per_step: int,
    again_episodes: int,
    solved: float | None,
) -> Figure:
    """The mean of each snapshot's episodes over environment steps, above the smoothed training curve,
    which may be empty. again: the best snapshot's mean in `again_episodes` episodes on other seeds.
    """
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    if len(training):
        values = trailing_mean(training.values, window_of(len(training)))
        axes.plot(
            *visible(training.steps.astype(np.float64), values),
            color=GREY, alpha=0.6, linewidth=1.0, label="training episodes, trailing mean",
        )  # fmt: skip
    axes.plot(
        [one.step for one in points], [one.mean for one in points], "o-",
        color=BLUE, markersize=4, linewidth=1.4, label="snapshots, evaluated",
    )  # fmt: skip
    axes.plot(
        best.step, again, "D", color=VERMILION, markersize=6, markeredgecolor="white",
        markeredgewidth=0.8, label="best snapshot, measured again",
    )  # fmt: skip
    mark_solved(axes, solved)
    axes.set_ylabel(measure.axis())
    steps_axis(axes, frames_per_step)
    legend(axes)
    fewest = min(one.episodes for one in points)
    arrange(
        figure,
        f"One run, no interval: {len(points)} snapshots of the policy, {fewest} fresh episodes each. "
        f"The best one was chosen by the highest of these means, {measure.shown(best.mean)}. A maximum "
        f"flatters: in {again_episodes} episodes with other seeds the same policy has "
        f"{measure.shown(again)}. The run is judged by its final policy.",
    )
    return figure


def averaged_curve(
    heading: Heading,
    measure: Measure,
    steps: Floats,
    averaged: Aggregate,
    runs: Mapping[int, Sequence[Point]],
    *,
    frames_per_step: int,
    solved: float | None,
) -> Figure:
    """The averaged evaluation curve with its band, nothing smoothed; single runs thin beneath it."""
    figure, (axes,) = panels(1, title=heading.title, subtitle=heading.subtitle)
    lines = [np.array([one.mean for one in points]) for points in runs.values()]
    if 1 < averaged.n < WIDE_ENOUGH_FROM:
        for index, points in enumerate(runs.values()):
            axes.plot(
                [one.step for one in points], lines[index], color=BLUE, alpha=0.35, linewidth=0.7,
                label="single runs" if index == 0 else None,
            )  # fmt: skip
    centre, low, high, name, band = shown(averaged)
    if low is not None and high is not None:
        axes.fill_between(
            steps, low, high, color=BLUE, alpha=0.17, linewidth=0, label=f"95 % {band}"
        )
    axes.plot(steps, centre, "o-", color=BLUE, markersize=3.5, linewidth=2.0, label=name)
    clipped = keep_in_view(axes, [centre, *lines], low, high)
    mark_solved(axes, solved)
    axes.set_ylabel(measure.axis())
    steps_axis(axes, frames_per_step)
    legend(axes)
    fewest = min(one.episodes for points in runs.values() for one in points)
    arrange(
        figure,
        f"{heading.sample}; unit: the run. {len(steps)} snapshots of each policy, {fewest} fresh "
        f"episodes each. {interval_caption(averaged, 'band')} Smoothing: none.{clipped}",
    )
    return figure
