"""Write the progress of a training to `train.csv` and to TensorBoard's event files.

`train.csv` has one row per log interval and nothing that depends on the clock. The event files
(`steps.tracking.event_files`) repeat its numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agents.interfaces import Progress
from config.measures import Measure
from config.resolved import Resolved
from steps.directory.layout import RunDirectory
from steps.directory.tables import Cell, Table
from steps.tracking.event_files import EventFiles
from steps.tracking.hyperparameters import hyperparameters
from steps.tracking.sink import Row, TrackedRun
from steps.training import dashboards

RECENT_EPISODES = 100


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
        self._sink = EventFiles()
        self._rows = 0
        self._sink.start(_tracked(run, resolved, purge_step))
        self.events = self._sink.events

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
            values = {name: float(one) for name, one in row.items() if one is not None}
            self._sink.rows(
                [Row(number=self._rows, group="train", step=progress.step, values=values)]
            )
            self._rows += 1
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
        self._sink.finish()


def _mean(numbers: deque[float] | list[float] | list[int]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _tracked(run: RunDirectory, resolved: Resolved, next_step: int) -> TrackedRun:
    return TrackedRun(
        id=str(run.index),
        name=run.root.name,
        group=run.root.parent.parent.name,
        hyperparameters=hyperparameters(resolved),
        folder=run.tensorboard,
        next_step=next_step,
    )
