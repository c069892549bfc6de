"""Live progress on a terminal: a table that is redrawn in place."""

from __future__ import annotations

import os
import shutil
import time
from typing import TextIO

from config.errors import on_one_line
from config.numbers import clock
from workflows.dag.tasks import Tasks
from workflows.progress.table import Table
from workflows.progress.words import ReadProgress, ReadReason


class Terminal:
    """Draws a workflow's table over the previous one."""

    def __init__(self, out: TextIO, progress: ReadProgress, reason: ReadReason) -> None:
        self._out, self._started_s = out, time.monotonic()
        self._table = Table(progress, reason, coloured=not os.environ.get("NO_COLOR"))
        self._height = 0

    def draw(self, tasks: Tasks) -> None:
        """Draw the table over the previous one."""
        size = shutil.get_terminal_size()
        running = clock(time.monotonic() - self._started_s)
        lines = self._table.lines(
            tasks, rows=max(6, size.lines - 2), columns=size.columns, clock=running
        )
        self._out.write(
            self._erase() + "".join(f"{_cut(line, size.columns)}\x1b[0m\n" for line in lines)
        )
        self._height = len(lines)

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._out.write(f"{self._erase()}{self._table.faint(on_one_line(text))}\n")
        self._height = 0

    def _erase(self) -> str:
        return f"\x1b[{self._height}F\x1b[J" if self._height else ""


def _cut(line: str, columns: int) -> str:
    """Cut a line to this many visible characters. Escape sequences take no room."""
    visible = 0
    kept = []
    position = 0
    while position < len(line):
        if line[position] == "\x1b":
            end = line.index("m", position) + 1
            kept.append(line[position:end])
            position = end
            continue
        if visible == columns - 1:
            kept.append("…")
            break
        kept.append(line[position])
        visible = visible + 1
        position = position + 1
    return "".join(kept)
