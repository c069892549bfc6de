"""TensorBoard event files, written row by row without TensorFlow and without a thread of their own.

One file per attempt. A session start tells TensorBoard to drop what killed attempts wrote from that
step on.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


class EventFile:
    """The event file of one attempt, in which several threads may write. purge_step: the first step
    that earlier attempts may have written in vain.
    """

    def __init__(self, directory: Path, *, purge_step: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        first = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        name = next(
            name
            for name in (f"{first}.{number}" for number in itertools.count())
            if not (directory / name).exists()
        )
        self._file = (directory / name).open("xb")
        self._records, self._lock = RecordWriter(self._file), threading.Lock()
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, values: Mapping[str, float], *, group: str = "train") -> None:
        """One event with all values of a row, shown together under the name of their group; they
        reach the file at the next `flush`.
        """
        summary = Summary(
            value=[
                Summary.Value(tag=f"{group}/{name}", simple_value=value)
                for name, value in values.items()
            ]
        )
        self._write(Event(step=step, summary=summary))

    def flush(self) -> None:
        """Let TensorBoard see what was added."""
        with self._lock:
            self._records.flush()

    def close(self) -> None:
        """Flush and close."""
        self._records.close()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        with self._lock:
            self._records.write(event.SerializeToString())
