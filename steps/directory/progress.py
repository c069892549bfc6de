"""How far a training is, from its files or from the lines that it prints, for the live view and the
report.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from config.measures import Measure
from config.resolve import Resolved
from steps.directory.layout import RunDirectory
from steps.directory.tables import last_row


@dataclass(frozen=True)
class Score:
    """A score of a run, with the name and the unit of its measure."""

    measure: str
    value: float
    unit: str

    @staticmethod
    def of(measure: Measure, value: float | None) -> Score | None:
        """The score, or None without a value."""
        return None if value is None else Score(measure.name, value, measure.unit)

    def written(self, form: str) -> str:
        """`return 43.2`, `win rate 55.0 %`. form: the number's format, as for `format`."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.measure} {self.value:{form}}{unit}"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a training: step of total_steps, epoch of epochs. score: that of the last row
    that has one. The last two fields are None before they are known.
    """

    step: int
    total_steps: int
    epoch: int
    epochs: int
    score: Score | None
    steps_per_second: float | None

    @property
    def fraction(self) -> float:
        """The finished share, between 0 and 1."""
        return min(1.0, self.epoch / self.epochs)


PRINTED = re.compile(
    r"epoch (?P<epoch>\d+) of (?P<epochs>\d+), step (?P<step>\d+) of (?P<total_steps>\d+)"
    r"(?:, (?P<measure>[^,]+) (?P<value>-?[0-9][^ ,]*|-?inf|nan)(?: (?P<unit>[^,]+))?)?"
    r"(?:, (?P<steps_per_second>[^ ,]+) steps/s)?"
)


def printed(progress: Progress) -> str:
    """The line that a training prints now and then: `epoch 58 of 196, step 14848 of 50176, return
    43.2, 5843.1 steps/s`.
    """
    parts = [
        f"epoch {progress.epoch} of {progress.epochs}",
        f"step {progress.step} of {progress.total_steps}",
    ]
    if progress.score is not None:
        parts.append(progress.score.written(".5g"))
    if progress.steps_per_second is not None:
        parts.append(f"{progress.steps_per_second:.1f} steps/s")
    return ", ".join(parts)


def read_printed(line: str) -> Progress | None:
    """Parse a line that `printed` wrote; None for any other line."""
    match = PRINTED.fullmatch(line.strip())
    if match is None:
        return None
    return Progress(
        step=int(match["step"]),
        total_steps=int(match["total_steps"]),
        epoch=int(match["epoch"]),
        epochs=int(match["epochs"]),
        score=Score(match["measure"], float(match["value"]), match["unit"] or "")
        if match["measure"]
        else None,
        steps_per_second=_number(match["steps_per_second"]),
    )


def read_progress(run: RunDirectory, resolved: Resolved) -> Progress:
    """Read the ends of `train.csv` and `resources.csv`; a run without files is at step 0."""
    train = last_row(run.train_csv) or {}
    column = resolved.measure.training_column
    with_score = last_row(run.train_csv, having=column) or {}
    resources = last_row(run.resources_csv, having="steps_per_second") or {}
    return Progress(
        step=int(train.get("step") or 0),
        total_steps=resolved.total_steps,
        epoch=int(train.get("epoch") or 0),
        epochs=resolved.epochs,
        score=Score.of(resolved.measure.in_training, _number(with_score.get(column))),
        steps_per_second=_number(resources.get("steps_per_second")),
    )


def _number(text: str | None) -> float | None:
    return float(text) if text else None
