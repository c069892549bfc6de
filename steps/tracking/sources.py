"""What there is to send of a run: rows of its tables, and files.

A training that is killed cuts train.csv back to its last checkpoint and writes the rest again, which
several processes do not do with the same bytes. So only rows up to the last checkpoint count here: they
never change.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from config.pipeline import EVALUATE, TRAIN
from config.resolved import Resolved
from steps.directory.files import open_regular
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import read_status
from steps.tracking.journal import Sent

CURVE = "evaluation-curve"
"""The step that leaves evaluation-curve.csv."""
COPY_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table. group: see `Row`. step: the column with a row's step. limit: the largest step whose row
    counts; None while no row does.
    """

    group: str
    path: Path
    step: str
    limit: float | None


@dataclass(frozen=True)
class Line:
    """One whole row of a table, and the table's size up to its end."""

    step: int
    values: Mapping[str, float]
    end: int


def sources(run: RunDirectory, resolved: Resolved) -> list[Source]:
    """The tables of a run, in the order in which they are sent."""
    evaluated = run.evaluated(resolved.measure)
    return [
        Source(group="train", path=run.train_csv, step="step", limit=_kept(run)),
        Source(
            group="eval", path=run.evaluation_curve_csv, step="step", limit=_when_left(run, CURVE)
        ),
        Source(group="evaluation", path=evaluated, step="episode", limit=_when_left(run, EVALUATE)),
    ]


def files(directory: ExperimentDirectory, run: RunDirectory, resolved: Resolved) -> list[Path]:
    """The files of a run to send when it has ended. The page is the first run's."""
    listed = [
        directory.experiment_yaml,
        run.train_csv,
        run.evaluation_curve_csv,
        run.evaluated(resolved.measure),
        *sorted(run.videos.glob("*.mp4")),
        *([directory.report_html] if run.index == 0 else []),
    ]
    return [path for path in listed if path.is_file()]


def sent_as(path: Path, directory: ExperimentDirectory, run: RunDirectory) -> str:
    """The name of a file at the tracker."""
    inside = run.root if path.is_relative_to(run.root) else directory.root
    return path.relative_to(inside).as_posix()


def sum_of(path: Path, length: float = math.inf) -> str:
    """The SHA-256 of a file, or of its first `length` bytes."""
    whole = hashlib.sha256()
    left = length
    with open_regular(path) as file:
        while left and (chunk := file.read(int(min(left, COPY_BYTES)))):
            whole.update(chunk)
            left -= len(chunk)
    return whole.hexdigest()


def lines(source: Source, after: int = 0) -> Iterator[Line]:
    """The rows that count, behind the first `after` bytes. Nothing without the table, or of an
    incomplete last line.
    """
    if source.limit is None or not source.path.is_file():
        return
    with open_regular(source.path) as file:
        header = file.readline()
        columns = _cells(header)
        file.seek(max(after, len(header)))
        end = file.tell()
        for raw in file:
            end += len(raw)
            if not raw.endswith(b"\n"):
                return
            cells = dict(zip(columns, _cells(raw), strict=False))
            step = int(cells.get(source.step) or 0)
            if step > source.limit:
                return
            yield Line(step, _numbers(cells, source.step), end)


def has_changed(source: Source, sent: Sent) -> bool:
    """Whether the table no longer begins with the rows that were sent."""
    return bool(sent.rows) and (
        not source.path.is_file() or sum_of(source.path, sent.bytes) != sent.sha256
    )


def _kept(run: RunDirectory) -> float | None:
    """Up to which step no row of train.csv will change."""
    status = read_status(run.status / f"{TRAIN}.json")
    if status is not None and status.state == "succeeded":
        return math.inf
    return max(run.checkpoint_steps(), default=None)


def _when_left(run: RunDirectory, step: str) -> float | None:
    """Without a limit once a step of the pipeline has left its whole table."""
    status = read_status(run.status / f"{step}.json")
    return math.inf if status is not None and status.ended_well else None


def _cells(line: bytes) -> list[str]:
    return next(csv.reader(io.StringIO(line.decode())), [])


def _numbers(cells: Mapping[str, str], step: str) -> dict[str, float]:
    found = {}
    for column, text in cells.items():
        if column != step and (number := _number(text)) is not None:
            found[column] = number
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # an empty cell, or a name
        return None
