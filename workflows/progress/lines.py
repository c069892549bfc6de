"""Live progress without a terminal: one line for each change, and now and then one for each
training.
"""

from __future__ import annotations

import time
from typing import TextIO

from config.errors import on_one_line
from config.numbers import duration
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

SAY_FRACTION, SAY_AFTER_S = 0.1, 10.0
"""A training gets a line after each such fraction of it, but not sooner than this many seconds
after the last.
"""


class Lines:
    """Prints one line for each change."""

    def __init__(self, out: TextIO, progress: ReadProgress, reason: ReadReason) -> None:
        self._out = out
        self._progress = progress
        self._reason = reason
        self._states: dict[str, tuple[State, int]] = {}
        self._said: dict[str, tuple[float, float]] = {}
        self._reasons: dict[str, str] = {}
        self._waits: dict[str, set[str]] = {}

    def draw(self, tasks: Tasks) -> None:
        """Print what has changed."""
        for task in tasks.pods():
            self._say_change(task)
            if is_training(task) and task.state in ("running", "succeeded"):
                self._say_progress(task)
        for group in tasks.having("failed"):
            if group.group:
                self._say_change(group)

    def _say_change(self, task: Task) -> None:
        before = self._states.get(task.path, ("waiting", 1))
        now = (task.state, task.attempt)
        changed = before != now
        if task.state == "pending":
            if task.message in COMMON:  # why it waits longer may be known only later
                return
            changed = self._waits_for_another_reason(task)
        else:
            self._waits.pop(task.path, None)
        if not changed:
            return
        self._states[task.path] = now
        if task.state != "omitted":
            self._say_of(task, self._in_words(task))

    def _waits_for_another_reason(self, task: Task) -> bool:
        """Whether this kind of reason has not been printed yet. Kinds are compared, not texts, because
        Kubernetes alternates between `ErrImagePull` and `ImagePullBackOff`, with times in their texts.
        """
        kinds = self._waits.setdefault(task.path, set())
        kind = task.message.partition(":")[0]
        is_new = kind not in kinds
        kinds.add(kind)
        return is_new

    def _say_progress(self, task: Task) -> None:
        """Print a training's progress now and then while it runs, and once at its end, which may be
        known a moment later.
        """
        fraction, at_s = self._said.setdefault(task.path, (0.0, time.monotonic()))
        if fraction == 1.0 or (progress := self._progress(task.where)) is None:
            return
        is_last = task.state == "succeeded" and progress.fraction == 1.0
        if is_last or (
            progress.fraction >= fraction + SAY_FRACTION and time.monotonic() - at_s >= SAY_AFTER_S
        ):
            self._said[task.path] = (progress.fraction, time.monotonic())
            self._say_of(task, numbers(progress))

    def _in_words(self, task: Task) -> str:
        if (
            task.state == "skipped"
        ):  # the message is the condition after substitution, which tells a person nothing
            return "skipped: the training did not reach evaluate_above, or is paused"
        why = self._new_reason(task)
        if task.state == "retrying":
            return f"attempt {task.attempt} failed{why}"
        attempt = f", attempt {task.attempt}" if task.attempt > 1 else ""
        if task.duration_s is not None and task.state in ENDED:
            took = f" in {duration(task.duration_s)}"
        else:
            took = ""
        word = {"pending": "is waiting", "running": "started"}.get(task.state, task.state)
        return f"{word}{took}{attempt}{why}"

    def _new_reason(self, task: Task) -> str:
        """The reason, unless it was printed at the last change."""
        reason = self._reason(task) if task.message and task.state in WITH_REASON else ""
        known = self._reasons.get(task.path)
        self._reasons[task.path] = reason
        return f": {reason}" if reason and reason != known else ""

    def _say_of(self, task: Task, what: str) -> None:
        self.say("  ".join([*task.trail, f"{task.name} {what}"]))

    def say(self, text: str) -> None:
        """Print a line with the time."""
        self._out.write(f"{time.strftime('%H:%M:%S')}  {on_one_line(text)}\n")
