"""How a trial ended: `python -m steps.tell --outdir results/search --trial trial-0007`.

Follows everything that was done for a trial, however it went, and tells Optuna its value, that it was pruned,
or that it failed and why. A trial is told once. Lets go of the trial's directory.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from config.ending import end
from config.numbers import if_any
from config.study.search import trial_number
from steps.command.main import command_parser, guarded
from steps.directory import owner
from steps.directory.search import read_search
from steps.propose import open_journal
from steps.search.ended import tell_end


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    parser = command_parser("steps.tell", sys.modules[__name__], in_run=False)
    parser.add_argument("--trial", required=True, help="the name of the trial's directory")
    arguments = parser.parse_args(argv)
    return guarded("tell", lambda: tell(arguments))


def tell(arguments: argparse.Namespace) -> int:
    """Tell how the trial ended. Raises `Incomplete` for one that has not."""
    number = trial_number(arguments.trial)
    directory, study, search = read_search(arguments.outdir, os.environ.get("STORAGE") or None)
    experiment = directory.experiment(arguments.trial)
    trial = tell_end(experiment, search, open_journal(directory, study), number)
    me = owner.from_environment()
    if me is not None:
        owner.release(experiment.owner_json, me.uid)
    value = "" if trial.value is None else f"{trial.value:.6g}"
    print(f"{arguments.trial}: {trial.state}{if_any(', ', value)}{if_any(': ', trial.reason)}")
    return 0


if __name__ == "__main__":
    end(main())
