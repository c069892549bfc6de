"""What TensorBoard shows of the evaluations: the curve, and the film of learning, in event files beside
those of the training.

They have no session start, which would make TensorBoard drop the training's own events. Each is
written as a whole and takes the place of the one before it, so that no point is shown twice.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from config.measures import RETURN, Measure
from steps.directory.files import write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.tables import Cell

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

CURVE, FILM = ".evaluation", ".film"
"""The ends of the files' names."""
FILM_TAG = "videos/learning"


def write_curve(run: RunDirectory, rows: Sequence[Mapping[str, Cell]], measure: Measure) -> None:
    """Write the rows of evaluation-curve.csv. Returns also have the names that other libraries give
    them (`steps.training.dashboards`).
    """
    from steps.tracking.event_files import scalars

    listed = [(int(row["step"] or 0), scalars(_tagged(row, measure))) for row in rows]
    _write(run, CURVE, listed)


def write_animation(run: RunDirectory, gif: bytes, size: tuple[int, int]) -> None:
    """Write an animated GIF of so many pixels [width, height]."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    width, height = size
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
    last = max(run.snapshot_steps(), default=0)
    _write(run, FILM, [(last, Summary(value=[Summary.Value(tag=FILM_TAG, image=image)]))])


def _write(run: RunDirectory, end: str, summaries: Sequence[tuple[int, Summary]]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    records = RecordWriter(content)
    now_s = time.time()
    records.write(Event(file_version="brain.Event:2", wall_time=now_s).SerializeToString())
    for step, summary in summaries:
        records.write(Event(step=step, wall_time=now_s, summary=summary).SerializeToString())
    records.flush()
    for earlier in run.tensorboard.glob(f"*{end}"):
        earlier.unlink()
    # TensorBoard reads the files of a folder in the order of their names: this one comes last.
    name = f"events.out.tfevents.{int(now_s):010d}.{socket.gethostname()}.{os.getpid()}{end}"
    write_atomically(run.tensorboard / name, content.getvalue())


def _tagged(row: Mapping[str, Cell], measure: Measure) -> dict[str, float]:
    """Tag -> value."""
    from steps.training.dashboards import EVALUATED, EVALUATED_LENGTH

    mean = float(row[f"{measure.column}_mean"] or 0.0)
    length = float(row["length_mean"] or 0.0)
    found = {f"eval/{measure.column}_mean": mean, "eval/length_mean": length}
    if measure.column == RETURN.column:
        found |= {EVALUATED: mean, EVALUATED_LENGTH: length}
    return found
