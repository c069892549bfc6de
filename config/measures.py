"""What a run is judged by: a measure, with its words and what is computed of it.

An algorithm's descriptor says which one is its own; evaluation, averages, plots, the page and
`evaluate_above` follow it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from config.errors import shown
from config.numbers import number


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity with one row for each evaluated episode or game.

    name: in sentences and on axes. unit: empty where the game has its own. table, column: where the
    rows are, of a run's directory. training_column: the same in train.csv, averaged over one row's
    episodes; empty rows had none. training_name: what that is, where a training measures something
    else than an evaluation.
    """

    name: str
    unit: str
    higher_is_better: bool
    table: str
    column: str
    training_column: str
    training_name: str = ""

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

    @property
    def in_training(self) -> Measure:
        """The same as a training measures it: what its rows, curves and lines are about."""
        return replace(self, name=self.training_name or self.name)

    @property
    def training_axis(self) -> str:
        """Along the axis of a training's curve."""
        return self.in_training.axis("" if self.training_name else "training episodes")

    def axis(self, of: str = "") -> str:
        """Above a column, and along an axis: `win rate, %`, `return of an episode`."""
        text = f"{self.name} of {of}" if of else self.name
        unit = f", {self.unit}" if self.unit else ""
        return f"{text}{unit}{'' if self.higher_is_better else ' (lower is better)'}"

    def shown(self, value: float) -> str:
        """As people read it, with the unit."""
        return f"{number(value)} {self.unit}" if self.unit else number(value)


NAME = re.compile(r"[^\W\d](?:[^,\n]{0,38}[^,\s])?")
FORMS = {
    "name": (NAME, "1 to 40 characters without a comma"),
    "unit": (re.compile(r"(?:[^,\s](?:[^,\n]{0,18}[^,\s])?)?"), "up to 20 without a comma"),
    "table": (
        re.compile(r"(?!(?:train|resources)\.)[a-z0-9_-]{1,40}\.csv"),
        "a name.csv of its own",
    ),
    "column": (re.compile(r"(?!(?:episode|seed|length)$)[a-z][a-z0-9_]{0,39}"), "a-z, 0-9 and _"),
    "training_column": (
        re.compile(r"(?!(?:epoch|step|frame|episodes|length_mean)$)[a-z][a-z0-9_]{0,39}"),
        "a-z, 0-9 and _",
    ),
    "training_name": (NAME, "as for name, or empty"),
}
"""What the words of a measure may be: they stand in printed lines, tables and paths."""


def wrong_words(measure: object) -> str:
    """What a measure cannot say of itself, in one line; empty if it is well described."""
    if not isinstance(measure, Measure):
        return f"measure cannot be {shown(measure)}; allowed: config.measures.Measure"
    for field, (form, allowed) in FORMS.items():
        text = getattr(measure, field)
        if field == "training_name" and text == "":
            continue
        if not isinstance(text, str) or not form.fullmatch(text) or not text.isprintable():
            return f"measure.{field} cannot be {shown(text)}; allowed: {allowed}"
    return ""


RETURN = Measure(
    name="return",
    unit="",
    higher_is_better=True,
    table="evaluation.csv",
    column="return",
    training_column="return_mean",
)
"""The sum of the rewards of an episode, in the game's own reward."""

WIN_RATE = Measure(
    name="win rate",
    unit="%",
    higher_is_better=True,
    table="evaluation.csv",
    column="win_rate",
    training_column="win_rate_mean",
    training_name="win rate of who begins",
)
"""Of self-play: a game won is 100, drawn 50, lost 0. In an evaluation the agent's, over the games
against the ladder (`config.ladder`); in training, where both sides are the same agent, of the one who
begins: what the first move is worth to it.
"""

ELO = Measure(
    name="Elo rating",
    unit="",
    higher_is_better=True,
    table="arena.csv",
    column="elo",
    training_column="elo_mean",
)
"""The same by the model of Bradley and Terry (`steps.statistics.elo`): one number for a run, beside its
win rate. `random` has 0.
"""
