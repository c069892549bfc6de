"""`resources.csv`: speed, CPU, memory and GPU over time, sampled by a thread; the one file of a
training that depends on the clock.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from steps.directory.tables import Cell, Table, whole_lines_bytes

PERIOD_S = 1.0
LATER_PERIOD_S = 5.0
"""After the first minute."""
Gpu = Callable[[], tuple[float | None, int | None]]
"""() -> (use in percent, bytes in use)."""


class ResourceSampler:
    """The one writer of a run's `resources.csv`. offset, wall_s: from the checkpoint that the
    training continues from.
    """

    def __init__(
        self,
        path: Path,
        *,
        offset: int,
        wall_s: float,
        step: int,
        gpu: Gpu | None,
        permitted: Callable[[], None] | None = None,
    ) -> None:
        import psutil

        self._table = Table(path, offset=min(offset, whole_lines_bytes(path)), permitted=permitted)
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._gpu = gpu
        self._started, self._before_s = time.monotonic(), wall_s
        self._sampled = self._progress = (self._started, step)
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._sample_for_ever, name="resources", daemon=True)
        self._thread.start()

    @property
    def offset(self) -> int:
        """For the checkpoint."""
        return self._table.offset

    @property
    def wall_s(self) -> float:
        """Seconds of training up to now, over all attempts that led here."""
        return self._before_s + time.monotonic() - self._started

    def at(self, step: int) -> None:
        """An epoch ended at this step; raises what stopped the sampling."""
        self._progress = (time.monotonic(), step)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Take a last sample and close the file."""
        self._ended.set()
        self._thread.join()
        self._table.close()

    def _sample_for_ever(self) -> None:
        try:
            while not self._ended.wait(
                PERIOD_S if time.monotonic() - self._started < 60 else LATER_PERIOD_S
            ):
                self._table.append(self._sample())
            self._table.append(self._sample())
        except Exception as error:
            self._error = error

    def _sample(self) -> dict[str, Cell]:
        (since_s, since_step), (at_s, step) = self._sampled, self._progress
        speed = (step - since_step) / (at_s - since_s) if at_s > since_s else None
        self._sampled = self._progress
        gpu_percent, gpu_memory_bytes = (None, None) if self._gpu is None else self._gpu()
        return {
            "wall_s": round(self.wall_s, 3),
            "step": step,
            "steps_per_second": None if speed is None else round(speed, 1),
            "cpu_percent": self._process.cpu_percent(),
            "memory_bytes": self._process.memory_info().rss,
            "gpu_percent": gpu_percent,
            "gpu_memory_bytes": gpu_memory_bytes,
        }


def nvidia_smi(uuid: str) -> Gpu:
    """Sample one GPU by its driver's own tool; without the tool both are unknown."""
    query = [
        "nvidia-smi",
        f"--id={uuid}",
        "--query-gpu=utilization.gpu,memory.used",
        "--format=csv,noheader,nounits",
    ]

    def sample() -> tuple[float | None, int | None]:
        try:
            answer = subprocess.run(
                query, capture_output=True, text=True, check=True, timeout=10
            ).stdout
            percent, mebibytes = answer.split(",")
            return float(percent), int(mebibytes) * 2**20
        except (OSError, subprocess.SubprocessError, ValueError):
            return None, None

    return sample
