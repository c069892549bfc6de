"""A search: one experiment of a study's file, of which some parameters are proposed, trial by trial.

```yaml
search:
  parameters: {learning_rate: {low: 1e-5, high: 1e-2, scale: log}, hidden_sizes: {choices: ["64,64", "256,256"]}}
  sampler: tpe
  trials: 40
  parallel: 4
  objective: {measure: evaluation, over_runs: iqm}
  prune: {rungs: [0.1, 0.3, 1.0], reduction: 3}
  then: {best: 1, runs: 5, seed: 1000}
```

What else the file says of the experiment is the preset: the values that searched parameters have there
are what the winner is compared with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.errors import BadInput, shown
from config.parameters import to_text
from config.study.cells import Cell

KEY = "search"
SAMPLERS = ("tpe", "gp", "cmaes", "qmc", "random", "grid")
"""Optuna's, by the names of their classes."""
EVALUATION, AREA = MEASURES = ("evaluation", "training_area")
MOST_TURNS = 80
"""Trials of one lane, a template that calls itself: the controller stops at 100 nested calls, and below
a trial there are others.
"""
MOST_RUNGS = 10


@dataclass(frozen=True, kw_only=True)
class Varied:
    """One searched parameter: a range, or a list of choices.

    low, high: both included; is_log: whether equal ratios are equally likely; step: of a grid within the
    range, None for every value; choices: as YAML writes them, empty for a range.
    """

    name: str
    is_integer: bool = False
    low: float = 0
    high: float = 0
    is_log: bool = False
    step: float | None = None
    choices: tuple[Any, ...] = ()

    def document(self) -> dict[str, Any]:
        """The entry of the file."""
        if self.choices:
            return {"choices": list(self.choices)}
        step = {} if self.step is None else {"step": self.step}
        return {"low": self.low, "high": self.high, **({"scale": "log"} if self.is_log else step)}

    def values(self) -> list[Any]:
        """All values of a parameter that has a limited number of them, else none."""
        if self.choices:
            return list(self.choices)
        if self.step is None:
            return []
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        return [self.low + index * self.step for index in range(count + 1)]

    @property
    def ends(self) -> tuple[Any, ...]:
        """The choices, or both ends of the range."""
        return self.choices or (self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is optimised: the evaluation of the final policies, or the mean height of the training
    curves, over the runs of a trial.
    """

    measure: str = EVALUATION
    over_runs: str = "iqm"


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Asynchronous successive halving (Li et al. 2020, arXiv:1810.05934). rungs: shares of a training, rising,
    of which the last is 1; reduction: of so many trials at a rung one goes on.
    """

    rungs: tuple[float, ...]
    reduction: int


@dataclass(frozen=True, kw_only=True)
class Again:
    """The best trials are trained again, with seeds that no trial had. seed: of these experiments."""

    best: int
    runs: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched, and how. prune: None if every trial is trained to its end; plots: whether trials
    have figures, films and pages as experiments have.
    """

    parameters: Mapping[str, Varied]
    sampler: str
    seed: int
    trials: int
    parallel: int
    objective: Objective
    prune: Pruning | None
    then: Again
    plots: bool

    def document(self) -> dict[str, Any]:
        """The key `search` of the file."""
        prune = self.prune and {"rungs": list(self.prune.rungs), "reduction": self.prune.reduction}
        return {
            "parameters": {name: one.document() for name, one in self.parameters.items()},
            "sampler": self.sampler,
            "seed": self.seed,
            "trials": self.trials,
            "parallel": self.parallel,
            "objective": vars(self.objective) | {},
            **({"prune": prune} if prune else {}),
            "then": vars(self.then) | {},
            "plots": self.plots,
        }

    def rung_epochs(self, epochs: int) -> list[int]:
        """The epoch of each rung of a training of this length, all different; without pruning its end alone.
        Trials may differ in their length. Raises `BadInput` for fewer epochs than rungs.
        """
        shares = (1.0,) if self.prune is None else self.prune.rungs
        if epochs < len(shares):
            raise BadInput(f"a training of {epochs} epochs has no room for {len(shares)} rungs")
        found = [0]
        for index, share in enumerate(shares, 1):
            earliest = max(math.ceil(share * epochs - 1e-9), found[-1] + 1)
            found.append(min(earliest, epochs - len(shares) + index))
        return found[1:]

    def trial(self, preset: Cell, number: int, values: Mapping[str, Any]) -> Cell:
        """The experiment of a trial. preset: that of the file; values: as they were proposed."""
        texts = {name: to_text(value) for name, value in values.items()}
        drawn = {} if self.plots else {"video_episodes": "0"}
        return Cell(
            name=trial_name(number),
            label=f"trial {number}",
            algorithm=preset.algorithm,
            game=preset.game,
            given={**preset.given, **drawn, **texts},
            settings=texts,
        )


def trial_name(number: int) -> str:
    """The name of a trial's directory."""
    return f"trial-{number:04d}"


def trial_number(name: str) -> int:
    """The number of a trial from the name of its directory. Raises `BadInput`."""
    found = re.fullmatch(r"trial-([0-9]{4,6})", name)
    if found is None:
        raise BadInput(f"{shown(name)} is no trial; allowed: a directory such as {trial_name(7)}")
    return int(found[1])
