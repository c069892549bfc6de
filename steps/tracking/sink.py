"""What a tracker is to this project: five methods, which `steps.tracking.sender` calls in this order.

    destination   where to, before anything else
    start         once in a process, again after any error
    rows          each time there are new rows
    file          for each file that is new or has changed, at the end
    finish        once, when nothing is left to send

Every method may raise whatever it likes. The sender then drops the object, makes a new one later, and
sends the rows again that were under way: what had arrived of them must not be stored twice. A row is
known by its number, which stays the same when it is sent again. A sink that does not return from
`start` how many rows it has finds out for itself which of the first rows it knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from config.errors import BadInput, WrongDirectory
from config.imports import imported, lies_in
from config.tracking import METHODS, TRACKERS, names, refuse_missing

PROJECT = "rl-training-dag"
"""The project of all runs where the tracker's own variable names no other."""

CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
"""`user:password@` in an address."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as a tracker knows it.

    id: the same whatever is killed, in this directory. name: for people. group: what the runs of one
    experiment have in common. hyperparameters: parameter -> value. folder: the run's, for files of
    the sink's own. next_step: the step of the first row of the training that may come again.
    """

    id: str
    name: str
    group: str
    hyperparameters: Mapping[str, object]
    folder: Path
    next_step: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table.

    number: counts all rows of the run, whatever their group, from 0. group: `train` for rows of
    train.csv, `eval` of evaluation-curve.csv, `evaluation` of the final policy's episodes. step: of
    the environment; for an episode its index. values: column -> number, without empty cells.
    """

    number: int
    group: str
    step: int
    values: Mapping[str, float]


class Sink(Protocol):
    """A tracker. It is made without arguments; what it needs to know it reads from its environment."""

    def destination(self) -> str:
        """Where things are sent now, without any secret: an address. Where it is another one than
        before, the whole run is sent there.
        """

    def start(self, run: TrackedRun) -> int | None:
        """Open a run, or go on with it. Returns how many rows the tracker has, which are the first
        ones; None if it cannot say.
        """

    def rows(self, rows: Sequence[Row]) -> None:
        """Send rows, in the order of their numbers."""

    def file(self, path: Path, name: str) -> None:
        """Send a file. name: relative, such as `videos/episode-0.mp4`; a file of this name that was
        sent before is replaced.
        """

    def finish(self) -> None:
        """Return when everything has arrived."""


def load(name: str) -> type[Sink]:
    """The class of a tracker, by its name or import path. Raises `BadInput`."""
    path = TRACKERS[name].sink if name in TRACKERS else name
    found = imported(path, "tracker")
    missing = [method for method in METHODS if not callable(getattr(found, method, None))]
    if not isinstance(found, type) or missing:
        raise BadInput(
            f"tracker {name!r} cannot be used: it needs to be a class with the methods "
            f"{', '.join(METHODS)}; missing: {', '.join(missing) or 'the class'}"
        )
    return found


def check(track: str | None, results: Path) -> None:
    """Raise `BadInput` for trackers that cannot be used here, and `WrongDirectory` for one whose module
    lies among the results: code that came with results is never run.
    """
    refuse_missing(track)
    for name in names(track):
        if name in TRACKERS:
            continue
        refuse_among_results(name, results)
        load(name)


def refuse_among_results(name: str, results: Path) -> None:
    """Raise `WrongDirectory` if a tracker's module would be imported from inside the results."""
    if name not in TRACKERS and lies_in(name, results):
        raise WrongDirectory(
            f"the module of tracker {name!r} lies in {results}, among the results, where it is never "
            "imported from; if you trust it, move it elsewhere on the Python path"
        )


def without_credentials(text: str) -> str:
    """A text without the names and passwords of its addresses."""
    return CREDENTIALS.sub("", text)
