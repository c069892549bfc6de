"""Live progress of an experiment, the same for the local engine and for Argo.

On a terminal a compact table is drawn again in place: one line per run, the training run with its bar. Elsewhere each change is one
line, and a training speaks at most once in ten percent and ten seconds. Numbers of a training come from the run's files.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from config.resolve import Resolved
from steps.directory.layout import ExperimentDirectory
from steps.directory.progress import Progress, read_progress
from workflows.reasons import reason
from workflows.tasks import Experiment, Layout, State, Task, read_tasks

Reason = Callable[[int | None, Task], str]
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
COMMON = ("", "PodInitializing", "ContainerCreating")
"""Why a pod waits for a moment in every workflow: not worth a line."""
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
WITH_REASON = ("pending", "retrying", "failed")
NOTABLE, ENDED = ("running", *WITH_REASON), ("succeeded", "failed")
BAR_CELLS = 14
TERMINAL_PERIOD_S, LINES_PERIOD_S = 0.5, 2.0
SAY_FRACTION, SAY_AFTER_S = 0.1, 10.0


class ProgressView:
    """Draws while it is open: `update(status)` gives it Argo's status, a thread of its own draws and reads the runs' files.

    directory: where the results can be read from here, or None (a cluster's storage that this machine does not see).
    """

    def __init__(self, *, workflow: str, layout: Layout, resolved: Resolved | None, directory: Path | None, out: TextIO) -> None:
        self._workflow, self._layout, self._resolved, self._out = workflow, layout, resolved, out
        self._directory = None if directory is None else ExperimentDirectory(directory)
        self._painter: _Terminal | _Lines = (_Terminal if out.isatty() else _Lines)(out, self._progress, self._reason)
        self._period_s = TERMINAL_PERIOD_S if out.isatty() else LINES_PERIOD_S
        self._tasks = read_tasks({}, workflow, layout, self._runs)
        self._running_since_s: dict[tuple[int | None, str], float] = {}
        self._took_s: dict[tuple[int | None, str], float] = {}
        self._changed, self._closed = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_drawing, name="progress view", daemon=True)

    def update(self, status: Mapping[str, Any]) -> None:
        """Show this status from now on."""
        self._tasks = self._timed(read_tasks(status, self._workflow, self._layout, self._runs))
        self._changed.set()

    def say(self, text: str) -> None:
        """A line of its own, which stays."""
        with self._lock:
            self._painter.say(text)
            self._out.flush()

    @property
    def tasks(self) -> Experiment:
        """The table as it is now."""
        return self._tasks

    @property
    def _runs(self) -> int:
        return self._resolved.experiment.runs if self._resolved else 0

    def _timed(self, tasks: Experiment) -> Experiment:
        """With the time that a task was seen to run, where its start was seen: the node's own time includes waiting for room."""
        return dataclasses.replace(
            tasks,
            outside={name: self._with_time(None, task) for name, task in tasks.outside.items()},
            runs={run: {name: self._with_time(run, task) for name, task in of_run.items()} for run, of_run in tasks.runs.items()},
        )

    def _with_time(self, run: int | None, task: Task) -> Task:
        key, now_s = (run, task.name), time.monotonic()
        if task.state == "running":
            self._running_since_s.setdefault(key, now_s)
        elif key in self._running_since_s:
            self._took_s[key] = now_s - self._running_since_s.pop(key)
        return dataclasses.replace(task, duration_s=self._took_s.get(key, task.duration_s))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._closed.set()
        self._changed.set()
        self._thread.join()
        self._draw_now()

    def _keep_drawing(self) -> None:
        while not self._closed.is_set():
            self._draw_now()
            self._changed.wait(self._period_s)
            self._changed.clear()

    def _draw_now(self) -> None:
        with self._lock:
            self._painter.draw(self.tasks)
            self._out.flush()

    def _reason(self, run: int | None, task: Task) -> str:
        """Why it waits or failed."""
        return task.message if task.state == "pending" else reason(run, task, self._directory.root if self._directory else None)

    def _progress(self, run: int) -> Progress | None:
        if self._directory is None or self._resolved is None:
            return None
        try:
            return read_progress(self._directory.run(run), self._resolved)
        except (OSError, ValueError):
            return None


class _Lines:
    """One line for each change."""

    def __init__(self, out: TextIO, progress: Callable[[int], Progress | None], reason: Reason) -> None:
        self._out, self._progress, self._reason = out, progress, reason
        self._states: dict[tuple[int | None, str], tuple[State, int]] = {}
        self._said: dict[int, tuple[float, float]] = {}

    def draw(self, tasks: Experiment) -> None:
        for run, task in _every_task(tasks):
            before, now = self._states.get((run, task.name), ("waiting", 1)), (task.state, task.attempt)
            if before != now:
                self._states[run, task.name] = now
                if task.state != "omitted" and not (task.state == "pending" and task.message in COMMON):
                    self._say_of(run, f"{task.name} {self._in_words(run, task)}")
            if task.name == "train" and task.state == "running" and run is not None:
                self._say_progress(run)

    def _say_progress(self, run: int) -> None:
        progress = self._progress(run)
        fraction, at_s = self._said.setdefault(run, (0.0, time.monotonic()))
        if progress and progress.fraction >= fraction + SAY_FRACTION and time.monotonic() - at_s >= SAY_AFTER_S:
            self._said[run] = (progress.fraction, time.monotonic())
            self._say_of(run, f"train {numbers(progress)}")

    def _in_words(self, run: int | None, task: Task) -> str:
        if task.state == "skipped":  # the message is the condition after substitution, which tells a person nothing
            return "skipped: the training did not reach evaluate_above"
        why = f": {self._reason(run, task)}" if task.message and task.state in WITH_REASON else ""
        if task.state == "retrying":
            return f"attempt {task.attempt} failed{why}"
        attempt = f", attempt {task.attempt}" if task.attempt > 1 else ""
        took = f" in {duration(task.duration_s)}" if task.duration_s is not None and task.state in ENDED else ""
        word = {"pending": "is waiting", "running": "started"}.get(task.state, task.state)
        return f"{word}{took}{attempt}{why}"

    def _say_of(self, run: int | None, what: str) -> None:
        self.say(what if run is None else f"run {run}  {what}")

    def say(self, text: str) -> None:
        self._out.write(f"{time.strftime('%H:%M:%S')}  {text}\n")


class _Terminal:
    """A table that is drawn over itself."""

    def __init__(self, out: TextIO, progress: Callable[[int], Progress | None], reason: Reason) -> None:
        self._out, self._progress, self._reason, self._started_s = out, progress, reason, time.monotonic()
        self._coloured = not os.environ.get("NO_COLOR")
        self._height = 0

    def draw(self, tasks: Experiment) -> None:
        size = shutil.get_terminal_size()
        lines = list(self._lines(tasks, rows=max(6, size.lines - 2), columns=size.columns))
        self._out.write(self._erase() + "".join(f"{_cut(line, size.columns)}\x1b[0m\n" for line in lines))
        self._height = len(lines)

    def say(self, text: str) -> None:
        self._out.write(f"{self._erase()}{self._faint(text)}\n")
        self._height = 0

    def _erase(self) -> str:
        return f"\x1b[{self._height}F\x1b[J" if self._height else ""

    def _lines(self, tasks: Experiment, rows: int, columns: int) -> Iterator[str]:
        before, after = _around_the_runs(tasks)
        yield "  ".join(
            ["", *(self._mark(task) for task in before), self._faint(clock(time.monotonic() - self._started_s)), *self._why(None, before)]
        )
        shown, hidden = _most_interesting(tasks.runs, rows - 2)
        width = len(str(max(tasks.runs, default=0)))
        for run in shown:
            title, progress = f"  run {run:>{width}}  ", self._progress(run)
            variants = [title + self._run(run, tasks.runs[run], progress, detail) for detail in (2, 1, 0)]
            yield next((line for line in variants if _visible(line) < columns), variants[-1])
        if hidden:
            yield self._faint(f"  and {hidden} more runs")
        yield "  ".join(["", *(self._mark(task) for task in after), *self._why(None, after)])

    def _run(self, run: int, tasks: Mapping[str, Task], progress: Progress | None, detail: int) -> str:
        """Its training while that runs, then all of its tasks: 2, with names and times; 1, with names; 0, with those that need a look."""
        train = tasks.get("train")
        if train is not None and train.state == "running" and progress is not None:
            return f"{self._mark(train)}  {self._bar(progress.fraction)} {numbers(progress)}"
        learnt = f"return {progress.return_mean:,.1f}" if progress and progress.return_mean is not None else ""
        first, *rest = tasks.values()
        after = [self._mark(task, time=detail == 2) if detail or task.state in NOTABLE else self._symbol(task) for task in rest]
        return "  ".join([self._mark(first), *([learnt] if learnt else []), *after, *self._why(run, tasks.values())])

    def _why(self, run: int | None, tasks: Iterable[Task]) -> list[str]:
        """The first reason among tasks that wait or failed."""
        reasons = [self._reason(run, task) for task in tasks if task.state in WITH_REASON and task.message not in COMMON]
        return [self._faint(reason) for reason in reasons[:1]]

    def _bar(self, fraction: float) -> str:
        full = round(fraction * BAR_CELLS)
        return self._paint("36", "━" * full) + self._faint("━" * (BAR_CELLS - full))

    def _symbol(self, task: Task) -> str:
        mark, colour = MARKS[task.state]
        return self._paint(colour, mark)

    def _mark(self, task: Task, *, time: bool = True) -> str:
        again = f" (attempt {task.attempt})" if task.attempt > 1 else ""
        took = f" {self._faint(duration(task.duration_s))}" if time and task.duration_s is not None and task.state in ENDED else ""
        name = self._faint(task.name) if task.state in ("waiting", "skipped", "omitted") else task.name
        return f"{self._symbol(task)} {name}{again}{took}"

    def _faint(self, text: str) -> str:
        return self._paint("2", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured and text else text


def numbers(progress: Progress) -> str:
    """` 43 %  return 123.4  8,950 steps/s  0:31 left`, as far as they are known."""
    parts = [f"{progress.fraction:4.0%}".replace("%", " %")]
    if progress.return_mean is not None:
        parts.append(f"return {progress.return_mean:,.1f}")
    if progress.steps_per_second:
        parts.append(f"{progress.steps_per_second:,.0f} steps/s")
        parts.append(f"{clock((progress.total_steps - progress.step) / progress.steps_per_second)} left")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """`0:31`, `12:05`, `3:00:00`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """`4.2 s`, `40 s`, `2 min 5 s`, `3 h 12 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _every_task(tasks: Experiment) -> Iterator[tuple[int | None, Task]]:
    before, after = _around_the_runs(tasks)
    yield from ((None, task) for task in before)
    yield from ((run, task) for run, of_run in tasks.runs.items() for task in of_run.values())
    yield from ((None, task) for task in after)


def _around_the_runs(tasks: Experiment) -> tuple[list[Task], list[Task]]:
    listed = list(tasks.outside.values())
    return listed[:1], listed[1:]


def _most_interesting(runs: Mapping[int, Mapping[str, Task]], rows: int) -> tuple[list[int], int]:
    """As many runs as fit: those that do something first, then those that failed, are finished, wait; in order of their index."""

    def rank(run: int) -> int:
        states = {task.state for task in runs[run].values()}
        return next((place for place, state in enumerate(("running", "retrying", "pending", "failed", "succeeded")) if state in states), 4)

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
