"""Numbers and states as the live progress writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from config.numbers import clock
from config.pipeline import TRAIN
from steps.directory.progress import Progress
from workflows.dag.tasks import State, Task, Where

ReadProgress = Callable[[Where], Progress | None]
"""How far a run is; None if that cannot be read here."""
ReadReason = Callable[[Task], str]
"""Why a task waits or failed."""
Find = Callable[[str], Path | None]
"""Where the results of an outdir, as the pods see it (empty: the workflow's own), can be read from
here; None where they cannot."""

COMMON = ("", "PodInitializing", "ContainerCreating")
"""Why a pod waits for a moment in every workflow: not worth a word."""
WITH_REASON: tuple[State, ...] = ("pending", "retrying", "failed")
ENDED: tuple[State, ...] = ("succeeded", "failed")


def is_training(task: Task) -> bool:
    """Whether it is the process whose progress is that of a run; the members of its stage are not."""
    return task.step == TRAIN and task.where.run is not None and not task.member


def numbers(progress: Progress) -> str:
    """` 43 %  return 123.4  8,950 steps/s  0:31 left`, as far as they are known."""
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
