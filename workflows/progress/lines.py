"""Live progress where there is no terminal: one line for each change, and a training now and
then.
"""

from __future__ import annotations

import time
from typing import TextIO

from config.errors import on_one_line
from config.numbers import duration
from workflows.dag.tasks import Experiment, State, Task
from workflows.progress.words import COMMON, ENDED, WITH_REASON, ReadProgress, ReadReason, numbers

SAY_FRACTION, SAY_AFTER_S = 0.1, 10.0
"""A training speaks after so much more of it, and not sooner than this."""


class Lines:
    """One line for each change."""

    def __init__(self, out: TextIO, progress: ReadProgress, reason: ReadReason) -> None:
        self._out, self._progress, self._reason = out, progress, reason
        self._states: dict[tuple[int | None, str], tuple[State, int]] = {}
        self._said: dict[int, tuple[float, float]] = {}
        self._reasons: dict[tuple[int | None, str], str] = {}

    def draw(self, tasks: Experiment) -> None:
        """Say what has changed."""
        for run, task in tasks.in_order():
            before, now = (
                self._states.get((run, task.name), ("waiting", 1)),
                (task.state, task.attempt),
            )
            if before != now:
                self._states[run, task.name] = now
                if task.state != "omitted" and not (
                    task.state == "pending" and task.message in COMMON
                ):
                    self._say_of(run, f"{task.name} {self._in_words(run, task)}")
            if task.name == "train" and task.state in ("running", "succeeded") and run is not None:
                self._say_progress(run, ended=task.state == "succeeded")

    def _say_progress(self, run: int, *, ended: bool) -> None:
        """Now and then while it runs, and how it stood at its end, which may be known a moment
        later.
        """
        fraction, at_s = self._said.setdefault(run, (0.0, time.monotonic()))
        if fraction == 1.0 or (progress := self._progress(run)) is None:
            return
        is_last = ended and progress.fraction == 1.0
        if is_last or (
            progress.fraction >= fraction + SAY_FRACTION and time.monotonic() - at_s >= SAY_AFTER_S
        ):
            self._said[run] = (progress.fraction, time.monotonic())
            self._say_of(run, f"train {numbers(progress)}")

    def _in_words(self, run: int | None, task: Task) -> str:
        if (
            task.state == "skipped"
        ):  # the message is the condition after substitution, which tells a person nothing
            return "skipped: the training did not reach evaluate_above"
        why = self._new_reason(run, task)
        if task.state == "retrying":
            return f"attempt {task.attempt} failed{why}"
        attempt = f", attempt {task.attempt}" if task.attempt > 1 else ""
        took = (
            f" in {duration(task.duration_s)}"
            if task.duration_s is not None and task.state in ENDED
            else ""
        )
        word = {"pending": "is waiting", "running": "started"}.get(task.state, task.state)
        return f"{word}{took}{attempt}{why}"

    def _new_reason(self, run: int | None, task: Task) -> str:
        """The reason, unless it was said at the last change."""
        reason = self._reason(run, task) if task.message and task.state in WITH_REASON else ""
        known = self._reasons.get((run, task.name))
        self._reasons[run, task.name] = reason
        return f": {reason}" if reason and reason != known else ""

    def _say_of(self, run: int | None, what: str) -> None:
        self.say(what if run is None else f"run {run}  {what}")

    def say(self, text: str) -> None:
        """A line with the time."""
        self._out.write(f"{time.strftime('%H:%M:%S')}  {on_one_line(text)}\n")
