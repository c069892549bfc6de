"""What is compared: the runs of one algorithm on one game, as a directory or a file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from steps.statistics.curves import Curve

EMPTY = Curve(steps=np.empty(0, np.int64), values=np.empty(0))


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run has cost. repeated_h: processor-hours of training that a kill or a preemption lost."""

    processor_h: float = 0.0
    gpu_h: float = 0.0
    preemptions: int = 0
    repeated_h: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One training.

    name: its index, or its folder's name. score: the mean return of the episodes in which the final
    policy was evaluated; None without an evaluation. episodes: how many these were. training: returns
    of training episodes against environment steps. times: the same against milliseconds of training.
    policy: returns of evaluations in the course of the training, against environment steps. left_out:
    why the run enters no average, empty if it does.
    """

    name: str
    score: float | None
    episodes: int = 0
    training: Curve = EMPTY
    times: Curve = EMPTY
    policy: Curve = EMPTY
    left_out: str = ""
    cost: Cost = field(default_factory=Cost)

    @property
    def is_used(self) -> bool:
        """Whether the run enters averages."""
        return not self.left_out and self.score is not None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The runs of one algorithm on one game.

    label: the algorithm's, as figures show it. settings: values of a study's grid, by parameter.
    steps: environment steps that a whole run has; None if unknown. frames:
    of the game's emulator in one environment step. evaluation: how the scores were measured, such
    as `20 greedy episodes of the final policy`. made_by: the program that trained. page: the report of
    these runs, if there is one.
    """

    label: str
    game: str
    runs: tuple[ComparedRun, ...]
    directory: Path
    made_by: str
    settings: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None
    frames: int = 1
    evaluation: str = ""
    page: Path | None = None

    @property
    def used(self) -> tuple[ComparedRun, ...]:
        """The runs that enter averages."""
        return tuple(run for run in self.runs if run.is_used)

    @property
    def scores(self) -> list[float]:
        """Of the runs that enter averages, [N]."""
        return [run.score for run in self.used if run.score is not None]
