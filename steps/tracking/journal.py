"""`runs/<n>/tracking/<tracker>.json`: which rows and files of a run a tracker has, so that any kill is
survived.

A row's number is written down before it is sent, and confirmed after that. What was written down and
not confirmed is sent again, with the same numbers. One process at a time writes the file: `track` of
the run, and when that has ended `track-rest`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from config.errors import BadInput, WrongDirectory
from steps.directory.files import read_bytes, write_atomically
from steps.directory.layout import RunDirectory

LIMIT_BYTES = 2**24


@dataclass(kw_only=True)
class Sent:
    """The part of a table that has a number: so many rows, which end after so many bytes. sha256: of
    these bytes.
    """

    rows: int = 0
    bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Rows with successive numbers, of one group: its rows from `first` on."""

    group: str
    first: int
    count: int


@dataclass(kw_only=True)
class Journal:
    """What a tracker has of one run.

    id: the run's, see `TrackedRun`. destination: where it was sent. segments: all rows that have a number, in the order of the
    numbers. confirmed: how many of them have arrived. tables: by group. files: name -> SHA-256 of what
    was sent. finished: whether everything arrived that there was.
    """

    id: str
    destination: str = ""
    segments: list[Segment] = field(default_factory=list)
    confirmed: int = 0
    tables: dict[str, Sent] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    finished: bool = False

    @property
    def numbered(self) -> int:
        """How many rows have a number."""
        return sum(segment.count for segment in self.segments)

    def go_to(self, destination: str) -> None:
        """Forget what has arrived elsewhere."""
        self.destination = destination
        self.confirmed = 0
        self.files.clear()
        self.finished = False

    def extend(self, group: str, sent: Sent) -> None:
        """Give the rows of a table up to here the next numbers."""
        first = self.tables.get(group, Sent()).rows
        count = sent.rows - first
        last = self.segments[-1] if self.segments else None
        if last is not None and last.group == group:
            self.segments[-1] = Segment(group=group, first=last.first, count=last.count + count)
        else:
            self.segments.append(Segment(group=group, first=first, count=count))
        self.tables[group] = sent
        self.finished = False

    def unconfirmed(self) -> list[tuple[int, Segment]]:
        """(the number of its first row, the rows) for what has a number and may not have arrived."""
        found = []
        number = 0
        for one in self.segments:
            known = min(max(self.confirmed - number, 0), one.count)
            if known < one.count:
                rest = Segment(group=one.group, first=one.first + known, count=one.count - known)
                found.append((number + known, rest))
            number += one.count
        return found


def journal_path(run: RunDirectory, tracker: str) -> Path:
    """The file of one tracker."""
    return run.tracking / f"{tracker.replace(':', '.')}.json"


def read_journal(path: Path) -> Journal | None:
    """The journal; None without one. Raises `WrongDirectory` for a damaged one."""
    try:
        document = json.loads(read_bytes(path, LIMIT_BYTES))
        return _parsed(document)
    except FileNotFoundError:
        return None
    except (BadInput, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongDirectory(
            f"{path} cannot be read ({error}); delete it to send this run again, as a new one"
        ) from error


def _parsed(document: Mapping[str, Any]) -> Journal:
    return Journal(
        id=str(document["id"]),
        destination=str(document["destination"]),
        segments=[Segment(**one) for one in document["segments"]],
        confirmed=int(document["confirmed"]),
        tables={group: Sent(**one) for group, one in document["tables"].items()},
        files=dict(document["files"]),
        finished=bool(document["finished"]),
    )


def write_journal(path: Path, journal: Journal, permitted: Callable[[], None]) -> None:
    """Replace the file. permitted: raises if another process writes it now."""
    permitted()
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(asdict(journal), indent=1) + "\n")
