"""All figures of a comparison, from what it has found, as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from steps.comparison.compared import Comparison
from steps.directory.files import remove
from steps.figures import curves_per_game, grid_effects, over_games, scores_per_game
from steps.figures.style import look, write

FORMATS = ("png", "svg", "pdf")
FIGURES: dict[str, Callable[[Comparison], Figure | None]] = {
    "learning-curves": curves_per_game.against_steps,
    "learning-curves-hours": curves_per_game.against_hours,
    "evaluation-curves": curves_per_game.of_evaluations,
    "standings": scores_per_game.standings,
    "aggregates": over_games.aggregates,
    "profiles": over_games.profiles,
    "improvement": over_games.improvement,
    "efficiency": over_games.efficiency,
    "grid": grid_effects.slices,
    "grid-maps": grid_effects.maps,
}
"""File name -> what draws it; None where the comparison has nothing for it."""


def draw(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw what there is to draw, each figure in all formats, and return the files. A figure of an
    earlier comparison that has no content any more is removed.
    """
    written: list[Path] = []
    for name, figure_of in FIGURES.items():
        with look():
            figure = figure_of(comparison)
            if figure is not None:
                written += write(figure, folder / name, FORMATS)
                continue
        for kind in FORMATS:
            remove(folder / f"{name}.{kind}")
    return written
