"""The figures of a search: its history, what each parameter did, and who was pruned where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from config.numbers import short
from config.parameters import to_text
from config.study.search import Varied
from steps.directory.files import remove
from steps.figures.comparison import FORMATS
from steps.figures.labelled import (
    Texts,
    few_numbers,
    row_height_in,
    rows_axis,
    sheet,
    widest_in,
)
from steps.figures.style import ABSENT, BLUE, GREY, INK, RULE, VERMILION, look, write
from steps.search.findings import Findings
from steps.search.journal import Trial

COLOURS = "cividis"
PRUNED = "pruned: at its last rung"
COMPLETE = "trained to the end"
SHOWN_LINES = 400
"""Of trials in parallel coordinates: more would be one surface."""


def draw(found: Findings, folder: Path) -> list[Path]:
    """Draw what there is to draw, each figure in all formats, and return the files."""
    written: list[Path] = []
    for name, figure_of in FIGURES.items():
        with look():
            figure = figure_of(found)
            if figure is not None:
                written += write(figure, folder / name, FORMATS)
                continue
        for kind in FORMATS:
            remove(folder / f"{name}.{kind}")
    return written


def history(found: Findings) -> Figure | None:
    """The value of each trial in their order, and the best so far; None before there is one."""
    scored = _scored(found)
    if not scored:
        return None
    figure, (axes,) = sheet(
        Texts(
            title="History",
            subtitle=_objective(found),
            caption=_caption(found),
        ),
        1,
        columns=1,
        panel_in=2.6,
        handles=_handles(found, best=True),
        titled=False,
        own_x=True,
        x_label="trial",
    )
    _dots(axes, [(one.number, value, one) for one, value in scored])
    complete = [(one.number, value) for one, value in scored if one.state == "complete"]
    if complete:
        numbers, values = zip(*complete, strict=True)
        pick = np.maximum if found.measure.higher_is_better else np.minimum
        axes.step(
            [*numbers, found.trials[-1].number],
            [*(so_far := pick.accumulate(values)), so_far[-1]],
            where="post",
            color=INK,
            linewidth=1.2,
            zorder=1,
        )
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return figure


def slices(found: Findings) -> Figure | None:
    """A panel for each parameter, a dot for each trial; None before there is one."""
    scored = _scored(found)
    if not scored:
        return None
    parameters = list(found.search.parameters.values())
    figure, all_axes = sheet(
        Texts(title="Slices", subtitle=_objective(found), caption=_caption(found)),
        len(parameters),
        columns=2 if len(parameters) in (2, 4) else 3,
        panel_in=1.9,
        handles=_handles(found),
        own_x=True,
    )
    for axes, one in zip(all_axes, parameters, strict=True):
        axes.set_title(one.name)
        placed = [
            (_place(one, trial.values[one.name]), value, trial)
            for trial, value in scored
            if one.name in trial.values
        ]
        _dots(axes, placed)
        _parameter_axis(axes, one)
        few_numbers(axes.yaxis, 4)
    return figure


def parallel(found: Findings) -> Figure | None:
    """A line for each trial through the values of its parameters; None without two complete trials."""
    complete = [(one, value) for one, value in _scored(found) if one.state == "complete"]
    if len(complete) < 2:
        return None
    parameters = list(found.search.parameters.values())
    low, high = min(value for _, value in complete), max(value for _, value in complete)
    figure, (axes,) = sheet(
        Texts(
            title="Parallel coordinates",
            subtitle=f"{_objective(found)}; the brighter, the {_better(found)}",
            caption="A line for each trial, from parameter to parameter and to its value at the right. "
            "Grey: pruned.",
        ),
        1,
        columns=1,
        panel_in=2.7,
        titled=False,
        own_x=True,
        left_in=0.7,
    )
    pruned = [one for one in found.trials if one.state == "pruned"]
    for one in pruned[:SHOWN_LINES]:
        heights = [_share(varied, one.values.get(varied.name)) for varied in parameters]
        marker = "." if len(heights) == 1 else ""
        axes.plot(
            range(len(heights)), heights, color=ABSENT, alpha=0.35, linewidth=0.7, marker=marker
        )
    sign = 1 if found.measure.higher_is_better else -1
    for one, value in sorted(complete, key=lambda entry: sign * entry[1])[-SHOWN_LINES:]:
        share = (value - low) / (high - low) if high > low else 1.0
        heights = [_share(varied, one.values.get(varied.name)) for varied in parameters]
        colour = colormaps[COLOURS](share if found.measure.higher_is_better else 1 - share)
        axes.plot(range(len(heights) + 1), [*heights, share], color=colour, linewidth=1.3)
    names = [*(one.name for one in parameters), found.measure.name]
    axes.set_xlim(-0.25, len(names) - 0.75)
    axes.set_ylim(-0.12, 1.12)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks([])
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    for at in range(len(names)):
        axes.axvline(at, 0.1, 0.9, color=RULE, linewidth=1, zorder=0)
        if at == len(parameters):
            marked = [(0.0, short(low)), (1.0, short(high))]
        else:
            marked = _marked(parameters[at])
        for height, text in marked:
            above = height > 0.5
            axes.text(
                at, height + (0.03 if above else -0.03), text, size=7.5, color=GREY,
                ha="center", va="bottom" if above else "top",
            )  # fmt: skip
    return figure


def importance(found: Findings) -> Figure | None:
    """A bar for each parameter; None with too few trials."""
    if not found.importances:
        return None
    names = list(found.importances)
    figure, (axes,) = sheet(
        Texts(
            title="Importance of parameters",
            subtitle="share of the variation of the values that a parameter explains (Optuna, fANOVA)",
            caption="Of the trials that were trained to the end. With few trials this says little, and the "
            "searched ranges decide it.",
        ),
        1,
        columns=1,
        panel_in=row_height_in(names) * len(names) + 0.1,
        titled=False,
        own_x=True,
        left_in=widest_in(names) + 0.25,
    )
    rows_axis(axes, names, named=True)
    axes.barh(range(len(names)), list(found.importances.values()), color=BLUE, height=0.6)
    axes.set_xlim(0, max(1e-9, 1.05 * max(found.importances.values())))
    return figure


def rungs(found: Findings) -> Figure | None:
    """The values of all trials at the rungs; None for a search that prunes nothing."""
    if found.search.prune is None or not any(one.rungs for one in found.trials):
        return None
    figure, (axes,) = sheet(
        Texts(
            title="Rungs",
            subtitle=f"{_in_training(found)}, at each rung",
            caption="A line for each trial, which ends where it was pruned. Each was judged by those that had "
            "reached the rung before it, so of two equal ones the earlier may have gone on.",
        ),
        1,
        columns=1,
        panel_in=2.6,
        handles={
            "went on": Line2D([], [], color=BLUE, marker="o", markersize=4),
            "pruned": Line2D([], [], color=VERMILION, marker="x", linestyle="", markersize=5),
        },
        titled=False,
        own_x=True,
        x_label="rung",
    )
    names: dict[int, str] = {}
    for one in found.trials:
        known = [(rung, rung.value) for rung in one.rungs if rung.value is not None]
        names |= {rung.number: f"{rung.number + 1}, epoch {rung.epoch}" for rung in one.rungs}
        if not known:
            continue
        places = [rung.number for rung, _ in known]
        values = [value for _, value in known]
        axes.plot(places, values, color=BLUE, alpha=0.45, linewidth=1, marker="o", markersize=3)
        if not known[-1][0].promoted:
            axes.plot(places[-1], values[-1], "x", color=VERMILION, markersize=6, zorder=3)
    shown = sorted(names)
    axes.set_xlim(shown[0] - 0.3, shown[-1] + 0.3)
    axes.set_xticks(shown, [names[at] for at in shown])
    return figure


FIGURES: dict[str, Callable[[Findings], Figure | None]] = {
    "history": history,
    "rungs": rungs,
    "slices": slices,
    "parallel": parallel,
    "importance": importance,
}
"""File name -> what draws it; None where the search has nothing for it."""


def _scored(found: Findings) -> list[tuple[Trial, float]]:
    known = [(one, found.score(one)) for one in found.trials if one.state in ("complete", "pruned")]
    return [(one, value) for one, value in known if value is not None]


def _dots(axes: Axes, placed: Sequence[tuple[float, float, Trial]]) -> None:
    for state, style in (
        ("pruned", {"marker": "x", "color": ABSENT, "s": 16, "linewidths": 1.0}),
        ("complete", {"marker": "o", "color": BLUE, "s": 20, "linewidths": 0}),
    ):
        of_state = [(x, y) for x, y, trial in placed if trial.state == state]
        if of_state:
            x, y = zip(*of_state, strict=True)
            axes.scatter(x, y, zorder=2, **style)  # type: ignore[arg-type]


def _handles(found: Findings, *, best: bool = False) -> dict[str, Line2D]:
    handles = {COMPLETE: Line2D([], [], color=BLUE, marker="o", linestyle="", markersize=4.5)}
    if found.search.prune is not None:
        handles[PRUNED] = Line2D([], [], color=ABSENT, marker="x", linestyle="", markersize=4.5)
    if best:
        handles["best so far"] = Line2D([], [], color=INK, linewidth=1.2)
    return handles


def _place(one: Varied, value: object) -> float:
    """Where a value stands on the axis of its parameter."""
    return float(one.choices.index(value)) if one.choices else float(value)  # type: ignore[arg-type]


def _share(one: Varied, value: object) -> float:
    """Where a value lies between the ends of its range, from 0 to 1."""
    if value is None:
        return float("nan")
    if one.choices:
        return one.choices.index(value) / (len(one.choices) - 1)
    ends = np.array([one.low, one.high, _place(one, value)])
    low, high, at = np.log(ends) if one.is_log else ends
    return float((at - low) / (high - low))


def _marked(one: Varied) -> list[tuple[float, str]]:
    """What stands at the ends of a parameter's line: of choices each."""
    if one.choices:
        return [(_share(one, choice), to_text(choice)) for choice in one.choices]
    return [(0.0, short(one.low)), (1.0, short(one.high))]


def _parameter_axis(axes: Axes, one: Varied) -> None:
    if one.choices:
        axes.set_xlim(-0.5, len(one.choices) - 0.5)
        axes.set_xticks(range(len(one.choices)), [to_text(choice) for choice in one.choices])
        return
    if one.is_log:
        axes.set_xscale("log")
        axes.set_xlim(one.low / 1.15, one.high * 1.15)
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        return
    margin = 0.04 * (one.high - one.low)
    axes.set_xlim(one.low - margin, one.high + margin)
    few_numbers(axes.xaxis, 4)


def _objective(found: Findings) -> str:
    """What a value is, in words."""
    over = {"iqm": "interquartile mean", "mean": "mean", "median": "median"}
    runs = f"{over[found.search.objective.over_runs]} over the runs of a trial"
    if found.search.objective.measure == "training_area":
        return f"mean {found.measure.in_training.name} over the whole training, {runs}"
    return f"{found.measure.name} of the final policy in its evaluation, {runs}"


def _in_training(found: Findings) -> str:
    if found.search.objective.measure == "training_area":
        return f"mean {found.measure.in_training.name} of the training so far"
    return f"mean {found.measure.in_training.name} of the last 100 training episodes"


def _better(found: Findings) -> str:
    return "higher" if found.measure.higher_is_better else "lower"


def _caption(found: Findings) -> str:
    if found.search.prune is None:
        return "The best of many scores is too high by chance: see the scores with fresh seeds."
    return (
        f"Of a pruned trial: {_in_training(found)}, at its last rung. The best of many scores is too high by "
        "chance: see the scores with fresh seeds."
    )
