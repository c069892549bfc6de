"""What is compared: the runs of one algorithm on one game, as a directory or a file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from config.measures import RETURN, Measure
from steps.directory.cost import Cost
from steps.statistics.curves import Curve

EMPTY = Curve(steps=np.empty(0, np.int64), values=np.empty(0))


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One training.

    name: its index, or its folder's name. score: see `Entry.evaluation`; None without one. episodes:
    how many the score is the mean of, 0 if unknown. steps: environment steps that it has trained for.
    training: returns of training episodes against environment steps. times: the same against
    milliseconds of training. policy: returns of evaluations in the course of the training, against
    environment steps. left_out: why the run enters no average, empty if it does.
    """

    name: str
    score: float | None
    episodes: int = 0
    steps: int = 0
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

    label: the algorithm's, as figures show it. game: its short name if it has one, else its id.
    settings: those parameters in which it differs from the other entries of its label, by name. steps:
    environment steps that a whole run has; None if unknown. frames: of the game's emulator in one
    environment step. measure: of the scores and the curves. evaluation: how the scores were measured,
    such as `20 greedy episodes of the final policy`. in_training: whether the scored episodes are those
    of the training, with exploration. conditions: settings of the game that decide what a return means,
    by name; empty if unknown. remarks: what the files leave in doubt, in a few words each.
    made_by: the program that trained. page: the report of these runs, if there is one.
    """

    label: str
    game: str
    runs: tuple[ComparedRun, ...]
    directory: Path
    made_by: str
    settings: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None
    frames: int = 1
    measure: Measure = RETURN
    evaluation: str = ""
    in_training: bool = False
    conditions: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    page: Path | None = None

    @property
    def used(self) -> tuple[ComparedRun, ...]:
        """The runs that enter averages."""
        return tuple(run for run in self.runs if run.is_used)

    @property
    def scores(self) -> list[float]:
        """Of the runs that enter averages, [N]."""
        return [run.score for run in self.used if run.score is not None]
