"""How scores depend on the parameters of a grid: slices of each, and a map of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from config.numbers import number
from steps.comparison.compared import Comparison, Effect, Map
from steps.figures.labelled import (
    Mark,
    Texts,
    few_numbers,
    line_handle,
    line_width,
    marks,
    sheet,
    width_in,
)
from steps.figures.style import ABSENT
from steps.statistics.intervals import Estimate

COLUMNS = 3
SPREAD = 0.36
"""The part of the room between two values over which labels stand side by side."""
COLOURS = "cividis"
"""A scale that people with any kind of colour blindness read alike (Nuñez et al. 2018)."""


def slices(comparison: Comparison) -> Figure | None:
    """A panel for each parameter, a line for each label; None without a grid."""
    if not comparison.effects:
        return None
    found = {label for effect in comparison.effects for label in effect.slices}
    each = _marks(comparison, found)
    count = len(comparison.effects)
    figure, all_axes = sheet(
        Texts(
            title="Effect of each parameter",
            subtitle=f"{_score(comparison)}, mean over everything else",
            caption=_caption(comparison.effects),
        ),
        count,
        columns=2 if count in (2, 4) else COLUMNS,
        panel_in=1.9,
        handles={label: line_handle(mark) for label, mark in each.items()},
        own_x=True,
    )
    for axes, effect in zip(all_axes, comparison.effects, strict=True):
        axes.set_title(effect.parameter)
        drawn = [label for label in each if label in effect.slices]
        for index, label in enumerate(drawn):
            aside = SPREAD * ((index + 0.5) / len(drawn) - 0.5)
            _slice(axes, effect.slices[label], each[label], aside, len(drawn))
        _values_axis(axes, effect.values)
        few_numbers(axes.yaxis, 4)
    return figure


def _marks(comparison: Comparison, found: set[str]) -> dict[str, Mark]:
    """Of a comparison's labels as everywhere; without a grid's settings they are names of their own."""
    if found <= set(comparison.labels):
        return {label: mark for label, mark in marks(comparison.labels).items() if label in found}
    return marks(list(dict.fromkeys(one for effect in comparison.effects for one in effect.slices)))


def _slice(
    axes: Axes, estimates: Sequence[Estimate | None], mark: Mark, aside: float, labels: int
) -> None:
    known = [(place, one) for place, one in enumerate(estimates) if one is not None]
    axes.plot(
        [place + aside for place, _ in known],
        [one.value for _, one in known],
        color=mark.colour,
        linestyle=mark.line,
        linewidth=line_width(labels),
        marker=mark.marker,
        markersize=4,
    )
    for place, one in known:
        if one.low is not None and one.high is not None:
            axes.plot(
                [place + aside, place + aside], [one.low, one.high], color=mark.colour,
                linewidth=1.0, alpha=0.7,
            )  # fmt: skip


def _values_axis(axes: Axes, values: Sequence[str]) -> None:
    """A place for each value; those that would touch each other are left out but every second."""
    room_in = axes.get_position().width * axes.get_figure(root=True).get_figwidth()  # type: ignore[union-attr]
    widest = max(width_in(value) for value in values) + 0.08
    every = max(1, math.ceil(len(values) * widest / room_in))
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xticks(range(0, len(values), every), values[::every])


def maps(comparison: Comparison) -> Figure | None:
    """A map of two parameters for each label; None where there is none."""
    if not comparison.maps:
        return None
    scores = [score for one in comparison.maps for row in one.scores for score in row]
    known = [score for score in scores if score is not None]
    if not known:
        return None
    count = len(comparison.maps)
    pairs = {one.parameters for one in comparison.maps}
    most_rows = max(len(one.values[0]) for one in comparison.maps)
    widest = max(width_in(value) for one in comparison.maps for value in one.values[0])
    figure, all_axes = sheet(
        Texts(
            title="Two parameters together",
            subtitle=f"{_score(comparison)}, mean over everything else",
            caption="Point estimates: of many means of few runs the best is too high. "
            "Crossed out: nobody trained it.",
        ),
        count,
        columns=2 if count in (2, 4) else COLUMNS,
        panel_in=max(1.2, 0.3 * most_rows),
        left_in=widest + 0.5,
        between_in=widest + 0.5,
        own_x=True,
        x_label=comparison.maps[0].parameters[1] if len(pairs) == 1 else "",
    )
    write_score = number if len(comparison.games) == 1 else "{:.2f}".format
    for axes, one in zip(all_axes, comparison.maps, strict=True):
        _map(axes, one, min(known), max(known), write_score)
        if len(pairs) == 1:
            axes.set_title(one.label)
            axes.set_ylabel(one.parameters[0], labelpad=2)
        else:
            axes.set_title(f"{one.label}: {one.parameters[0]} by {one.parameters[1]}")
    return figure


def _map(
    axes: Axes, one: Map, lowest: float, highest: float, write_score: Callable[[float], str]
) -> None:
    rows, columns = one.values
    scores = np.array(
        [[math.nan if score is None else score for score in row] for row in one.scores], np.float64
    )
    scale = colormaps[COLOURS]
    axes.pcolormesh(
        np.arange(len(columns) + 1) - 0.5,
        np.arange(len(rows) + 1) - 0.5,
        np.ma.masked_invalid(scores),
        cmap=scale,
        vmin=lowest,
        vmax=highest if highest > lowest else lowest + 1,
    )
    for (row, column), score in np.ndenumerate(scores):
        if math.isnan(score):
            axes.text(column, row, "×", color=ABSENT, ha="center", va="center")
            continue
        is_dark = score - lowest < 0.55 * (highest - lowest)
        axes.text(
            column, row, write_score(score), fontsize=7.5, ha="center", va="center",
            color="#fefefe" if is_dark else "#101010",
        )  # fmt: skip
    axes.grid(visible=False)
    _values_axis(axes, columns)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_yticks(range(len(rows)), rows)
    axes.yaxis.set_major_formatter(lambda at, _: rows[round(at)])


def _score(comparison: Comparison) -> str:
    """What the numbers are, in words."""
    if len(comparison.games) == 1:
        return f"{comparison.measures[comparison.games[0]].axis()} on {comparison.games[0]}"
    return "normalised score"


def _caption(effects: Sequence[Effect]) -> str:
    estimates = [
        one for effect in effects for slice_ in effect.slices.values() for one in slice_ if one
    ]
    kinds = dict.fromkeys(one.kind for one in estimates if one.low is not None)
    reasons = dict.fromkeys(one.reason for one in estimates if one.low is None and one.reason)
    sentences = ["Unit: the run. Labels stand side by side at each value."]
    if kinds:
        sentences.append(f"Strokes: 95 % intervals ({' or '.join(kinds)}).")
    if reasons:
        sentences.append(f"Without an interval: {'; '.join(reasons)}.")
    return " ".join(sentences)
