"""Decides whether a run is filmed on this machine, or the step of its films is skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from steps.command.context import Skipped, StepContext
from steps.directory.elsewhere import Drawing, drawn_elsewhere
from steps.films.mp4 import check_codec


def film_or_skip(
    context: StepContext, unfilmed: str | None, film: Callable[[StepContext], dict[str, Any]]
) -> dict[str, Any] | Skipped:
    """Return what `film` returns, or why there is no film.

    unfilmed: why nothing is to be filmed whatever the machine, or None. `film` is called with the
    variables set by which the pictures are drawn; it may raise `NoImages`.
    """
    drawing = _drawing(context, unfilmed)
    if drawing.refused is not None:
        return Skipped(drawing.refused)
    os.environ.update(drawing.variables)
    check_codec()
    from agents.evaluation.pictures import NoImages

    try:
        return film(context)
    except NoImages as error:
        return Skipped(f"{context.resolved.game.name!r} gives no images: {error}")


def nothing_left_to_film(context: StepContext, unfilmed: str | None, paths: Iterable[Path]) -> bool:
    """Whether the films of a finished step are there, or would be skipped again. unfilmed: as for
    `film_or_skip`.
    """
    if context.previous is not None and context.previous.state == "skipped":
        # What cannot be drawn here may be drawn on another machine, or once a library is installed.
        return _drawing(context, unfilmed).refused is not None
    return all(path.is_file() for path in paths)


def _drawing(context: StepContext, unfilmed: str | None) -> Drawing:
    """How the pictures are drawn on this machine, or why there is no film."""
    if unfilmed is not None:
        return Drawing({}, unfilmed)
    return drawn_elsewhere(context.resolved)
