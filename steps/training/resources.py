"""`resources.csv`: speed, CPU, memory and GPU of a training over time, sampled by a thread."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from steps.directory.tables import Cell, Table, last_row, whole_lines_bytes

if TYPE_CHECKING:  # `make gpu` measures with a Python that may have no TensorBoard
    from steps.tracking.event_files import EventFile

PERIOD_S = 1.0
LATER_PERIOD_S = 5.0
"""The period after the first minute."""
KNOWN_SPEEDS = ("time/fps", "charts/SPS")
"""What the speed is called by Stable-Baselines3 and by CleanRL, see `steps.training.dashboards`."""
Gpu = Callable[[], tuple[float | None, int | None]]
"""Returns (use in percent, bytes in use)."""
Measure = Callable[[float], Mapping[str, Cell]]
"""Takes the seconds since the last call and returns more columns, always the same ones in the same
order.
"""


class ResourceSampler:
    """The only writer of a run's `resources.csv`. offset, wall_s: from the checkpoint that the
    training continues from. measure: the topology's additional columns.
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
        measure: Measure = lambda seconds: {},
        events: EventFile | None = None,
    ) -> None:
        import psutil

        self._table = Table(path, offset=min(offset, whole_lines_bytes(path)), permitted=permitted)
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call answers 0 and begins the measurement
        self._gpu = gpu
        self._measure = measure
        self._events = events
        self._started = time.monotonic()
        self._before_s = wall_s
        self._measured = self._started
        self._sampled = self._progress = (self._started, step)
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._sample_for_ever, name="resources", daemon=True)
        self._thread.start()

    @property
    def offset(self) -> int:
        """Size of the file, for the checkpoint."""
        return self._table.offset

    @property
    def wall_s(self) -> float:
        """Seconds of training so far, over all attempts that led here."""
        return self._before_s + time.monotonic() - self._started

    def at(self, step: int) -> None:
        """Note that an epoch ended at this step. Raises the error that stopped the sampling, if
        any.
        """
        self._progress = (time.monotonic(), step)
        self.check()

    def check(self) -> None:
        """Raise the error that stopped the sampling, such as a full disk, if there was one."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Take a last sample and close the file."""
        self._ended.set()
        self._thread.join()
        self._table.close()

    def _sample_for_ever(self) -> None:
        try:
            while not self._ended.wait(self._period_s()):
                self._write(self._sample())
            self._write(self._sample())
        except Exception as error:
            self._error = error

    def _period_s(self) -> float:
        is_young = time.monotonic() - self._started < 60
        return PERIOD_S if is_young else LATER_PERIOD_S

    def _write(self, row: Mapping[str, Cell]) -> None:
        self._table.append(row)
        if self._events is not None:
            numbers = {
                name: float(value)
                for name, value in row.items()
                if value is not None and name not in ("wall_s", "step")
            }
            step = int(row["step"] or 0)
            self._events.add(step, numbers, group="resources")
            if "steps_per_second" in numbers:
                speed = numbers["steps_per_second"]
                self._events.add_tagged(step, dict.fromkeys(KNOWN_SPEEDS, speed))

    def _sample(self) -> dict[str, Cell]:
        # The training replaces this pair in another thread: read it once.
        progress = self._progress
        since_s, since_step = self._sampled
        at_s, step = progress
        speed = (step - since_step) / (at_s - since_s) if at_s > since_s else None
        self._sampled = progress
        gpu_percent = None
        gpu_memory_bytes = None
        if self._gpu is not None:
            gpu_percent, gpu_memory_bytes = self._gpu()
        now_s = time.monotonic()
        measured = self._measure(now_s - self._measured)
        self._measured = now_s
        return {
            "wall_s": round(self.wall_s, 3),
            "step": step,
            "steps_per_second": None if speed is None else round(speed, 1),
            "cpu_percent": self._process.cpu_percent(),
            "memory_bytes": self._process.memory_info().rss,
            "gpu_percent": gpu_percent,
            "gpu_memory_bytes": gpu_memory_bytes,
            **measured,
        }


def of_member(
    path: Path,
    *,
    permitted: Callable[[], None],
    gpu: Gpu | None = None,
    measure: Measure = lambda seconds: {},
) -> tuple[ResourceSampler, int]:
    """The sampler of a process without checkpoints, which continues after its last row, and the
    step of that row.
    """
    before = last_row(path) or {}
    step = int(before.get("step") or 0)
    sampler = ResourceSampler(
        path,
        offset=whole_lines_bytes(path),
        wall_s=float(before.get("wall_s") or 0.0),
        step=step,
        gpu=gpu,
        permitted=permitted,
        measure=measure,
    )
    return sampler, step


def gpu_of(device: str) -> Gpu | None:
    """A sampler of the device, if it is a GPU."""
    import torch

    if device != "cuda":
        return None
    return nvidia_smi(f"GPU-{torch.cuda.get_device_properties(0).uuid}")


def nvidia_smi(uuid: str) -> Gpu:
    """Sample one GPU with the driver's own tool. Without the tool both values are unknown."""
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
