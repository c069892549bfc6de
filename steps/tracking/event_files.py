"""TensorBoard's event files, which every training writes: the sink of `steps.tracking` that needs no
server and no pod.

They are written row by row, without TensorFlow and without a thread of their own. Each attempt writes one
event file. It begins with a session start, which makes TensorBoard drop the rows that killed attempts
wrote from that step on.
"""

from __future__ import annotations

import io
import itertools
import os
import shutil
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from steps.directory.files import full_disk_explained
from steps.tracking.sink import Row, TrackedRun
from steps.training import dashboards

NOT_PLOTTED = ("epoch", "step", "frame")


class EventFiles:
    """A run's folder of event files, as a sink. `start` makes the file of this attempt."""

    def __init__(self) -> None:
        self._events: EventFile | None = None
        self._folder = Path()

    @property
    def events(self) -> EventFile:
        """The event file, for what is no row of a table."""
        if self._events is None:
            raise RuntimeError("not started")
        return self._events

    def destination(self) -> str:
        """Always beside the run's other files."""
        return ""

    def start(self, run: TrackedRun) -> int | None:
        """Make an event file, which begins with the parameters."""
        self._folder = run.folder
        self._events = EventFile(run.folder, purge_step=run.next_step)
        step = max(run.next_step - 1, 0)
        self._events.add_summary(step, dashboards.of_hyperparameters(run.hyperparameters))
        return None

    def rows(self, rows: Sequence[Row]) -> None:
        """Add an event for each row. It reaches the file at the next `flush` or `finish`."""
        for row in rows:
            plotted = {name: one for name, one in row.values.items() if name not in NOT_PLOTTED}
            self.events.add(row.step, plotted, group=row.group)

    def file(self, path: Path, name: str) -> None:
        """Copy the file beside the event files."""
        place = self._folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)

    def finish(self) -> None:
        """Close the event file."""
        self.events.close()


def scalars(values: Mapping[str, float]) -> Summary:
    """The summary of numbers, tag -> value."""
    return Summary(
        value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    )


class EventFile:
    """The event file of one attempt, to which several threads may write. Its methods raise
    `ExperimentError` if the disk is full. purge_step: the first step whose events by earlier
    attempts no longer count.
    """

    def __init__(self, directory: Path, *, purge_step: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        first = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        # Pods often have equal host names and process ids, and two may start in one second.
        numbered = (directory / f"{first}.{number}" for number in itertools.count())
        self._path = next(path for path in numbered if not path.exists())
        self._records = RecordWriter(self._path.open("xb"))
        self._lock = threading.Lock()
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, values: Mapping[str, float], *, group: str = "train") -> None:
        """Add one event with all values of a row, which TensorBoard shows together under the name
        of their group. They reach the file at the next `flush`.
        """
        self.add_tagged(step, {f"{group}/{name}": value for name, value in values.items()})

    def add_tagged(self, step: int, values: Mapping[str, float]) -> None:
        """The same with whole tags, tag -> value."""
        if values:
            self.add_summary(step, scalars(values))

    def add_summary(self, step: int, summary: Summary) -> None:
        """Add one event with anything that TensorBoard shows."""
        self._write(Event(step=step, summary=summary))

    def flush(self) -> None:
        """Write added events to the file, so that TensorBoard sees them."""
        with self._lock, self._full_disk_explained():
            self._records.flush()

    def close(self) -> None:
        """Flush and close."""
        with self._full_disk_explained():
            self._records.close()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        with self._lock, self._full_disk_explained():
            self._records.write(event.SerializeToString())

    def _full_disk_explained(self) -> AbstractContextManager[None]:
        return full_disk_explained(self._path, io.DEFAULT_BUFFER_SIZE)
