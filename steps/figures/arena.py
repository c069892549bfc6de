"""The plots of an arena: how strong each player is, and who beats whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from config.numbers import number
from steps.figures.style import BLUE, GREY, INK, VERMILION, arrange, panels
from steps.statistics.scores import Floats

LONGEST_NAME = 28
INCHES_A_CHARACTER = 0.075
SHARES = LinearSegmentedColormap.from_list("shares", [VERMILION, "#ffffff", BLUE])
READABLE = 0.3
"""So far from one half the ground of a share is too dark for dark letters."""


def rating_plot(
    names: Sequence[str],
    ratings: Floats,
    low: Floats,
    high: Floats,
    *,
    title: str,
    subtitle: str,
    openings: int,
) -> Figure:
    """The strongest above; ratings and both ends of their intervals, [n] each. The player whose
    interval has no width is the anchor.
    """
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
    order = np.argsort(ratings, kind="stable")
    rows = np.arange(len(order))
    axes.hlines(rows, low[order], high[order], color=BLUE, linewidth=2.5, alpha=0.45)
    axes.plot(ratings[order], rows, "o", color=BLUE, markersize=6)
    for row, player in enumerate(order):
        axes.annotate(
            number(round(float(ratings[player]))),
            (ratings[player], row),
            (0, 7),
            textcoords="offset points",
            ha="center",
            size=8.5,
            color=INK,
        )
    axes.set_ylim(-0.6, len(order) - 0.3)
    axes.margins(x=0.06)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.set_xlabel("Elo rating")
    arrange(
        figure,
        f"Bradley–Terry ratings; a point is a player, a line its 95 % bootstrap interval over {openings} openings, "
        "each played with both colours by each two players. It says how sure the games are about these players, "
        "not how other trainings would end.",
    )
    _name_rows(figure, axes, [names[player] for player in order])
    return figure


def cross_table_plot(
    names: Sequence[str], shares: Floats, *, title: str, subtitle: str, games: int
) -> Figure:
    """Shares [n, n] that each player (row) scored against each other one, in the order of `names`;
    NaN where two did not meet. games: of each two.
    """
    figure, (axes,) = panels(1, title=title, subtitle=subtitle)
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
    axes.set_xticks(np.arange(len(names)), [_short(name, LONGEST_NAME // 2) for name in names])
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


def _name_rows(figure: Figure, axes: Axes, names: Sequence[str]) -> None:
    """Names beside the y axis, and as much room as the longest one needs."""
    shown = [_short(name, LONGEST_NAME) for name in names]
    axes.set_yticks(np.arange(len(shown)), shown)
    axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=9)
    axes.spines["left"].set_color(GREY)
    inches = 0.25 + INCHES_A_CHARACTER * max(map(len, shown))
    figure.subplots_adjust(left=inches / figure.get_figwidth())


def _short(name: str, longest: int) -> str:
    """The end of a long import path says most."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"
