"""The score of every run, a panel for each game and a row for each label."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from steps.comparison.compared import Comparison, Standing
from steps.figures.labelled import (
    Mark,
    Texts,
    marks,
    row_height_in,
    row_labels,
    rows_axis,
    runs_of,
    sheet,
    widest_in,
)
from steps.figures.over_games import draw_estimate
from steps.figures.style import GREY
from steps.statistics.intervals import Estimate
from steps.statistics.rule import BOOTSTRAP_FROM, WIDE_ENOUGH_FROM

COLUMNS = 3


def centre_of(standing: Standing) -> Estimate | None:
    """What stands for the runs: their IQM from five runs on, else their mean."""
    return standing.mean if standing.iqm is None else standing.iqm


def standings(comparison: Comparison) -> Figure | None:
    """Points and centres of all labels on all games; None where nobody has a score."""
    games = [
        game
        for game in comparison.games
        if any(standing.n and standing.game == game for standing in comparison.standings.values())
    ]
    labels = [
        label
        for label in comparison.labels
        if any(standing.n and standing.label == label for standing in comparison.standings.values())
    ]
    if not games:
        return None
    names = row_labels(labels)
    columns = 2 if len(games) == 4 else COLUMNS
    figure, all_axes = sheet(
        Texts(
            title="Scores of all runs",
            subtitle=_subtitle(comparison, games),
            caption=_caption(list(comparison.standings.values())),
        ),
        len(games),
        columns=columns,
        panel_in=row_height_in(names.values()) * len(labels) + 0.12,
        left_in=widest_in(names.values()) + 0.22,
        between_in=0.22,
        own_x=True,
    )
    each = marks(comparison.labels)
    for index, (axes, game) in enumerate(zip(all_axes, games, strict=True)):
        axes.set_title(panel_title(comparison, game))
        for row, label in enumerate(labels):
            _draw(axes, row, comparison.standings.get((label, game)), each[label])
        rows_axis(axes, [names[label] for label in labels], named=index % columns == 0)
    return figure


def _draw(axes: Axes, row: int, standing: Standing | None, mark: Mark) -> None:
    if standing is None or not standing.n:
        text = "none" if standing is None else f"0 of {standing.planned} runs"
        axes.text(
            0.5, row, text, fontsize=7, color=GREY, ha="center", va="center",
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
        return
    centre = centre_of(standing)
    if centre is not None and standing.n > 1:
        draw_estimate(axes, row, centre, mark)
    axes.plot(
        standing.scores,
        [row] * len(standing.scores),
        mark.marker,
        color=mark.colour,
        markersize=4.2,
        markeredgecolor="white",
        markeredgewidth=0.6,
        zorder=3,
    )
    if standing.n < standing.planned:
        axes.text(
            1.0, row, f"{standing.n} of {standing.planned}", fontsize=6.5, color=GREY, ha="right",
            va="bottom", transform=axes.get_yaxis_transform(),
        )  # fmt: skip


def panel_title(comparison: Comparison, game: str) -> str:
    """The game, and what is measured where games differ in that."""
    measures = {comparison.measures[one] for one in comparison.games}
    return game if len(measures) == 1 else f"{game}: {comparison.measures[game].axis()}"


def _subtitle(comparison: Comparison, games: Sequence[str]) -> str:
    measures = {comparison.measures[game] for game in games}
    said = dict.fromkeys(one.evaluation for one in comparison.standings.values() if one.n)
    evaluation = f" of {next(iter(said))}" if len(said) == 1 and next(iter(said)) else ""
    (name,) = {one.axis() for one in measures} if len(measures) == 1 else ("score",)
    return f"{name}{evaluation}"


def _caption(standings: Sequence[Standing]) -> str:
    those = [one for one in standings if one.n]
    counts = sorted({one.n for one in those})
    runs = runs_of(counts, [one.planned for one in those])
    sentences = [f"n = {runs} of each label on each game; unit: the run. Points: single runs."]
    if counts[0] < BOOTSTRAP_FROM and counts[-1] > 1:
        sentences.append("Stroke and bar, below five runs: mean and its 95 % t interval.")
    if counts[-1] >= BOOTSTRAP_FROM:
        narrow = ", slightly too narrow below ten runs" if counts[0] < WIDE_ENOUGH_FROM else ""
        sentences.append(
            "Stroke and bar, from five runs on: interquartile mean and its 95 % bootstrap interval"
            f"{narrow}."
        )
    return " ".join(sentences)
