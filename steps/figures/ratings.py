"""The plots of an arena: how strong each player is, and who beats whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from config.numbers import number
from steps.figures.style import ABSENT, BLUE, GREY, INK, VERMILION, arrange, panels
from steps.statistics.scores import Floats

LONGEST_NAME = 28
INCHES_A_CHARACTER = 0.075
SHARES = LinearSegmentedColormap.from_list("shares", [VERMILION, "#ffffff", BLUE])
READABLE = 0.3
"""If a share differs from one half by more than this, its cell is too dark for dark letters."""


def rating_plot(
    names: Sequence[str],
    ratings: Floats,
    low: Floats,
    high: Floats,
    *,
    title: str,
    subtitle: str,
    caption: str,
) -> Figure:
    """A plot of ratings with their intervals, [n] each, the strongest at the top. The anchor's
    interval has no width. caption: what the intervals are.
    """
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    order = np.argsort(ratings, kind="stable")  # equal ratings: the same plot every time
    rows = np.arange(len(order))
    axes.hlines(rows, low[order], high[order], color=BLUE, linewidth=2.5, alpha=0.45)
    axes.plot(ratings[order], rows, "o", color=BLUE, markersize=6)
    for row, player in enumerate(order):
        axes.annotate(
            number(round(float(ratings[player]))), (max(high[player], ratings[player]), row), (6, 0),
            textcoords="offset points", va="center", size=8.5, color=INK,
        )  # fmt: skip
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.margins(x=0.08)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.set_xlabel("Elo rating")
    arrange(figure, caption)
    _name_rows(figure, axes, [names[player] for player in order])
    return figure


def openings_caption(openings: int) -> str:
    """A sentence that says what the intervals of one run's ratings are."""
    return (
        f"Bradley–Terry ratings; a point is a player, a line its 95 % bootstrap interval over {openings} openings, "
        "each played with both colours by each two players who met. It says how sure the games are about these "
        "players, not how other trainings would end."
    )


def cross_table_plot(
    names: Sequence[str],
    against: Sequence[str],
    shares: Floats,
    *,
    title: str,
    subtitle: str,
    games: int,
) -> Figure:
    """The shares [n, m] that each of n players scored against each of m others; NaN if two did not
    meet. games: number of games of each pair.
    """
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    # NaN, where two did not meet, stays transparent.
    axes.imshow(shares, cmap=SHARES, vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        if np.isfinite(share):
            is_dark = abs(share - 0.5) > READABLE
            axes.text(
                column,
                row,
                f"{100 * share:.1f} %",
                ha="center",
                va="center",
                size=9,
                color="white" if is_dark else INK,
            )
    axes.grid(visible=False)
    axes.set_xticks(np.arange(len(against)), [_short(name, LONGEST_NAME // 2) for name in against])
    axes.tick_params(length=0, labelcolor=INK)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel("against")
    arrange(
        figure,
        f"What the player of a row scored against that of a column, in {games} games, half of them with each "
        "colour; a draw is half a point. Blue: more than half.",
    )
    _name_rows(figure, axes, names)
    return figure


def strength_plot(
    generations: Sequence[int],
    ratings: Floats,
    low: Floats,
    high: Floats,
    ladder: Mapping[str, float],
    *,
    title: str,
    subtitle: str,
    caption: str,
) -> Figure:
    """The ratings [n] of one training's networks over the generation, with their intervals, and the
    ladder's ratings as horizontal lines.
    """
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    for place, (name, rating) in enumerate(ladder.items()):
        axes.axhline(rating, color=ABSENT, linewidth=0.9, linestyle=(0, (5, 3)), zorder=1)
        axes.annotate(
            name, (1 - place / len(ladder), rating), (-3, 2),
            xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", size=8, color=GREY,
        )  # fmt: skip
    axes.vlines(generations, low, high, color=BLUE, linewidth=2.5, alpha=0.45)
    axes.plot(generations, ratings, "o-", color=BLUE, markersize=6)
    axes.set_xlabel("generation")
    axes.set_ylabel("Elo rating")
    axes.margins(x=0.04, y=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    arrange(figure, caption)
    return figure


def against_plot(
    names: Sequence[str],
    rates: Sequence[Sequence[float]],
    centres: Floats,
    low: Floats,
    high: Floats,
    *,
    title: str,
    subtitle: str,
    caption: str,
) -> Figure:
    """What the agents of several trainings scored against each opponent, in %, the first name at
    the top: every run's rate pale [n, runs], the rate over runs strong, with its interval [n].
    """
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    rows = np.arange(len(names))[::-1]
    axes.axvline(50, color=ABSENT, linewidth=0.9, linestyle=(0, (5, 3)))
    for row, of_runs in zip(rows, rates, strict=True):
        axes.plot(of_runs, np.full(len(of_runs), row), "o", color=BLUE, alpha=0.3, markersize=5)
    axes.hlines(rows, low, high, color=INK, linewidth=1.6)
    axes.plot(centres, rows, "D", color=INK, markersize=6)
    axes.set_xlim(-3, 103)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.set_xlabel("win rate of the agent, %")
    arrange(figure, caption)
    _name_rows(figure, axes, list(names)[::-1])
    return figure


def _name_rows(figure: Figure, axes: Axes, names: Sequence[str]) -> None:
    """Put names beside the y axis, and leave as much room as the longest one needs."""
    shown = [_short(name, LONGEST_NAME) for name in names]
    axes.set_yticks(np.arange(len(shown)), shown)
    axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=9)
    axes.spines["left"].set_color(GREY)
    inches = 0.25 + INCHES_A_CHARACTER * max(map(len, shown))
    figure.subplots_adjust(left=inches / figure.get_figwidth())


def _short(name: str, longest: int) -> str:
    """Shorten a long import path to its end, which says most."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"
