"""Live progress on a terminal: a compact table that is drawn over itself, one line per run, the
training run with its bar.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

from config.errors import on_one_line
from config.numbers import clock, duration
from steps.directory.progress import Progress
from workflows.dag.tasks import Experiment, State, Task
from workflows.progress.words import COMMON, ENDED, WITH_REASON, ReadProgress, ReadReason, numbers

MARKS: Mapping[State, tuple[str, str]] = {
    "waiting": ("○", "2"),
    "pending": ("◌", "33"),
    "running": ("●", "36"),
    "retrying": ("↻", "33"),
    "succeeded": ("✔", "32"),
    "failed": ("✘", "31"),
    "stopped": ("■", "33"),
    "skipped": ("–", "2"),
    "omitted": ("–", "2"),
}
"""Symbol and colour (ANSI, "select graphic rendition") of a state."""
NOTABLE = ("running", *WITH_REASON)
INTERESTING = ("running", "retrying", "pending", "failed", "stopped", "succeeded")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
BAR_CELLS = 14


class Terminal:
    """A table that is drawn over itself."""

    def __init__(self, out: TextIO, progress: ReadProgress, reason: ReadReason) -> None:
        self._out, self._progress, self._reason, self._started_s = (
            out,
            progress,
            reason,
            time.monotonic(),
        )
        self._coloured = not os.environ.get("NO_COLOR")
        self._height = 0

    def draw(self, tasks: Experiment) -> None:
        """Draw the table over the last one."""
        size = shutil.get_terminal_size()
        lines = list(self._lines(tasks, rows=max(6, size.lines - 2), columns=size.columns))
        self._out.write(
            self._erase() + "".join(f"{_cut(line, size.columns)}\x1b[0m\n" for line in lines)
        )
        self._height = len(lines)

    def say(self, text: str) -> None:
        """A line above the table."""
        self._out.write(f"{self._erase()}{self._faint(on_one_line(text))}\n")
        self._height = 0

    def _erase(self) -> str:
        return f"\x1b[{self._height}F\x1b[J" if self._height else ""

    def _lines(self, tasks: Experiment, rows: int, columns: int) -> Iterator[str]:
        before, after = tasks.around_the_runs()
        yield "  ".join(
            [
                "",
                *(self._mark(task) for task in before),
                self._faint(clock(time.monotonic() - self._started_s)),
                *self._why(None, before),
            ]
        )
        shown, hidden = _most_interesting(tasks.runs, rows - 2)
        width = len(str(max(tasks.runs, default=0)))
        for run in shown:
            title, progress = f"  run {run:>{width}}  ", self._progress(run)
            variants = [
                title + self._run(run, tasks.runs[run], progress, detail) for detail in (2, 1, 0)
            ]
            yield next((line for line in variants if _visible(line) < columns), variants[-1])
        if hidden:
            yield self._faint(f"  and {hidden} more runs")
        yield "  ".join(["", *(self._mark(task) for task in after), *self._why(None, after)])

    def _run(
        self, run: int, tasks: Mapping[str, Task], progress: Progress | None, detail: int
    ) -> str:
        """Its training while that runs, then all of its tasks: 2, with names and times; 1, with
        names; 0, with those that need a look.
        """
        train = tasks.get("train")
        if train is not None and train.state == "running" and progress is not None:
            return f"{self._mark(train)}  {self._bar(progress.fraction)} {numbers(progress)}"
        learnt = (
            f"return {progress.return_mean:,.1f}"
            if progress and progress.return_mean is not None
            else ""
        )
        first, *rest = tasks.values()
        after = [
            self._mark(task, time=detail == 2)
            if detail or task.state in NOTABLE
            else self._symbol(task)
            for task in rest
        ]
        return "  ".join(
            [
                self._mark(first),
                *([learnt] if learnt else []),
                *after,
                *self._why(run, tasks.values()),
            ]
        )

    def _why(self, run: int | None, tasks: Iterable[Task]) -> list[str]:
        """The first reason among tasks that wait or failed."""
        reasons = [
            self._reason(run, task)
            for task in tasks
            if task.state in WITH_REASON and task.message not in COMMON
        ]
        return [self._faint(reason) for reason in reasons[:1]]

    def _bar(self, fraction: float) -> str:
        full = round(fraction * BAR_CELLS)
        return self._paint("36", "━" * full) + self._faint("━" * (BAR_CELLS - full))

    def _symbol(self, task: Task) -> str:
        mark, colour = MARKS[task.state]
        return self._paint(colour, mark)

    def _mark(self, task: Task, *, time: bool = True) -> str:
        again = f" (attempt {task.attempt})" if task.attempt > 1 else ""
        took = (
            f" {self._faint(duration(task.duration_s))}"
            if time and task.duration_s is not None and task.state in ENDED
            else ""
        )
        name = (
            self._faint(task.name) if task.state in ("waiting", "skipped", "omitted") else task.name
        )
        return f"{self._symbol(task)} {name}{again}{took}"

    def _faint(self, text: str) -> str:
        return self._paint("2", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured and text else text


def _most_interesting(runs: Mapping[int, Mapping[str, Task]], rows: int) -> tuple[list[int], int]:
    """As many runs as fit: those that do something first, then those that failed, are finished,
    wait; in order of their index.
    """

    def rank(run: int) -> int:
        states = {task.state for task in runs[run].values()}
        return next(
            (place for place, state in enumerate(INTERESTING) if state in states), len(INTERESTING)
        )

    if len(runs) <= rows:
        return list(runs), 0
    shown = sorted(sorted(runs, key=rank)[: rows - 1])
    return shown, len(runs) - len(shown)


def _visible(line: str) -> int:
    return len(ESCAPE.sub("", line))


def _cut(line: str, columns: int) -> str:
    """At most so many visible characters; escape sequences take no room."""
    visible, kept, position = 0, [], 0
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
        visible, position = visible + 1, position + 1
    return "".join(kept)
