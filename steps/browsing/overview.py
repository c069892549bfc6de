"""All lines of the overview, each read again only where its files have changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from steps.browsing.gathered import gather
from steps.browsing.life import look
from steps.browsing.places import Place, find_places
from steps.browsing.rows import Row, living, read_row
from steps.directory.layout import ExperimentDirectory, RunDirectory

Signature = tuple[int, ...]
"""The times of modification of what a line depends on. A whole file appears by a rename, which changes
its folder; of a file that grows, the time of its own.
"""
MISSING = -1
MOST_DIGITS = 6


class Overview:
    """The lines of a folder. It may be asked by several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[Path, tuple[Signature, Row]] = {}
        self._lock = threading.Lock()

    def rows(self) -> list[Row]:
        """The lines as the files are now, in the order of their paths."""
        with self._lock:
            places = find_places(self.root)
            rows = {place.path: self._row(place) for place in places if place.kind == "experiment"}
            # What has gone is forgotten, so that the memory of a server does not grow.
            self._known = {path: known for path, known in self._known.items() if path in rows}
        return [self._line(place, rows) for place in places]

    def row(self, path: Path) -> Row:
        """The line of one experiment."""
        with self._lock:
            return self._row(Place("experiment", path))

    def _row(self, place: Place) -> Row:
        now = signature(place.path)
        before = self._known.get(place.path)
        if before is None or before[0] != now:
            self._known[place.path] = before = (now, read_row(place, self.root))
        directory = ExperimentDirectory(place.path)
        return living(before[1], look(directory.owner_json))

    def _line(self, place: Place, rows: dict[Path, Row]) -> Row:
        if place.kind == "experiment":
            return rows[place.path]
        if place.kind == "unreadable":
            return Row(place=place, state="damaged", note=place.damage)
        parts = [row for path, row in rows.items() if path.is_relative_to(place.path)]
        return gather(place, parts)


def signature(root: Path) -> Signature:
    """What changes whenever a step has written into an experiment's directory."""
    return tuple(_modified_ns(path) for path in _watched(ExperimentDirectory(root)))


def _watched(directory: ExperimentDirectory) -> Iterator[Path]:
    # Without the owner's file, which is touched all the time, and is looked at all the time.
    yield from (directory.root, directory.experiment_yaml, directory.compute_json)
    yield from (directory.status, directory.average, directory.average / "plots")
    yield directory.runs
    for run in _runs_in(directory):
        yield from (run.root, run.status, run.checkpoints, run.plots, run.videos)
        yield from (run.train_csv, run.resources_csv)


def _runs_in(directory: ExperimentDirectory) -> list[RunDirectory]:
    """The directories of runs that are there."""
    try:
        names = [path.name for path in directory.runs.iterdir()]
    except OSError:
        return []
    numbers = sorted(int(name) for name in names if name.isdecimal() and len(name) <= MOST_DIGITS)
    return [directory.run(number) for number in numbers]


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return MISSING
