"""The next trial of a lane: `python -m steps.propose --outdir results/search --lane 0`.

Asks Optuna for the parameters of a trial and writes down which experiment that is. A trial of this lane that is
under way, or one that a stopped workflow has left behind, is continued instead. Outputs the trial in the list
of its topology, and the epoch until which it is trained; nothing once all trials are proposed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from config import pipeline
from config.ending import end
from config.errors import BadInput, Incomplete
from config.resolve import resolve
from config.study import Cell, Search, Study
from steps.command.main import command_parser, guarded, write_outputs
from steps.directory import owner
from steps.directory.search import SearchDirectory, read_search
from steps.directory.study import listed, write_trial
from steps.search.ended import tell_end
from steps.search.journal import Journal, Trial

BY_HAND = "by hand"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    parser = command_parser("steps.propose", sys.modules[__name__], in_run=False)
    parser.add_argument("--lane", required=True, type=int, help="which lane asks, from 0")
    arguments = parser.parse_args(argv)
    return guarded("propose", lambda: propose(arguments))


def propose(arguments: argparse.Namespace) -> int:
    """Output the trial that the lane trains now."""
    storage = os.environ.get("STORAGE") or None
    directory, study, search = read_search(arguments.outdir, storage)
    me = owner.from_environment()
    workflow = BY_HAND if me is None else me.uid
    journal = open_journal(directory, study)
    while (trial := journal.propose(workflow, arguments.lane)) is not None:
        cell = search.trial(study.cells[0], trial.number, trial.values)
        write_trial(directory, cell)
        epoch = _next_epoch(directory, search, journal, trial, cell)
        if epoch:
            print(f"{cell.name}: {_words(cell)}, until epoch {epoch}")
            write_outputs(
                {
                    **listed([cell], again=True),
                    pipeline.TRIAL: cell.name,
                    pipeline.UNTIL: str(epoch),
                }
            )
            return 0
    print("all trials are proposed")
    write_outputs({**listed([], again=False), pipeline.TRIAL: "", pipeline.UNTIL: "0"})
    return 0


def open_journal(directory: SearchDirectory, study: Study) -> Journal:
    """The journal of a search."""
    (preset,) = study.cells
    if study.search is None:
        raise BadInput(f"{directory.study_yaml} has no key 'search'")
    measure = study.resolved[preset.name].measure
    return Journal(directory, study.search, higher_is_better=measure.higher_is_better)


def _next_epoch(
    directory: SearchDirectory, search: Search, journal: Journal, trial: Trial, cell: Cell
) -> int:
    """The epoch until which a trial is trained now; 0 for one that has ended."""
    try:
        epochs = search.rung_epochs(resolve(cell.algorithm, cell.given).epochs)
    except BadInput as error:
        # Each value was checked with the preset's others, and not with each other.
        journal.tell(trial.number, state="failed", reason=str(error), facts={})
        print(f"{cell.name}: {error}")
        return 0
    if not trial.rungs:
        return epochs[0]
    last = trial.rungs[-1]
    if last.promoted and last.number + 1 < len(epochs):
        return epochs[last.number + 1]
    try:
        tell_end(directory.experiment(cell.name), search, journal, trial.number)
    except Incomplete:
        return epochs[-1]
    return 0


def _words(cell: Cell) -> str:
    return ", ".join(f"{name}={text}" for name, text in cell.settings.items())


if __name__ == "__main__":
    end(main())
