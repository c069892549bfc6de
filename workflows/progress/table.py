"""Draws a workflow as a table for a terminal: tasks in a line, and one row for each run, with a bar
for its training. A task with runs of its own is a block with a heading. If there are few rows,
active tasks get them first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from config.numbers import duration
from steps.directory.status import Progress
from workflows.dag.layout import Shape
from workflows.dag.tasks import State, Task, Tasks
from workflows.progress.words import (
    COMMON,
    ENDED,
    WITH_REASON,
    ReadProgress,
    ReadReason,
    is_training,
    numbers,
)

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
INDENT = "  "


@dataclass(frozen=True)
class Part:
    """Tasks in one line, the rows of one loop, or one block. Parts are drawn below each other."""

    shape: Shape
    tasks: tuple[Task, ...]

    @property
    def height(self) -> int:
        """Number of lines that the whole part takes."""
        if self.shape == "line":
            return 1
        if self.shape == "rows":
            return len(self.tasks[0].inside)
        return 1 + sum(part.height for part in parts(self.tasks[0].inside))


Shown = TypeVar("Shown", Part, Task)


def parts(tasks: Iterable[Task]) -> list[Part]:
    """The parts of a DAG."""
    found: list[Part] = []
    for task in tasks:
        if task.shape == "blocks" and task.inside:
            found += [Part("block", (item,)) for item in task.inside]
        elif task.shape in ("rows", "block") and (task.inside or task.state != "failed"):
            found.append(Part(task.shape, (task,)))
        elif found and found[-1].shape == "line":
            found[-1] = Part("line", (*found[-1].tasks, task))
        else:
            found.append(Part("line", (task,)))
    return found


class Table:
    """Formats the lines of the table."""

    def __init__(self, progress: ReadProgress, reason: ReadReason, *, coloured: bool) -> None:
        self._progress = progress
        self._reason = reason
        self._coloured = coloured

    def lines(self, tasks: Tasks, *, rows: int, columns: int, clock: str) -> list[str]:
        """At most `rows` lines; the first contains the clock."""
        listed = parts(tasks.inside)
        if not listed or listed[0].shape != "line":
            listed.insert(0, Part("line", ()))
        first = self._line(listed[0].tasks, INDENT, self.faint(clock))
        return [first, *self._below(listed[1:], rows - 1, columns, INDENT)]

    def _below(self, listed: Sequence[Part], rows: int, columns: int, indent: str) -> Iterator[str]:
        shown, hidden = _most_interesting([part for part in listed if part.height], rows)
        for part, given in zip(shown, _shared(shown, rows - bool(hidden)), strict=True):
            if part.shape == "line":
                yield self._line(part.tasks, indent)
            elif part.shape == "rows":
                yield from self._rows(part.tasks[0], given, columns, indent)
            else:
                yield from self._block(part.tasks[0], given, columns, indent)
        if hidden:
            yield self.faint(f"{indent}and {hidden} more")

    def _line(self, tasks: Sequence[Task], indent: str, *more: str) -> str:
        marks = [self._mark(task) for task in tasks]
        return indent + "  ".join([*marks, *more, *self._why(tasks)])

    def _block(self, task: Task, rows: int, columns: int, indent: str) -> Iterator[str]:
        """The block's heading, and its contents as far as there is room."""
        inside = parts(task.inside)
        if rows <= sum(1 for part in inside if part.height):
            yield self._line((task,), indent)
        else:
            yield indent + self._mark(task)
            yield from self._below(inside, rows - 1, columns, indent + INDENT)

    def _rows(self, loop: Task, rows: int, columns: int, indent: str) -> Iterator[str]:
        labels = {item.path: item.name.partition(" ") for item in loop.inside}
        width = max((len(label) for _, _, label in labels.values()), default=0)
        shown, hidden = _most_interesting(loop.inside, rows)
        for item in shown:
            word, _, label = labels[item.path]
            title = f"{indent}{word} {label:>{width}}  "
            training = _training(item)
            progress = None if training is None else self._progress(item.where)
            variants = [title + self._row(item, training, progress, detail) for detail in (2, 1, 0)]
            yield next((line for line in variants if _visible(line) < columns), variants[-1])
        if hidden:
            yield self.faint(f"{indent}and {hidden} more {loop.name}")

    def _row(
        self, item: Task, training: Task | None, progress: Progress | None, detail: int
    ) -> str:
        """One row of a loop: the training while it runs, then the other tasks. Detail 2 shows names
        and times, 1 only names, 0 only tasks that need attention.
        """
        if training is not None and training.state == "running" and progress is not None:
            members = self._members(training) if detail else ""
            stage = self._mark(training, members=False)
            row = f"{stage}  {self._bar(progress.fraction)} {numbers(progress)}{members}"
            beside = [task for task in item.inside if task is not training and task.group]
            shown = [self._mark(task) for task in beside if detail and task.state in NOTABLE]
            return "  ".join([row, *shown, *self._why(beside)])
        learnt = progress.score.written(",.1f") if progress and progress.score else ""
        first, *rest = item.inside
        after = [
            self._mark(task, time=detail == 2)
            if detail or task.state in NOTABLE
            else self._symbol(task)
            for task in rest
        ]
        return "  ".join(
            [self._mark(first), *([learnt] if learnt else []), *after, *self._why(item.inside)]
        )

    def _why(self, tasks: Iterable[Task]) -> list[str]:
        """The first reason among the tasks that wait or failed."""
        for task in tasks:
            if task.group == "dag" and task.state == "succeeded":
                # The stage tolerates how its members end: their reasons explain nothing.
                continue
            for pod in task.pods():
                if pod.state in WITH_REASON and pod.message not in COMMON:
                    inside = "" if pod is task else f"{pod.name}: "
                    return [self.faint(f"{inside}{self._reason(pod)}")]
        return []

    def _bar(self, fraction: float) -> str:
        full = round(fraction * BAR_CELLS)
        return self._paint("36", "━" * full) + self.faint("━" * (BAR_CELLS - full))

    def _symbol(self, task: Task) -> str:
        mark, colour = MARKS[task.state]
        return self._paint(colour, mark)

    def _mark(self, task: Task, *, time: bool = True, members: bool = True) -> str:
        again = f" (attempt {task.attempt})" if task.attempt > 1 else ""
        if time and task.duration_s is not None and task.state in ENDED:
            took = f" {self.faint(duration(task.duration_s))}"
        else:
            took = ""
        is_quiet = task.state in ("waiting", "skipped", "omitted")
        name = self.faint(task.name) if is_quiet else task.name
        inside = self._members(task) if members and task.state in NOTABLE else ""
        return f"{self._symbol(task)} {name}{again}{took}{inside}"

    def _members(self, task: Task) -> str:
        """` (● learner, ● actors 7 of 8)` for a stage. For a loop of pods, how many run or failed."""
        if task.shape != "line" or not task.inside:
            return ""
        if task.group == "dag" and all(part.group == "loop" for part in task.inside):
            # A loop that others waited for says nothing any more when it has succeeded.
            unfinished = [part for part in task.inside if part.state != "succeeded"]
            if len(unfinished) == 1:
                return self._members(unfinished[0])
        if task.group == "loop":
            state = "failed" if task.state == "failed" else "running"
            count = sum(item.state == state for item in task.inside)
            return f" {count} of {len(task.inside)}"
        return f" ({', '.join(self._mark(part) for part in task.inside)})"

    def faint(self, text: str) -> str:
        """The text in a fainter colour."""
        return self._paint("2", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured and text else text


def _training(item: Task) -> Task | None:
    """The task that trains in this run: the task itself or a pod of its stage."""
    for task in item.inside:
        if any(map(is_training, task.pods())):
            return task
    return None


def _rank(tasks: Iterable[Task]) -> int:
    """Sort key: active tasks first, then failed, finished and waiting ones."""
    states = {state for task in tasks for state in _states(task)}
    places = (place for place, state in enumerate(INTERESTING) if state in states)
    return next(places, len(INTERESTING))


def _states(task: Task) -> Iterator[State]:
    """The states inside a group. The group's own state says less: it is running while everything
    inside waits.
    """
    if not task.inside:
        yield task.state
    for part in task.inside:
        yield from _states(part)


def _most_interesting(listed: Sequence[Shown], rows: int) -> tuple[list[Shown], int]:
    """The most interesting tasks that fit, in their order, and the number of those left out."""
    if len(listed) <= rows:
        return list(listed), 0
    ranked = sorted(range(len(listed)), key=lambda place: _rank(_tasks(listed[place])))
    shown = sorted(ranked[: max(0, rows - 1)])
    return [listed[place] for place in shown], len(listed) - len(shown)


def _tasks(shown: Part | Task) -> tuple[Task, ...]:
    return shown.tasks if isinstance(shown, Part) else (shown,)


def _shared(listed: Sequence[Part], rows: int) -> list[int]:
    """Number of lines for each part: first one each, then as many as it takes, shared among parts
    of equal interest.
    """
    given = [1 for _ in listed]
    left = rows - len(listed)
    ranks = [_rank(part.tasks) for part in listed]
    for rank in sorted(set(ranks)):
        of_rank = [place for place, found in enumerate(ranks) if found == rank]
        while left > 0 and any(given[place] < listed[place].height for place in of_rank):
            for place in of_rank:
                if left > 0 and given[place] < listed[place].height:
                    given[place], left = given[place] + 1, left - 1
    return given


def _visible(line: str) -> int:
    return len(ESCAPE.sub("", line))
