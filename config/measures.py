"""Measures: the quantity by which a run is judged, its names and its computation.

An algorithm's descriptor chooses its measure. Evaluation, averages, plots, the page and
`evaluate_above` follow it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from config.errors import shown
from config.numbers import number


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity with one row for each evaluated episode or game.

    name: as used in sentences and on axes. unit: empty if the game has its own. table, column:
    where its rows are, in a run's directory. training_column: the same quantity in train.csv,
    averaged over the episodes of a row; empty in rows without one. training_name: its name in
    training, where that differs from an evaluation.
    """

    name: str
    unit: str
    higher_is_better: bool
    table: str
    column: str
    training_column: str
    training_name: str = ""

    def of_run(self, values: Sequence[float]) -> float:
        """The score of a run, from which all statistics over runs are made: the mean of its rows,
        summed exactly.
        """
        return math.fsum(values) / len(values)

    def reaches(self, value: float, threshold: float) -> bool:
        """Whether a training is good enough for `evaluate_above`."""
        return value >= threshold if self.higher_is_better else value <= threshold

    @property
    def training_detail(self) -> str:
        """The key in `train`'s status for the mean of the last episodes: `training_return`."""
        return f"training_{self.column}"

    @property
    def in_training(self) -> Measure:
        """The measure as a training reports it, for its rows, curves and log lines."""
        return replace(self, name=self.training_name or self.name)

    @property
    def training_axis(self) -> str:
        """The axis label of a training curve."""
        return self.in_training.axis("" if self.training_name else "training episodes")

    def result(self, scores: Mapping[str, Any]) -> tuple[str, float]:
        """The name and the value of the one number that stands for an experiment, wherever it is
        shown. scores: statistics over n runs, n >= 1, as in `summary.json`.

        From five runs on this is their interquartile mean (Agarwal et al. 2021), before that their
        mean, and with one run its own score.
        """
        if scores["n"] == 1:
            return self.name, float(scores["mean"])
        if scores.get("iqm") is None:
            return f"mean {self.name}", float(scores["mean"])
        return f"interquartile mean {self.name}", float(scores["iqm"])

    def axis(self, of: str = "") -> str:
        """The label of a column or an axis: `win rate, %`, `return of an episode`."""
        text = f"{self.name} of {of}" if of else self.name
        unit = f", {self.unit}" if self.unit else ""
        return f"{text}{unit}{'' if self.higher_is_better else ' (lower is better)'}"

    def shown(self, value: float) -> str:
        """Format a value for people, with the unit."""
        return f"{number(value)} {self.unit}" if self.unit else number(value)


NAME = re.compile(r"[^\W\d](?:[^,\n]{0,38}[^,\s])?")
FORMS = {
    "name": (NAME, "1 to 40 characters without a comma"),
    "unit": (re.compile(r"(?:[^,\s](?:[^,\n]{0,18}[^,\s])?)?"), "up to 20 without a comma"),
    "table": (
        re.compile(
            r"(?!(?:train|resources|evaluation-curve|best-snapshot)\.)[a-z0-9_-]{1,40}\.csv"
        ),
        "a name.csv of its own",
    ),
    "column": (re.compile(r"(?!(?:episode|seed|length)$)[a-z][a-z0-9_]{0,39}"), "a-z, 0-9 and _"),
    "training_column": (
        re.compile(r"(?!(?:epoch|step|frame|episodes|length_mean)$)[a-z][a-z0-9_]{0,39}"),
        "a-z, 0-9 and _",
    ),
    "training_name": (NAME, "as for name, or empty"),
}
"""The allowed form of each text of a measure; these texts appear in printed lines, tables and
paths.
"""


def wrong_words(measure: object) -> str:
    """The first problem with a measure's texts in one line; empty if there is none."""
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
"""The sum of an episode's rewards, before any clipping or normalisation."""

WIN_RATE = Measure(
    name="win rate",
    unit="%",
    higher_is_better=True,
    table="evaluation.csv",
    column="win_rate",
    training_column="win_rate_mean",
    training_name="win rate of who begins",
)
"""Self-play: a won game counts 100, a draw 50, a lost game 0. In an evaluation this is the agent's
rate against the ladder (`config.ladder`). In training both sides are the same agent, so it is the
rate of the player who begins: what the first move is worth.
"""

ELO = Measure(
    name="Elo rating",
    unit="",
    higher_is_better=True,
    table="arena.csv",
    column="elo",
    training_column="elo_mean",
)
"""The rating of a run by the Bradley-Terry model (`steps.statistics.elo`), beside its win rate.
`random` has 0.
"""
