"""Live progress of an experiment, the same for the local engine and for Argo.

On a terminal a table (`terminal`), elsewhere lines (`lines`). States come from the workflow's
status, the numbers of a training from the run's files, or from elsewhere where this machine does
not see them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from config.errors import ExperimentError
from config.resolve import Resolved
from steps.directory.layout import ExperimentDirectory
from steps.directory.progress import Progress, read_progress
from workflows.dag.tasks import Experiment, Layout, Task, read_tasks
from workflows.progress.lines import Lines
from workflows.progress.reasons import reason
from workflows.progress.terminal import Terminal
from workflows.progress.words import ReadProgress

TERMINAL_PERIOD_S, LINES_PERIOD_S = 0.5, 2.0


class ProgressView:
    """Draws while it is open: `update(status)` gives it Argo's status, a thread of its own draws
    and reads the runs' files.

    directory: where the results can be read from here, or None (a cluster's storage that this
    machine does not see); elsewhere: how far a run is, where there are no files of it to read.
    """

    def __init__(
        self,
        *,
        workflow: str,
        layout: Layout,
        resolved: Resolved | None,
        directory: Path | None,
        out: TextIO,
        elsewhere: ReadProgress = lambda run: None,
    ) -> None:
        self._workflow, self._layout, self._resolved, self._out = workflow, layout, resolved, out
        self._directory = None if directory is None else ExperimentDirectory(directory)
        self._elsewhere = elsewhere
        self._painter: Terminal | Lines = (Terminal if out.isatty() else Lines)(
            out, self._progress, self._reason
        )
        self._period_s = TERMINAL_PERIOD_S if out.isatty() else LINES_PERIOD_S
        self._tasks = read_tasks({}, workflow, layout, self._runs)
        self._running_since_s: dict[tuple[int | None, str], float] = {}
        self._took_s: dict[tuple[int | None, str], float] = {}
        self._changed, self._closed = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._keep_drawing, name="progress view", daemon=True
        )

    def update(self, status: Mapping[str, Any]) -> None:
        """Show this status from now on."""
        self._tasks = self._timed(read_tasks(status, self._workflow, self._layout, self._runs))
        self._changed.set()

    def say(self, text: str) -> None:
        """A line of its own, which stays."""
        with self._writing():
            self._painter.say(text)

    @property
    def tasks(self) -> Experiment:
        """The table as it is now."""
        return self._tasks

    @property
    def _runs(self) -> int:
        return self._resolved.experiment.runs if self._resolved else 0

    def _timed(self, tasks: Experiment) -> Experiment:
        """With the time that a task was seen to run, where its start was seen: the node's own time
        includes waiting for room.
        """
        return dataclasses.replace(
            tasks,
            outside={name: self._with_time(None, task) for name, task in tasks.outside.items()},
            runs={
                run: {name: self._with_time(run, task) for name, task in of_run.items()}
                for run, of_run in tasks.runs.items()
            },
        )

    def _with_time(self, run: int | None, task: Task) -> Task:
        key, now_s = (run, task.name), time.monotonic()
        if task.state == "running":
            self._running_since_s.setdefault(key, now_s)
        elif key in self._running_since_s:
            self._took_s[key] = now_s - self._running_since_s.pop(key)
        return dataclasses.replace(task, duration_s=self._took_s.get(key, task.duration_s))

    def __enter__(self) -> Self:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ExperimentError(f"this machine grants no further thread: {error}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        with self._writing():
            self._painter.draw(self.tasks)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time. A reader or a terminal that has gone (`… | tee log` and Ctrl-C)
        must not keep a stop from happening.
        """
        with self._lock, contextlib.suppress(OSError):
            yield
            self._out.flush()

    def _reason(self, run: int | None, task: Task) -> str:
        """Why it waits or failed."""
        return (
            task.message
            if task.state == "pending"
            else reason(run, task, self._directory.root if self._directory else None)
        )

    def _progress(self, run: int) -> Progress | None:
        with contextlib.suppress(OSError, ValueError):
            if (
                self._directory is not None
                and self._resolved is not None
                and self._directory.run(run).train_csv.exists()
            ):
                return read_progress(self._directory.run(run), self._resolved)
        return self._elsewhere(run)
