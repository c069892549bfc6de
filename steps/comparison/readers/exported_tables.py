"""CSV files: exports of a W&B chart, which have a column for each run, and any other table whose
columns are named by options.

A table of the second kind has a row for each value: `step=` and `value=` are columns, and so are
`run=`, `label_column=` and `game_column=`, where it holds several runs, algorithms or games.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from config.errors import BadInput, on_one_line, printable
from steps.comparison.entries import Entry
from steps.comparison.readers.known_metrics import Series, chosen, entry_of_runs, run_of
from steps.comparison.readers.run_names import (
    game_of,
    of_cleanrl,
    short_name,
)
from steps.comparison.readers.source import Reader, Source, usable_text
from steps.directory.files import read_bytes

MADE_BY_WANDB, MADE_BY = "unknown, by an export of W&B", "unknown, by a table"
LARGEST_BYTES = 256 * 2**20
LARGEST_STEP = 1e15
STEPS = ("global_step", "Step", "_step")
"""W&B's own count of steps is that of what was logged; `global_step` is the trainer's."""
BETWEEN = " - "
TWINS = ("__MIN", "__MAX")
ONE_RUN = "0"

Key = tuple[str, str]
"""A label and a game."""


@dataclass
class Values:
    """The values of one metric in one run, by rows."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def series(self) -> Series:
        """The same in arrays, in the order of the steps."""
        order = np.argsort(self.steps, kind="stable")
        return Series(
            steps=np.array(self.steps, np.int64)[order],
            values=np.array(self.values, np.float64)[order],
        )


Runs = dict[str, dict[str, Values]]
"""Run -> metric -> its values."""


def recognises(path: Path) -> bool:
    """Whether this is a CSV file."""
    return path.suffix.lower() == ".csv" and path.is_file()


def read(source: Source) -> list[Entry]:
    """An entry for each label and game."""
    header, rows = _table(source.path)
    if _lines(header) and source.options.get("value") not in header:
        return _of_wandb(source, header, rows)
    return _of_rows(source, header, rows)


READER = Reader(
    title="exports of W&B and other tables",
    form="a file NAME.csv",
    options=(
        "label",
        "game",
        "frames",
        "step",
        "value",
        "run",
        "label_column",
        "game_column",
        "kind",
    ),
    recognises=recognises,
    read=read,
)


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The header, and the rows, each as long as that. Raises `BadInput`, which names the file."""
    try:
        text = read_bytes(path, LARGEST_BYTES).decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (ValueError, csv.Error) as error:
        raise BadInput(f"{path} is no CSV file: {on_one_line(error)}") from error
    if not rows:
        raise BadInput(f"{path} is empty")
    header = rows[0]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            cells = f"row {number} has {len(row)} cells, the first one {len(header)}"
            raise BadInput(f"{path} is no CSV file: {cells}")
    return header, rows[1:]


def _lines(header: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Column -> (run, metric) of an export of W&B; the smallest and largest values that it has beside
    each column are left out, and so are its own counts and clocks.
    """
    if not set(STEPS) & set(header):
        return {}
    found = {}
    for at, name in enumerate(header):
        run, between, metric = name.rpartition(BETWEEN)
        if between and not name.endswith(TWINS) and metric not in STEPS and metric[:1] != "_":
            found[at] = (run, metric)
    return found


def _of_wandb(source: Source, header: list[str], rows: list[list[str]]) -> list[Entry]:
    """Two runs may have one name, and are told apart by their order."""
    step = source.column("step", header)
    if step is None:
        step = header.index(next(name for name in STEPS if name in header))
    lines = _lines(header)
    metrics = {metric for _, metric in lines.values()}
    wanted = chosen(source, "value", metrics)
    groups: dict[Key, Runs] = {}
    for at, (name, metric) in lines.items():
        if metric not in {
            one.name for one in (wanted.score, wanted.training, wanted.policy) if one
        }:
            continue
        named = of_cleanrl(Path(name))
        where = f"run {name!r} in {source.path}"
        key = (source.needed("label", named.label, where), game_of(source, named.game, where))
        runs = groups.setdefault(key, {})
        run = next(one for one in _numbered(name) if metric not in runs.get(one, {}))
        runs.setdefault(run, {})[metric] = _column(source.path, rows, step, at)
    remarks = () if header[step] == STEPS[0] else (f"steps are the column {header[step]} of W&B",)
    entries = [_entry(source, key, runs, metrics, MADE_BY_WANDB) for key, runs in groups.items()]
    return [dataclasses.replace(entry, remarks=remarks) for entry in entries]


def _numbered(name: str) -> list[str]:
    return [name, *(f"{name} ({number})" for number in range(2, 1001))]


def _column(path: Path, rows: list[list[str]], step: int, value: int) -> Values:
    found = Values()
    for number, row in enumerate(rows, start=2):
        if row[value]:
            found.steps.append(_step(path, number, row[step]))
            found.values.append(_number(path, number, row[value]))
    return found


def _of_rows(source: Source, header: list[str], rows: list[list[str]]) -> list[Entry]:
    step, value = (_named(source, option, header) for option in ("step", "value"))
    run = source.column("run", header)
    names = {"label": source.column("label_column", header)}
    names["game"] = source.column("game_column", header)
    metric = header[value]
    chosen(source, "value", [metric])
    fixed = _fixed(source, names)
    groups: dict[Key, Runs] = {}
    for number, row in enumerate(rows, start=2):
        if not row[value]:
            continue
        label = fixed["label"] if names["label"] is None else row[names["label"]]
        game = fixed["game"] if names["game"] is None else short_name(row[names["game"]])
        if not usable_text(label) or not usable_text(game):
            raise BadInput(f"{source.path}: row {number} has no label or no game that can be shown")
        of_run = groups.setdefault((label, game), {}).setdefault(
            ONE_RUN if run is None else row[run], {}
        )
        values = of_run.setdefault(metric, Values())
        values.steps.append(_step(source.path, number, row[step]))
        values.values.append(_number(source.path, number, row[value]))
    if not groups:
        raise BadInput(f"{source.path} has no value in column {metric!r}")
    return [_entry(source, key, runs, [metric], MADE_BY) for key, runs in groups.items()]


def _named(source: Source, option: str, header: list[str]) -> int:
    column = source.column(option, header)
    if column is None:
        raise BadInput(
            f"{source.path} is no export of W&B (a column Step, and NAME{BETWEEN}METRIC for each run): "
            f"say its column {option}=; there are: {', '.join(header)}"
        )
    return column


def _fixed(source: Source, names: Mapping[str, int | None]) -> dict[str, str]:
    """The label and the game of the whole table, where no column has them. Raises `BadInput` if one is
    given twice, or not at all.
    """
    for name, column in names.items():
        if column is not None and name in source.options:
            raise BadInput(f"{name}= and {name}_column= exclude each other ({source.path})")
    return {
        "label": source.needed("label", "", source.path) if names["label"] is None else "",
        "game": game_of(source, "", source.path) if names["game"] is None else "",
    }


def _step(path: Path, row: int, text: str) -> int:
    step = _number(path, row, text)
    if not abs(step) <= LARGEST_STEP:
        raise BadInput(f"{path}: row {row} has the step {text[:40]!r}; allowed: a number")
    return int(step)


def _number(path: Path, row: int, text: str) -> float:
    if text.lower() in ("nan", "null", ""):
        return math.nan
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{path}: row {row} has {text[:40]!r}; allowed: a number") from None


def _entry(
    source: Source, key: Key, runs: Runs, metrics: Sequence[str] | set[str], made_by: str
) -> Entry:
    label, game = key
    choice = chosen(source, "value", metrics)
    compared = [
        run_of(printable(name), {metric: one.series() for metric, one in found.items()}, choice)
        for name, found in runs.items()
    ]
    return entry_of_runs(source, label, game, compared, choice, made_by)
