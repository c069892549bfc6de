"""Write the progress of a training to `train.csv` and to TensorBoard's event files.

`train.csv` has one row per log interval and nothing that depends on the clock. The event files repeat
its numbers; they are written row by row, without TensorFlow and without a thread of their own. Each
attempt writes one event file. It begins with a session start, which makes TensorBoard drop the rows
that killed attempts wrote from that step on.
"""

from __future__ import annotations

import io
import itertools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from agents.interfaces import Progress
from config.measures import Measure
from config.resolve import Resolved
from steps.directory.files import full_disk_explained
from steps.directory.layout import RunDirectory
from steps.directory.tables import Cell, Table
from steps.training import dashboards

RECENT_EPISODES = 100
NOT_PLOTTED = ("epoch", "step", "frame")


@dataclass
class Interval:
    """What happened since the last row: the ended episodes, and for each metric its sum over the
    epochs and the number of epochs without a value.
    """

    epochs: int = 0
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)

    def add(self, progress: Progress) -> None:
        """Count one epoch."""
        self.epochs += 1
        self.returns += progress.returns
        self.lengths += progress.lengths
        for name, value in progress.metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + (value or 0.0)
            if value is None:
                self.absent[name] = self.absent.get(name, 0) + 1

    def row(self, progress: Progress, measure: Measure) -> dict[str, Cell]:
        """The row that ends with this epoch. Columns about episodes are empty if none ended; a
        metric is empty if no epoch had a value.
        """
        returns = self.returns
        lengths = self.lengths
        return {
            "epoch": progress.epoch,
            "step": progress.step,
            "frame": progress.frame,
            "episodes": len(returns),
            measure.training_column: _mean(returns),
            f"{measure.column}_min": min(returns, default=None),
            f"{measure.column}_max": max(returns, default=None),
            "length_mean": _mean(lengths),
            **{name: self._mean_of(name) for name in progress.metrics},
        }

    def _mean_of(self, metric: str) -> float | None:
        """The mean of a metric over the epochs in which it had a value."""
        epochs = self.epochs - self.absent.get(metric, 0)
        return self.sums[metric] / epochs if epochs else None


class Recorder:
    """The only writer of a run's `train.csv`.

    saved: what `state` gave to the checkpoint that the training continues from. permitted: as for
    `Table`.
    """

    def __init__(
        self,
        run: RunDirectory,
        resolved: Resolved,
        *,
        step: int,
        saved: Mapping[str, Any] | None,
        permitted: Callable[[], None] | None = None,
    ) -> None:
        self._resolved = resolved
        offset = 0
        purge_step = 0
        self._recent = deque[float](maxlen=RECENT_EPISODES)
        self._interval = Interval()
        if saved is not None:
            offset = saved["offset"]
            purge_step = step + 1
            self._recent.extend(saved["recent"])
            self._interval = Interval(**saved["interval"])
        self.table = Table(run.train_csv, offset=offset, permitted=permitted)
        self.events = EventFile(run.tensorboard, purge_step=purge_step)
        self.events.add_summary(step, dashboards.of_hyperparameters(resolved))

    def add(self, progress: Progress) -> None:
        """Count an epoch, and write a row where the log interval ends."""
        self._interval.add(progress)
        self._recent.extend(progress.returns)
        if (
            progress.epoch % self._resolved.experiment.log_interval == 0
            or progress.epoch == self._resolved.epochs
        ):
            row = self._interval.row(progress, self._resolved.measure)
            self.table.append(row)
            self.events.add(
                progress.step,
                {
                    name: float(v)
                    for name, v in row.items()
                    if v is not None and name not in NOT_PLOTTED
                },
            )
            known = dashboards.of_training(row, self.training_score, self._resolved.measure)
            self.events.add_tagged(progress.step, known)
            self._interval = Interval()

    @property
    def training_score(self) -> float | None:
        """Mean of the last 100 training episodes; None before the first one ended."""
        return _mean(self._recent)

    @property
    def recent(self) -> list[float]:
        """What the training score is the mean of: the last 100 episodes, or all if fewer have ended."""
        return list(self._recent)

    def state(self) -> dict[str, Any]:
        """The recorder's state for the checkpoint, as JSON."""
        self.events.flush()
        return {
            "offset": self.table.offset,
            "recent": list(self._recent),
            "interval": asdict(self._interval),
        }

    def close(self) -> None:
        """Close both files."""
        self.table.close()
        self.events.close()


def _mean(numbers: deque[float] | list[float] | list[int]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


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
