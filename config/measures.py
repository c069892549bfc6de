"""What a run is judged by: a measure, with its words and what is computed of it.

An algorithm's descriptor says which one is its own; evaluation, averages, plots, the page and
`evaluate_above` follow it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from config.numbers import number


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity with one row for each evaluated episode or game.

    name: in sentences and on axes. unit: empty where the game has its own. table, column: where the
    rows are, of a run's directory. training_column: the same in train.csv, averaged over one row's
    episodes; empty rows had none.
    """

    name: str
    unit: str
    higher_is_better: bool
    table: str
    column: str
    training_column: str

    def of_run(self, values: Sequence[float]) -> float:
        """The score of a run, of which every statistic over runs is made: the mean of its rows,
        summed exactly.
        """
        return math.fsum(values) / len(values)

    def reaches(self, value: float, threshold: float) -> bool:
        """Whether a training is good enough for `evaluate_above`."""
        return value >= threshold if self.higher_is_better else value <= threshold

    @property
    def training_detail(self) -> str:
        """What `train` calls the mean of its last episodes in its status: `training_return`."""
        return f"training_{self.column}"

    def axis(self, of: str = "") -> str:
        """Above a column, and along an axis: `win rate, %`, `return of an episode`."""
        text = f"{self.name} of {of}" if of else self.name
        unit = f", {self.unit}" if self.unit else ""
        return f"{text}{unit}{'' if self.higher_is_better else ' (lower is better)'}"

    def shown(self, value: float) -> str:
        """As people read it, with the unit."""
        return f"{number(value)} {self.unit}" if self.unit else number(value)


RETURN = Measure(
    name="return",
    unit="",
    higher_is_better=True,
    table="evaluation.csv",
    column="return",
    training_column="return_mean",
)
"""The sum of the rewards of an episode, in the game's own reward."""
