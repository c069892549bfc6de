"""How far a training is, from the files that it leaves: for the live view and the report."""

from __future__ import annotations

from dataclasses import dataclass

from config.resolve import Resolved
from steps.directory.layout import RunDirectory
from steps.directory.tables import last_row


@dataclass(frozen=True, kw_only=True)
class Progress:
    """step of about total_steps (rows that answer an autoreset are no steps); epoch of epochs, which is exact; return_mean: of the
    last row that has one, in the game's own reward; the last two are None before they are known.
    """

    step: int
    total_steps: int
    epoch: int
    epochs: int
    return_mean: float | None
    steps_per_second: float | None

    @property
    def fraction(self) -> float:
        """Between 0 and 1."""
        return min(1.0, self.epoch / self.epochs)


def read_progress(run: RunDirectory, resolved: Resolved) -> Progress:
    """Read the ends of `train.csv` and `resources.csv`; a run without files is at step 0."""
    train = last_row(run.train_csv) or {}
    with_return = last_row(run.train_csv, having="return_mean") or {}
    resources = last_row(run.resources_csv, having="steps_per_second") or {}
    return Progress(
        step=int(train.get("step") or 0),
        total_steps=resolved.total_steps,
        epoch=int(train.get("epoch") or 0),
        epochs=resolved.epochs,
        return_mean=_number(with_return.get("return_mean")),
        steps_per_second=_number(resources.get("steps_per_second")),
    )


def _number(text: str | None) -> float | None:
    return float(text) if text else None
