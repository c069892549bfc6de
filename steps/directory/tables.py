"""CSV files that grow by whole lines, are cut back on resume, and can be read while they grow."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import NoUsableState, WrongDirectory
from steps.directory.files import (
    die,
    full_disk_explained,
    open_regular,
    read_bytes,
    remove_temporaries,
    sync_directory,
    temporary_beside,
    will_fault,
    write_all,
)

if TYPE_CHECKING:
    import numpy as np

Wanted = Callable[[str], bool]
Cell = int | float | str | None
TABLE_LIMIT_BYTES = 2**30
TAIL_BYTES = 65536
COPY_BYTES = 2**20
MANY_ROWS_BYTES = 4 * 2**20
"""From this size on, importing pandas pays: the `csv` module needs half a second for it."""


class Table:
    """The only writer of a CSV file. Every row reaches the file as one write, so readers see whole
    lines or an incomplete last one.

    Each writer makes a new file, which begins with the kept part of the previous one. An older
    attempt that is still alive writes to a file that has no name any more (`owner.Fence`), and
    notices that before its next row.

    offset: number of bytes to keep, as a checkpoint stored it; 0 starts anew. The header is written
    with the first row. permitted: raises `WrongDirectory` if a newer writer has started; with it, a
    file that an older writer, woken up late, put in this one's place is replaced again. Raises
    `NoUsableState` if the file is shorter than the offset.
    """

    def __init__(
        self, path: Path, *, offset: int = 0, permitted: Callable[[], None] | None = None
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.offset = offset
        self._permitted = permitted
        self._sum = hashlib.sha256()
        self._descriptor = self._new_file(self._kept_of_the_old_one())
        self._columns: tuple[str, ...] | None = _header(path) if offset else None

    @property
    def kept(self) -> dict[str, int | str]:
        """What a checkpoint may rely on: the file's size so far, and the SHA-256 of its content
        (see `checkpoints.load_newest`).
        """
        return {"bytes": self.offset, "sha256": self._sum.hexdigest()}

    def append(self, row: Mapping[str, Cell]) -> None:
        """Add one row. `None` becomes an empty cell; floats are written by `repr`, so that they
        read back exactly.

        Raises `WrongDirectory` if another process has written here since, or has put another file
        in this one's place.
        """
        if self._columns is None:
            self._columns = tuple(row)
            self._write(format_line(self._columns))
        if tuple(row) != self._columns:
            raise ValueError(
                f"{self.path} has the columns {self._columns}, the row has {tuple(row)}"
            )
        self._write(format_line(row.values()))

    def sync(self) -> None:
        """Sync the rows to the disk under the file's name, so that a checkpoint may store `kept`.
        Raises as `append`.
        """
        self._require_ours()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; rows are already in it."""
        os.close(self._descriptor)

    def _new_file(self, content: Iterable[bytes]) -> int:
        """Replace the file by a new one with this content."""
        self._require_permission()
        remove_temporaries(self.path.parent, of=f"{self.path.name}.")
        temporary = temporary_beside(self.path)
        # A new file and not the old one cut short: an older attempt may still write to that.
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        try:
            with full_disk_explained(self.path, self.offset):
                for chunk in content:
                    write_all(descriptor, chunk)
                os.fsync(descriptor)
            self._require_permission()  # copying may have taken long
            temporary.replace(self.path)
            sync_directory(self.path.parent)
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        return descriptor

    def _kept_of_the_old_one(self) -> Iterator[bytes]:
        left = self.offset
        with _open_without_links(self.path) if left else io.BytesIO() as old:
            while left and (chunk := old.read(min(left, COPY_BYTES))):
                self._sum.update(chunk)
                left -= len(chunk)
                yield chunk
        if left:
            raise NoUsableState(
                f"{self.path} has {self.offset - left} bytes, the checkpoint was taken at {self.offset}; "
                f"delete {self.path.parent} to start this run again"
            )

    def _own_content(self) -> Iterator[bytes]:
        position = 0
        while chunk := os.pread(self._descriptor, COPY_BYTES, position):
            position += len(chunk)
            yield chunk

    def _write(self, line: str) -> None:
        content = line.encode()
        self._require_ours()
        if will_fault("mid_row", self.path):
            write_all(self._descriptor, content[: len(content) // 2])
            die()
        with full_disk_explained(self.path, len(content)):
            write_all(self._descriptor, content)
        # The sum grows with the file: a checkpoint need not read the whole table again.
        self.offset += len(content)
        self._sum.update(content)

    def _require_permission(self) -> None:
        if self._permitted is not None:
            self._permitted()

    def _require_ours(self) -> None:
        own = os.fstat(self._descriptor)
        try:
            present = self.path.lstat()
        except FileNotFoundError:
            raise WrongDirectory(
                f"{self.path} has been removed while this step was writing it"
            ) from None
        if own.st_size != self.offset:
            raise WrongDirectory(
                f"{self.path} has {own.st_size} bytes, {self.offset} were left: another process writes to it"
            )
        if not os.path.samestat(own, present):
            self._take_back()

    def _take_back(self) -> None:
        """Handle another file in this one's place: either a newer attempt's, or that of an older
        one that stood still in `_new_file`.
        """
        if self._permitted is None:
            raise WrongDirectory(f"another attempt has put a new file in the place of {self.path}")
        before = self._descriptor
        self._descriptor = self._new_file(self._own_content())
        os.close(before)


def sum_of_start(path: Path, length: int) -> dict[str, int | str]:
    """The checksum in `Table.kept` when the file had `length` bytes; for a shorter file, that of
    its whole content. Raises the usual `OSError`s.
    """
    whole = hashlib.sha256()
    left = length
    with open_regular(path) as file:
        while left and (chunk := file.read(min(left, COPY_BYTES))):
            whole.update(chunk)
            left -= len(chunk)
    return {"bytes": length - left, "sha256": whole.hexdigest()}


def _open_without_links(path: Path) -> io.BufferedReader:
    """Open a file for reading. Raises `WrongDirectory` for a symbolic link or a missing file."""
    try:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise WrongDirectory(
                f"{path} is a symbolic link: no step writes through one"
            ) from error
        if error.errno == errno.ENOENT:
            raise NoUsableState(
                f"{path} is missing; delete {path.parent} to start this run again"
            ) from error
        raise


def format_line(cells: Iterable[Cell]) -> str:
    """One CSV line."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        ["" if cell is None else format_cell(cell) for cell in cells]
    )
    return text.getvalue()


def format_cell(cell: Cell) -> str:
    """A cell as text: floats by `repr`."""
    return repr(float(cell)) if isinstance(cell, float) else str(cell)


def format_table(columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> str:
    """A whole CSV file as text, for `write_atomically`."""
    return format_line(columns) + "".join(
        format_line([row[column] for column in columns]) for row in rows
    )


def read_rows(path: Path) -> list[dict[str, str]]:
    """The whole lines of a CSV file that may still grow. Raises `FileNotFoundError`, and
    `ValueError` for a damaged table.
    """
    return _rows(whole_lines(path))


def every_column(name: str) -> bool:
    """Selects all columns of a table."""
    return True


def read_columns(path: Path, *, wanted: Wanted = every_column) -> dict[str, np.ndarray]:
    """The wanted columns of a numeric CSV file as float64 arrays [rows]. An empty cell is NaN.
    Raises as `read_rows`.
    """
    return columns_of(whole_lines(path), wanted=wanted)


def columns_of(content: bytes, *, wanted: Wanted = every_column) -> dict[str, np.ndarray]:
    """The same of a file's whole lines. Raises `ValueError` for a damaged table."""
    read = _columns_of_many_rows if len(content) >= MANY_ROWS_BYTES else _columns_of_few_rows
    return read(content, wanted)


def whole_lines(path: Path) -> bytes:
    """The content of a table up to its last line break: the line behind it is still being written.
    Raises `BadInput` above TABLE_LIMIT_BYTES, and the usual `OSError`s.
    """
    content = read_bytes(path, TABLE_LIMIT_BYTES)
    return content[: content.rfind(b"\n") + 1]


def _rows(whole: bytes) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(io.StringIO(whole.decode())))
    except csv.Error as error:
        raise ValueError(str(error)) from error


def _columns_of_few_rows(content: bytes, wanted: Wanted) -> dict[str, np.ndarray]:
    import numpy as np

    rows = _rows(content)
    names = [
        name
        for name in next(csv.reader([content.partition(b"\n")[0].decode()]), ())
        if wanted(name)
    ]
    return {name: np.array([_number(row[name]) for row in rows], np.float64) for name in names}


def _columns_of_many_rows(content: bytes, wanted: Wanted) -> dict[str, np.ndarray]:
    """The same by pandas' parser in C, which takes a tenth of the time, after an import that takes
    longer than reading a small table.
    """
    import numpy as np
    import pandas as pd

    # Closed, and the columns copied: what pandas holds on to made 433 MB of 335 over a hundred
    # tables.
    with pd.read_csv(
        io.BytesIO(content), usecols=wanted, dtype=np.float64, index_col=False, iterator=True
    ) as reader:
        table = reader.read()
    return {str(name): table[name].to_numpy(copy=True) for name in table}


def last_row(path: Path, *, having: str | None = None) -> dict[str, str] | None:
    """The last whole row (with a value in column `having`) among the last 64 KiB; None if there is
    none or no file.
    """
    try:
        with open_regular(path) as file:
            header = file.readline(TAIL_BYTES)
            size = file.seek(0, os.SEEK_END)
            start = max(len(header), size - TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    if not header.endswith(b"\n"):
        return None
    # Read from the middle, the first line is probably cut.
    whole = lines if start == len(header) else lines[1:]
    rows = _rows(b"\n".join([header.rstrip(b"\n"), *whole]))
    return next((row for row in reversed(rows) if having is None or row.get(having)), None)


def whole_lines_bytes(path: Path) -> int:
    """Where the last whole line of a file ends; 0 without a file."""
    try:
        content = read_bytes(path, TABLE_LIMIT_BYTES)
    except FileNotFoundError:
        return 0
    return content.rfind(b"\n") + 1


def _header(path: Path) -> tuple[str, ...]:
    with open_regular(path) as file:
        line = file.readline(65536)
    return tuple(next(csv.reader([line.decode()]), ())) if line.endswith(b"\n") else ()


def _number(text: str) -> float:
    return float(text) if text else math.nan
