"""What the figures of a comparison share: a colour and a line style for each label, legends that cover
no curve, and panels whose places are given in inches.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from steps.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    RULE,
    SKY,
    VERMILION,
    value_label,
)

SHEET_IN = 7.2
"""The width of a page's text in most journals."""
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
"""All of Okabe and Ito's but yellow, which a white page hides."""
LINES: tuple[Any, ...] = ("-", (0, (4, 1.4)), (0, (1, 1.2)), (0, (6, 1.4, 1, 1.4)))
MARKERS = ("o", "s", "^", "D")
MOST_TOLD_APART = len(COLOURS) * len(LINES)
FEW_LABELS = 6
"""Up to this many labels have the lines and bands of a figure with room for them."""

MARGIN_IN = 0.09
TITLES_IN = 0.56
LEGEND_LINE_IN = 0.165
PANEL_TITLE_IN = 0.27
TICKS_IN = 0.24
X_LABEL_IN = 0.2
CAPTION_LINE_IN = 0.15
CAPTION_CHARACTERS = 128
LABEL_POINTS = 8.5
HANDLE_IN = 0.42
COLUMN_GAP_IN = 0.22
WIDEST_LABEL_IN = 2.0
ROW_IN = {1: 0.2, 2: 0.28}
"""Lines of the longest row label -> height of every row."""
MEASURED_DOTS_PER_INCH = 100


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How one label is drawn, in every figure."""

    colour: str
    line: Any
    marker: str


def marks(labels: Sequence[str]) -> dict[str, Mark]:
    """A mark for each label: first all colours, then all of them again with another line and marker.
    Beyond MOST_TOLD_APART they repeat.
    """
    return {
        label: Mark(
            colour=COLOURS[index % len(COLOURS)],
            line=LINES[index // len(COLOURS) % len(LINES)],
            marker=MARKERS[index // len(COLOURS) % len(MARKERS)],
        )
        for index, label in enumerate(labels)
    }


def line_handle(mark: Mark) -> Line2D:
    """The sample of a label's line for a legend."""
    return Line2D([], [], color=mark.colour, linestyle=mark.line, linewidth=1.8)


def line_width(labels: int) -> float:
    """Of the centres, so that many of them stay apart."""
    return 1.8 if labels <= FEW_LABELS else 1.3


def band_alpha(labels: int) -> float:
    """Of the bands, so that many of them do not become one."""
    return 0.16 if labels <= FEW_LABELS else 0.09


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What stands around the panels of a figure."""

    title: str
    subtitle: str
    caption: str


def sheet(
    texts: Texts,
    count: int,
    *,
    columns: int,
    panel_in: float,
    handles: Mapping[str, Artist] | None = None,
    left_in: float = 0.62,
    between_in: float = 0.58,
    titled: bool = True,
    own_x: bool = False,
    x_label: str = "",
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in rows of `columns`, each `panel_in` high; the texts above and
    below; the handles as a legend between them.

    own_x: whether every panel has numbers on its x axis, not only the lowest.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(SHEET_IN, 1))
    FigureCanvasAgg(figure)
    legend_columns = _legend_columns(handles or {})
    above_in = TITLES_IN
    if handles:
        above_in += LEGEND_LINE_IN * -(-len(handles) // legend_columns) + 0.1
    caption = textwrap.wrap(texts.caption, CAPTION_CHARACTERS)
    below_in = CAPTION_LINE_IN * len(caption) + MARGIN_IN + 0.14
    title_in = PANEL_TITLE_IN if titled else 0.08
    ticks_in = TICKS_IN if own_x else 0.06
    lowest_in = (0.0 if own_x else TICKS_IN - 0.06) + (X_LABEL_IN if x_label else 0.0)
    row_in = title_in + panel_in + ticks_in
    height = above_in + rows * row_in + lowest_in + below_in
    figure.set_size_inches(SHEET_IN, height)
    left = MARGIN_IN / SHEET_IN
    figure.text(left, 1 - 0.10 / height, texts.title, size=11, weight="bold", va="top")
    figure.text(left, 1 - 0.32 / height, texts.subtitle, size=8.5, color=GREY, va="top")
    figure.text(
        left, 0.07 / height, "\n".join(caption), size=7.5, color=GREY, va="bottom", linespacing=1.4
    )
    figure.set_label(texts.caption)
    if handles:
        _legend(figure, handles, legend_columns, 1 - TITLES_IN / height)
    panel_width = (SHEET_IN - left_in - 0.2 - between_in * (columns - 1)) / columns
    all_axes = []
    for index in range(count):
        row, column = divmod(index, columns)
        x = left_in + column * (panel_width + between_in)
        y = height - above_in - row * row_in - title_in - panel_in
        place = (x / SHEET_IN, y / height, panel_width / SHEET_IN, panel_in / height)
        axes = figure.add_axes(place)
        axes.yaxis.set_major_formatter(FuncFormatter(value_label))
        is_lowest = index + columns >= count
        axes.tick_params(axis="x", labelbottom=own_x or is_lowest)
        if x_label and is_lowest:
            axes.set_xlabel(x_label, labelpad=3)
        all_axes.append(axes)
    return figure, all_axes


def _legend_columns(handles: Mapping[str, Artist]) -> int:
    """As many columns as there is room for; the labels stand in rows."""
    widths = [width_in(label) + HANDLE_IN for label in handles]
    for columns in range(len(widths), 1, -1):
        widest = [max(widths[column::columns]) for column in range(columns)]
        if sum(widest) + COLUMN_GAP_IN * (columns - 1) <= SHEET_IN - 2 * MARGIN_IN:
            return columns
    return 1


def _legend(figure: Figure, handles: Mapping[str, Artist], columns: int, top: float) -> None:
    # By rows: a reader looks for the order of the labels from left to right.
    order = [i for column in range(columns) for i in range(column, len(handles), columns)]
    labels = list(handles)
    legend = figure.legend(
        [handles[labels[index]] for index in order],
        # matplotlib leaves out labels that begin with an underscore, so they are written in below.
        ["x"] * len(order),
        loc="upper left",
        bbox_to_anchor=(MARGIN_IN / SHEET_IN, top),
        ncols=columns,
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.3,
        handlelength=2.4,
        columnspacing=1.4,
        fontsize=LABEL_POINTS,
    )
    for text, index in zip(legend.get_texts(), order, strict=True):
        text.set_text(labels[index])


def width_in(text: str, points: float = LABEL_POINTS) -> float:
    """The width of a text in inches."""
    font = FontProperties(family="DejaVu Sans", size=points)
    width, _, _ = _renderer().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / MEASURED_DOTS_PER_INCH


@functools.cache
def _renderer() -> Any:
    return RendererAgg(1, 1, MEASURED_DOTS_PER_INCH)  # type: ignore[no-untyped-call]


def row_labels(labels: Iterable[str]) -> dict[str, str]:
    """Labels for the left side of rows: those that are too wide stand in two lines, and end with an
    ellipsis where that is not enough.
    """
    return {label: _two_lines(label) for label in labels}


def _two_lines(label: str) -> str:
    width = width_in(label)
    if width <= WIDEST_LABEL_IN:
        return label
    characters = int(len(label) * WIDEST_LABEL_IN / width)
    lines = textwrap.wrap(label, characters)
    if len(lines) <= 2:
        return "\n".join(lines)
    return f"{lines[0]}\n{lines[1][: characters - 1]}…"


def widest_in(labels: Iterable[str]) -> float:
    """The room that row labels take."""
    return max((width_in(line) for one in labels for line in one.split("\n")), default=0.0)


def row_height_in(labels: Iterable[str]) -> float:
    """The height of a row, such that no label touches the next."""
    return ROW_IN[max((1 + label.count("\n") for label in labels), default=1)]


def rows_axis(axes: Axes, labels: Sequence[str], *, named: bool) -> None:
    """One row for each label from top to bottom, on the y axis; faint lines lead to the name."""
    axes.margins(x=0.06)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels if named else [""] * len(labels))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda at, _: labels[round(at)] if named else ""))
    axes.tick_params(axis="y", length=0, labelsize=LABEL_POINTS, labelcolor=INK)
    for label in axes.get_yticklabels():
        label.set_linespacing(0.95)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x", color=RULE, linewidth=0.6)
    axes.grid(visible=True, axis="y", color=RULE, linewidth=0.4)
    few_numbers(axes.xaxis, 3)
    axes.xaxis.set_major_formatter(FuncFormatter(value_label))


def few_numbers(axis: Any, count: int) -> None:
    """About this many round numbers on an axis."""
    axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]))


def runs_of(used: Iterable[int], planned: Iterable[int]) -> str:
    """How many of the planned runs enter the numbers: `3 to 5 of 5 runs`."""
    all_planned = _range(planned)
    return f"{_range(used)} of {all_planned} run{'' if all_planned == '1' else 's'}"


def _range(counts: Iterable[int]) -> str:
    present = sorted(set(counts))
    ends = dict.fromkeys((present[0], present[-1]))
    return " to ".join(str(end) for end in ends)
