"""Formats numbers and states for the live progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from config.numbers import clock
from config.pipeline import TRAIN
from steps.directory.status import Progress
from workflows.dag.tasks import State, Task, Where

ReadProgress = Callable[[Where], Progress | None]
"""Returns a run's progress, or None if it cannot be read here."""
ReadReason = Callable[[Task], str]
"""Returns why a task waits or failed."""
Find = Callable[[str], Path | None]
"""Returns where the results of an outdir, as the pods see it (empty: the workflow's own), can be
read on this machine, or None.
"""

COMMON = ("", "PodInitializing", "ContainerCreating")
"""Reasons for which every pod waits a moment; they are not shown."""
WITH_REASON: tuple[State, ...] = ("pending", "retrying", "failed")
ENDED: tuple[State, ...] = ("succeeded", "failed")


def is_training(task: Task) -> bool:
    """Whether this task's progress is that of its run. Other members of the stage are not meant."""
    return task.step == TRAIN and task.where.run is not None and not task.member


def numbers(progress: Progress) -> str:
    """` 43 % return 123.4 8,950 steps/s 0:31 left`, as far as these are known."""
    parts = [f"{progress.fraction:4.0%}".replace("%", " %")]
    if progress.score is not None:
        parts.append(progress.score.written(",.1f"))
    if progress.steps_per_second:
        parts.append(f"{progress.steps_per_second:,.0f} steps/s")
    if progress.steps_per_second and progress.fraction < 1.0:
        parts.append(
            f"{clock((progress.total_steps - progress.step) / progress.steps_per_second)} left"
        )
    return "  ".join(parts)
