"""Live progress of an experiment, for the local engine and for Argo alike.

On a terminal it is a table (`terminal`), elsewhere lines (`lines`). States come from the workflow's
status, a training's numbers from the run's files, or from the printed lines if this machine does
not see the files.
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

from config.errors import BadInput, ExperimentError
from config.resolved import Resolved
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Progress, read_progress
from workflows.dag.layout import Layout
from workflows.dag.tasks import Task, Tasks, Where, read_tasks
from workflows.progress.lines import Lines
from workflows.progress.reasons import reason
from workflows.progress.terminal import Terminal
from workflows.progress.words import Find, ReadProgress

TERMINAL_PERIOD_S = 0.5
LINES_PERIOD_S = 2.0


class ProgressView:
    """Draws while it is open. `update(status)` passes it Argo's status; a thread of its own draws
    and reads the runs' files.

    directory: where the results can be read on this machine, or None if the cluster's storage is
    not visible. find: the same for an outdir that is not the workflow's own. elsewhere: a run's
    progress if its files cannot be read here.
    """

    def __init__(
        self,
        *,
        workflow: str,
        layout: Layout,
        resolved: Resolved | None,
        directory: Path | None,
        out: TextIO,
        find: Find = lambda outdir: None,
        elsewhere: ReadProgress = lambda where: None,
    ) -> None:
        self._workflow = workflow
        self._layout = layout
        self._out = out
        self._directory = directory
        self._find = find
        self._elsewhere = elsewhere
        self._runs = 0 if resolved is None else resolved.experiment.runs
        self._resolved = {} if resolved is None else {"": resolved}
        self._painter: Terminal | Lines = (Terminal if out.isatty() else Lines)(
            out, self._progress, self._reason
        )
        self._period_s = TERMINAL_PERIOD_S if out.isatty() else LINES_PERIOD_S
        self._tasks = read_tasks({}, workflow, layout, self._runs)
        self._waiting_since_s: dict[str, float] = {}
        self._waited_s: dict[str, float] = {}
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
        """Print a line that stays."""
        with self._writing():
            self._painter.say(text)

    @property
    def tasks(self) -> Tasks:
        """The current tree of tasks."""
        return self._tasks

    def find(self, outdir: str) -> Path | None:
        """The directory on this machine with the results of an outdir."""
        if not outdir:
            return self._directory
        try:
            return self._find(outdir)
        except BadInput:
            # The `prepare` of that experiment refuses the directory and says why.
            return None

    def _timed(self, tasks: Tasks) -> Tasks:
        """The tasks with the durations of their pods: of their nodes without the time for which they
        were seen to wait for room.
        """
        return dataclasses.replace(tasks, inside=tuple(map(self._with_time, tasks.inside)))

    def _with_time(self, task: Task) -> Task:
        now_s = time.monotonic()
        took_s = task.duration_s
        if task.state == "pending":
            self._waiting_since_s.setdefault(task.path, now_s)
        elif task.path in self._waiting_since_s:
            waited_s = now_s - self._waiting_since_s.pop(task.path)
            self._waited_s[task.path] = self._waited_s.get(task.path, 0.0) + waited_s
        if took_s is not None:
            # Argo's times are whole seconds, so a short wait may be longer than the whole.
            took_s = max(0.0, took_s - self._waited_s.get(task.path, 0.0))
        inside = tuple(map(self._with_time, task.inside))
        return dataclasses.replace(task, duration_s=took_s, inside=inside)

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
        """Let one thread write at a time. A reader or a terminal that has gone (`… | tee log` and
        Ctrl-C) must not prevent a stop.
        """
        with self._lock, contextlib.suppress(OSError):
            yield
            self._out.flush()

    def _reason(self, task: Task) -> str:
        """Why the task waits or failed."""
        if task.state == "pending":
            return task.message
        return reason(task, self.find(task.where.outdir))

    def _progress(self, where: Where) -> Progress | None:
        with contextlib.suppress(OSError, ValueError, ExperimentError):
            directory = self.find(where.outdir)
            if directory is not None and where.run is not None:
                run = ExperimentDirectory(directory).run(where.run)
                if run.train_csv.exists():
                    resolved = self._resolved_of(where.outdir, directory)
                    return None if resolved is None else read_progress(run, resolved)
        return self._elsewhere(where)

    def _resolved_of(self, outdir: str, directory: Path) -> Resolved | None:
        """The parameters of an experiment: for the workflow's own directory as submitted, for
        another as its `prepare` wrote them.
        """
        if outdir and outdir not in self._resolved:
            self._resolved[outdir] = read_experiment(ExperimentDirectory(directory)).resolved
        return self._resolved.get(outdir)
