"""How algorithms learn the same games, side by side: the figures of the benchmarks of learning, and what
they show as JSON, so that they can be drawn again without the trainings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from steps.figures.run import window_of
from steps.figures.style import (
    BLUE,
    VERMILION,
    arrange,
    panels,
    share_x,
    small_multiple,
    steps_axis,
    visible,
)
from steps.statistics.curves import Curve, common_grid, hold, trailing_mean
from tests.benchmarks.recorded import rounded, write_rows
from tests.benchmarks.verdicts import Bound

COLOURS = (BLUE, VERMILION)
"""One for each algorithm, in every panel."""
DASHES = (0, (5, 3))
HEIGHT_IN = 4.0
BEYOND = 1.04
"""Where the final policies stand, as a share of the last step."""


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What came of one algorithm on one game: of every run its training and its final score."""

    algorithm: str
    curves: Sequence[Curve]
    scores: Sequence[float]
    bound: Bound | None = None


def write_learnt(path: Path, learnt: Sequence[Learnt]) -> None:
    """Keep what a panel shows, but for bounds, as JSON with values rounded to two digits."""
    rows = (
        {
            "algorithm": one.algorithm,
            "scores": rounded(one.scores),
            "curves": [
                {"steps": curve.steps.tolist(), "values": rounded(curve.values)}
                for curve in one.curves
            ],
        }
        for one in learnt
    )
    write_rows(path, rows)


def read_learnt(path: Path) -> list[Learnt]:
    """What `write_learnt` has kept."""
    return [
        Learnt(
            algorithm=row["algorithm"],
            scores=row["scores"],
            curves=[
                Curve(steps=np.array(one["steps"], np.int64), values=np.array(one["values"]))
                for one in row["curves"]
            ],
        )
        for row in json.loads(path.read_text(encoding="utf-8"))
    ]


def side_by_side(
    title: str, subtitle: str, games: Mapping[str, Sequence[Learnt]], note: str
) -> Figure:
    """A panel for each game, a colour for each algorithm, at most two; none without a curve. note: what the
    marks beside the curves are.
    """
    figure, all_axes = panels(len(games), title=title, subtitle=subtitle)
    figure.set_figheight(HEIGHT_IN)
    shown: dict[str, Artist] = {}
    windows = set()
    for axes, (game, learnt) in zip(all_axes, games.items(), strict=True):
        windows |= {_draw(axes, one, colour) for one, colour in zip(learnt, COLOURS, strict=False)}
        shown |= {str(line.get_label()): line for line in axes.get_legend_handles_labels()[0]}
        steps_axis(axes, 1, narrow=True)
        small_multiple(axes, game)
    share_x(figure)
    figure.legend(shown.values(), shown.keys(), loc="upper right", ncols=len(shown))
    rows = " to ".join(str(window) for window in sorted({min(windows), max(windows)}))
    arrange(
        figure,
        "Thin: every run in training, where actions are sampled; strong: the mean of the runs, of "
        f"each a trailing mean of {rows} rows. {note}",
    )
    figure.subplots_adjust(top=0.765, right=0.915, wspace=0.44)
    return figure


def _draw(axes: Axes, one: Learnt, colour: str) -> int:
    """All of one algorithm; over how many rows its strong line is smoothed."""
    for curve in one.curves:
        axes.plot(*_points(curve), color=colour, alpha=0.35, linewidth=0.7)
    rows = min(len(curve) for curve in one.curves)
    window, grid = window_of(rows), _shared_steps(one.curves)
    smoothed = [
        hold(Curve(steps=curve.steps, values=trailing_mean(curve.values, window)), grid)
        for curve in one.curves
    ]
    label = f"{one.algorithm}, n = {len(one.curves)}"
    axes.plot(grid, np.mean(smoothed, axis=0), color=colour, linewidth=2.0, label=label)
    end = np.full(len(one.scores), BEYOND * max(curve.steps[-1] for curve in one.curves))
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
    axes.plot(end, one.scores, "D", color=colour, markersize=5, clip_on=False, **edge)
    if one.bound is not None:
        axes.axhline(one.bound.value, color=colour, linewidth=1.0, linestyle=DASHES, zorder=1)
        beside = axes.get_yaxis_transform()
        text = {"color": colour, "fontsize": 8, "va": "center", "transform": beside}
        axes.text(1.03, one.bound.value, str(one.bound), **text)
    return window


def _shared_steps(curves: Sequence[Curve]) -> NDArray[np.int64]:
    """Every step at which some run has a point, in the range that all runs have -> [G]."""
    ends = common_grid(curves, points=2)
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    return steps[(steps >= ends[0]) & (steps <= ends[-1])] if len(ends) else ends


def _points(one: Curve) -> tuple[np.ndarray, np.ndarray]:
    return visible(one.steps.astype(np.float64), one.values)
