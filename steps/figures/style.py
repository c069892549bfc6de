"""The look shared by all plots, and how they are written.

Colours are those of Okabe & Ito (2008), which people with any kind of colour blindness can tell
apart. INK and GREY have values that occur nowhere else, so that the report can exchange them on a
dark page.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from config.numbers import number, short
from config.resolved import Resolved
from steps.directory.files import write_atomically
from steps.statistics.scores import Floats

INK = "#1c2733"
GREY = "#5f6b7a"
RULE = "#d5dbe3"
BLUE = "#0072b2"
VERMILION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#cc79a7"
ORANGE = "#e69f00"
SKY = "#56b4e9"
RUN_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
ABSENT = "#8a94a3"

WIDTH_IN = 6.4
DOTS_PER_INCH = 150
PNG_COMPRESSION = 3
"""Takes half of the time of level 6 for a tenth more bytes."""
MOST_POINTS = 1600
"""Points drawn of a line: more points than pixels would only make files larger."""
CAPTION_CHARACTERS = 114
LABEL_BELOW_IN = 0.32
LEGEND_COLUMNS = 2
LEGEND_LINE_IN = 0.19
CONSTANT = 1e-6
"""The relative error that a mean over many equal values may have."""
LEFT = {1: 0.135, 2: 0.085, 3: 0.085}
"""Number of columns -> left margin as a share of the width. In one column the y axis has a label.
"""

SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    # Names may hold dollar signs, which matplotlib would take for formulas.
    "text.parse_math": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.titley": 1.0,
    "axes.unicode_minus": True,
    "axes.xmargin": 0.01,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Without it matplotlib makes up new ids in every SVG file.
    "svg.hashsalt": "experiment",
    # Letters as outlines: the file looks the same without the font.
    "svg.fonttype": "path",
    # Outlines that publishers accept; matplotlib's default, Type 3, many refuse.
    "pdf.fonttype": 42,
    "path.simplify": True,
    "path.simplify_threshold": 0.5,
}


@contextmanager
def look() -> Iterator[None]:
    """Every figure is made and written inside of this context, so that the machine's own matplotlib
    settings have no effect.
    """
    with mpl.rc_context(SETTINGS):
        yield


def panels(count: int, *, title: str, subtitle: str) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes, with `title` in bold and `subtitle` in grey below it."""
    columns = columns_of(count)
    height = 4.0 if count == 1 else 1.45 + 1.5 * -(-count // columns)
    # pyplot would keep every figure alive and might look for a display.
    figure = Figure(figsize=(WIDTH_IN, height))
    FigureCanvasAgg(figure)
    figure.text(0.012, 1 - 0.10 / height, title, size=11, weight="bold", va="top")
    figure.text(0.012, 1 - 0.32 / height, subtitle, size=8.5, color=GREY, va="top")
    all_axes = [
        figure.add_subplot(-(-count // columns), columns, index + 1) for index in range(count)
    ]
    for axes in all_axes:
        _place_labels(figure, axes)
        axes.yaxis.set_major_formatter(FuncFormatter(value_label))
    return figure, all_axes


def columns_of(count: int) -> int:
    """Number of columns for this many panels."""
    if count == 1:
        return 1
    if count <= 4:
        return 2
    return 3


def _place_labels(figure: Figure, axes: Axes) -> None:
    """Put axis labels at fixed places: letting matplotlib find free ones measures every tick label,
    a sixth of a figure's time.
    """
    below = ScaledTranslation(0, -LABEL_BELOW_IN, figure.dpi_scale_trans)
    axes.xaxis.set_label_coords(0.5, 0, transform=axes.transAxes + below)
    axes.yaxis.set_label_coords(
        0.03, 0.5, transform=blended_transform_factory(figure.transFigure, axes.transAxes)
    )


def value_label(value: float, _: int | None) -> str:
    """Format a tick as −1250 or −20k: the left margin has room for seven characters."""
    is_plain = 1000 <= abs(value) < 10_000
    return f"{value:g}".replace("-", "−") if is_plain else short(value)


def arrange(figure: Figure, *caption: str) -> None:
    """Leave room for the titles above and for the caption, whose paragraphs stand grey below the
    axes. Lines of a single point become dots: nothing would be seen of them.
    """
    for line in (line for axes in figure.axes for line in axes.lines):
        if len(np.asarray(line.get_ydata())) == 1 and line.get_marker() == "None":
            line.set(marker="o", markersize=4)
    lines = [line for paragraph in caption for line in textwrap.wrap(paragraph, CAPTION_CHARACTERS)]
    height = figure.get_figheight()
    figure.text(
        0.012, 0.07 / height, "\n".join(lines), size=7.5, color=GREY, va="bottom", linespacing=1.4
    )
    columns = columns_of(len(figure.axes))
    has_titles = any(axes.get_title(loc="left") for axes in figure.axes)
    top_in = (0.85 if has_titles else 0.62) + LEGEND_LINE_IN * max(map(_legend_lines, figure.axes))
    bottom_in = 0.62 + 0.155 * len(lines)
    figure.subplots_adjust(
        left=LEFT[columns],
        right=0.965,
        top=1 - top_in / height,
        bottom=bottom_in / height,
        hspace=0.5,
        wspace=0.36,
    )


def steps_axis(axes: Axes, frames_per_step: int, *, narrow: bool = False) -> None:
    """Label the x axis with environment steps and say what a step is if it is more than a frame; a
    narrow panel's caption says it instead.
    """
    label = "environment steps"
    if frames_per_step > 1 and not narrow:
        label += f" (of {frames_per_step} frames each)"
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(3 if narrow else 7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def time_axis(axes: Axes, longest_ms: float | None = None, *, narrow: bool = False) -> None:
    """Label an x axis whose values are milliseconds of training, in the largest unit of which there
    are at least two. longest_ms: the end of the longest of several panels, which share one unit.
    """
    units = (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))
    end = axes.dataLim.x1 if longest_ms is None else longest_ms
    name, size = next((one for one in units if end >= 2 * one[1]), units[-1])
    axes.set_xlabel(f"{name} of training")
    axes.xaxis.set_major_locator(TimeLocator(size, 3 if narrow else 7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value / size)))


class TimeLocator(MaxNLocator):
    """Ticks at round numbers of a unit of `size` milliseconds."""

    def __init__(self, size: int, count: int) -> None:
        super().__init__(count, steps=[1, 2, 2.5, 5, 10])
        self._size = size

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """The places of the ticks, in milliseconds."""
        ticks = super().tick_values(vmin / self._size, vmax / self._size)
        return [self._size * tick for tick in ticks]


def steps_caption(frames_per_step: int) -> str:
    """A sentence for the caption of narrow panels, or nothing."""
    return f" A step is {frames_per_step} frames." if frames_per_step > 1 else ""


def legend(axes: Axes) -> None:
    """Put the legend between titles and axes: inside the axes no place is certainly free of curves."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.03),
        ncols=LEGEND_COLUMNS,
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.3,
        handlelength=1.6,
    )


def _legend_lines(axes: Axes) -> int:
    """Number of lines that the legend takes."""
    shown = axes.get_legend()
    return 0 if shown is None else -(-len(shown.get_texts()) // LEGEND_COLUMNS)


def small_multiple(axes: Axes, title: str) -> None:
    """Prepare one of several panels that share their x axis, which is labelled below the last panel
    of each column only.
    """
    everything = axes.get_figure(root=True).axes  # type: ignore[union-attr]
    last = axes in everything[-columns_of(len(everything)) :]
    axes.set_title(title)
    _few_numbers(axes)
    if not last:
        axes.xaxis.set_visible(False)  # drawing ticks is most of the time of a figure


def _few_numbers(axes: Axes) -> None:
    """About three ticks on the y axis, or one if nothing changes, because three would read alike."""
    low = axes.dataLim.y0
    high = axes.dataLim.y1
    if 0 <= high - low <= CONSTANT * abs(high):
        axes.set_ylim(*(sorted((0, 2 * high)) if high else (-1, 1)))
        axes.set_yticks([high])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))


def share_x(figure: Figure) -> None:
    """Give all panels the same x range: a learner may start to measure something late."""
    low = min(axes.dataLim.x0 for axes in figure.axes)
    high = max(axes.dataLim.x1 for axes in figure.axes)
    margin = SETTINGS["axes.xmargin"] * (high - low)
    if margin > 0:
        for axes in figure.axes:
            axes.set_xlim(low - margin, high + margin)


def experiment_line(resolved: Resolved) -> str:
    """What was trained and for how long; the subtitle of every plot."""
    what = f"{resolved.descriptor.name.upper()} on {resolved.game.title}"
    return f"{what}, {number(resolved.epochs)} epochs of {number(resolved.steps_per_epoch)} steps"


def visible(steps: Floats, values: Floats) -> tuple[Floats, Floats]:
    """At most MOST_POINTS points of a long line: the lowest and the highest of each stretch, so
    that no peak is lost.
    """
    if len(values) <= MOST_POINTS:
        return steps, values
    edges = np.linspace(0, len(values), MOST_POINTS // 2 + 1).astype(int)
    starts = edges[:-1, None]
    ends = edges[1:, None]
    # [stretches, points]: the last point of a short stretch stands twice, which changes neither
    # extreme.
    stretches = np.minimum(starts + np.arange((ends - starts).max()), ends - 1)
    lowest = starts[:, 0] + np.argmin(values[stretches], axis=1)
    highest = starts[:, 0] + np.argmax(values[stretches], axis=1)
    chosen = np.unique(np.concatenate([lowest, highest]))
    return steps[chosen], values[chosen]


def write(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write `stem`.png for screens, `stem`.svg for pages and, if asked for, `stem`.pdf for papers. The
    same numbers give the same bytes: there is no date and no random id.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in formats:
        content = io.BytesIO()
        figure.savefig(content, format=kind, **_options(figure)[kind])
        path = stem.with_name(f"{stem.name}.{kind}")
        write_atomically(path, content.getvalue())
        written.append(path)
    return written


def _options(figure: Figure) -> dict[str, dict[str, Any]]:
    """Format -> options of its writer. The label of a figure, if it has one, is what it says in words."""
    said = figure.get_label() or None
    return {
        "png": {
            "dpi": DOTS_PER_INCH,
            "metadata": {"Software": None},
            "pil_kwargs": {"compress_level": PNG_COMPRESSION},
        },
        "svg": {"metadata": {"Date": None, "Creator": None, "Description": said}},
        "pdf": {
            "metadata": {"CreationDate": None, "Creator": None, "Producer": None, "Subject": said}
        },
    }
