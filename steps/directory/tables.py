"""CSV files that grow by whole lines, are cut back on resume, and can be read while they grow."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import NoUsableState
from steps.directory.files import die, full_disk_explained, read_bytes, will_fault, write_all

if TYPE_CHECKING:
    import numpy as np

Cell = int | float | str | None
TABLE_LIMIT_BYTES = 2**30
TAIL_BYTES = 65536


class Table:
    """The one writer of a CSV file. Every row reaches the file as one write, so readers see whole lines or a torn last one.

    offset: bytes to keep of the existing file, as a checkpoint stored them; 0 starts the file anew. The header is written
    with the first row. Raises `NoUsableState` if the file is shorter than the offset.
    """

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        size = os.fstat(self._descriptor).st_size
        if size < offset:
            os.close(self._descriptor)
            raise NoUsableState(
                f"{path} has {size} bytes, the checkpoint was taken at {offset}; delete {path.parent} to start this run again"
            )
        os.ftruncate(self._descriptor, offset)
        self.offset = offset
        self._columns: tuple[str, ...] | None = _header(path) if offset else None

    def append(self, row: Mapping[str, Cell]) -> None:
        """Add one row; `None` is an empty cell, floats are written by `repr` so that they read back exactly."""
        if self._columns is None:
            self._columns = tuple(row)
            self._write(format_line(self._columns))
        if tuple(row) != self._columns:
            raise ValueError(f"{self.path} has the columns {self._columns}, the row has {tuple(row)}")
        self._write(format_line(row.values()))

    def sync(self) -> None:
        """Down to the disk: a checkpoint may then store `offset`."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; rows are already in it."""
        os.close(self._descriptor)

    def _write(self, line: str) -> None:
        content = line.encode()
        if will_fault("mid_row", self.path):
            write_all(self._descriptor, content[: len(content) // 2])
            die()
        with full_disk_explained(self.path, len(content)):
            write_all(self._descriptor, content)
        self.offset += len(content)


def format_line(cells: Iterable[Cell]) -> str:
    """One CSV line."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(["" if cell is None else format_cell(cell) for cell in cells])
    return text.getvalue()


def format_cell(cell: Cell) -> str:
    """A cell as text: floats by `repr`."""
    return repr(float(cell)) if isinstance(cell, float) else str(cell)


def format_table(columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> str:
    """A whole CSV file as text, for `write_atomically`."""
    return format_line(columns) + "".join(format_line([row[column] for column in columns]) for row in rows)


def read_rows(path: Path, *, until_step: int | None = None) -> list[dict[str, str]]:
    """The whole lines of a CSV that may still grow; with `until_step` only the rows up to that environment step.

    Raises `FileNotFoundError`.
    """
    content = read_bytes(path, TABLE_LIMIT_BYTES)
    whole = content[: content.rfind(b"\n") + 1].decode()
    rows = list(csv.DictReader(io.StringIO(whole)))
    return rows if until_step is None else [row for row in rows if int(row["step"]) <= until_step]


def read_columns(path: Path, *, until_step: int | None = None) -> dict[str, np.ndarray]:
    """The columns of a numeric CSV as float64 arrays [rows]; an empty cell is NaN."""
    import numpy as np

    rows = read_rows(path, until_step=until_step)
    names = list(rows[0]) if rows else list(_header(path))
    return {name: np.array([_number(row[name]) for row in rows], dtype=np.float64) for name in names}


def last_row(path: Path, *, having: str | None = None) -> dict[str, str] | None:
    """The last whole row (with a value in column `having`) among the last 64 KiB; None if there is none or no file."""
    try:
        with path.open("rb") as file:
            header = file.readline()
            size = file.seek(0, os.SEEK_END)
            start = max(len(header), size - TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    if not header.endswith(b"\n"):
        return None
    whole = lines if start == len(header) else lines[1:]
    rows = list(csv.DictReader(io.StringIO(b"\n".join([header.rstrip(b"\n"), *whole]).decode())))
    return next((row for row in reversed(rows) if having is None or row.get(having)), None)


def whole_lines_bytes(path: Path) -> int:
    """Where the last whole line of a file ends; 0 without a file."""
    try:
        content = read_bytes(path, TABLE_LIMIT_BYTES)
    except FileNotFoundError:
        return 0
    return content.rfind(b"\n") + 1


def _header(path: Path) -> tuple[str, ...]:
    with path.open("rb") as file:
        line = file.readline(65536)
    return tuple(next(csv.reader([line.decode()]), ())) if line.endswith(b"\n") else ()


def _number(text: str) -> float:
    return float(text) if text else math.nan
