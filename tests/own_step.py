"""A step of a test's own: with `STEP` as a row of the table it is a part of every pipeline."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from config.pipeline import TRAIN, Need, Step
from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory.files import write_atomically
from steps.directory.usable import fingerprint

STEP = Step(
    name="count-rows",
    scope="run",
    needs=(Need(task=TRAIN),),
    leaves=("rows.txt", "counted/"),
    module="tests.own_step",
)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the step."""
    return run_step(
        "count-rows", count_rows, inputs=inputs, complete=lambda context: True, argv=argv
    )


def inputs(context: StepContext) -> Mapping[str, Any]:
    """The rows that are counted."""
    return fingerprint(context.directory.root, [context.run.train_csv])


def count_rows(context: StepContext) -> dict[str, Any]:
    """Count the rows of the table of one training, and write their number into a file of its own,
    and into a folder.
    """
    rows = len(context.require(context.run.train_csv, TRAIN).read_text().splitlines()) - 1
    (context.run.root / "counted").mkdir(exist_ok=True)
    write_atomically(context.run.root / "rows.txt", f"{rows}\n")
    return {"rows": rows}


if __name__ == "__main__":
    sys.exit(main())
