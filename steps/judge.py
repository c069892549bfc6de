"""Whether a trial goes on from a rung: `python -m steps.judge --outdir results/search/experiments/trial-0007
--until 12`.

Follows the trainings of a trial, which have all come to this epoch, and compares what they are worth with what the
other trials that had come so far were worth there (asynchronous successive halving). Outputs the epoch of the
next rung; or, for a trial that was trained to its end, the runs to evaluate; or nothing for one that is pruned.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from config import pipeline
from config.ending import end
from config.errors import BadInput
from config.outdir import check_outdir
from config.resolved import Resolved
from config.study.search import trial_number
from steps.command.main import command_parser, guarded, write_outputs
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.search import read_search, search_of
from steps.directory.status import read_status
from steps.propose import open_journal
from steps.search.journal import in_words
from steps.search.objective import value_at

REACHED = ("paused", "succeeded")
"""The states of a training that has come to a rung, or to its end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    parser = command_parser("steps.judge", sys.modules[__name__], in_run=False)
    parser.add_argument("--until", required=True, type=int, help="the epoch of the rung")
    arguments = parser.parse_args(argv)
    return guarded("judge", lambda: judge(arguments))


def judge(arguments: argparse.Namespace) -> int:
    """Judge the trial and output what comes next."""
    storage = os.environ.get("STORAGE") or None
    experiment = ExperimentDirectory(check_outdir(arguments.outdir, storage))
    directory, study, search = read_search(search_of(experiment), storage)
    number = trial_number(experiment.root.name)
    resolved = read_experiment(experiment).resolved
    epochs = search.rung_epochs(resolved.epochs)
    if arguments.until not in epochs:
        raise BadInput(
            f"--until cannot be {arguments.until}; allowed: the epoch of a rung, {epochs}"
        )
    rung = epochs.index(arguments.until)
    runs = reached(experiment, resolved, arguments.until)
    if len(runs) < resolved.min_runs:
        print(
            f"{len(runs)} of {resolved.experiment.runs} runs have come to epoch {arguments.until}"
        )
        _output(again=False)
        return 0
    value = value_at(experiment, resolved, runs, search.objective, arguments.until)
    journal = open_journal(directory, study)
    found = journal.judge(number, rung, arguments.until, value)
    print(in_words([found]) or f"goes on from rung {rung + 1}, epoch {found.epoch}: {found.value}")
    if not found.promoted:
        _output(again=False)
    elif rung + 1 < len(epochs):
        _output(again=True, until=epochs[rung + 1])
    elif search.plots:
        _output(again=False, whole=[experiment.root.name])
    else:
        _output(again=False, evaluated=runs)
    return 0


def reached(experiment: ExperimentDirectory, resolved: Resolved, epoch: int) -> list[int]:
    """The runs whose training has come to an epoch."""
    found = []
    for index in range(resolved.experiment.runs):
        status = read_status(experiment.run(index).status / f"{pipeline.TRAIN}.json")
        if status is None or status.state not in REACHED:
            continue
        if (status.number("epoch") or 0) >= epoch:
            found.append(index)
    return found


def _output(
    *, again: bool, until: int = 0, evaluated: Sequence[int] = (), whole: Sequence[str] = ()
) -> None:
    write_outputs(
        {
            pipeline.AGAIN: "true" if again else "false",
            pipeline.UNTIL: str(until),
            pipeline.EVALUATED: json.dumps(list(evaluated)),
            pipeline.WHOLE: json.dumps(list(whole)),
        }
    )


if __name__ == "__main__":
    end(main())
