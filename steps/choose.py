"""What the winner is, and how it is measured again: `python -m steps.choose --outdir results/search`.

Follows all trials. Writes the parameters of the best one to best.yaml, as `--presets` takes them, and into
`again/` a study of the best trials and the preset, with seeds that no trial had: the best of many scores is
too good to be true. Outputs the experiments of that study.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from config.algorithms import find_algorithm
from config.ending import end
from config.errors import Incomplete
from config.presets import preset_parameters
from config.strict_yaml import dump
from config.study import Search, Study, read_study
from steps.command.main import command_parser, guarded, write_outputs
from steps.directory.files import write_if_changed
from steps.directory.search import SearchDirectory, read_search
from steps.directory.study import listed, write_cells
from steps.propose import open_journal
from steps.search.journal import Trial

PRESET = "preset"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    parser = command_parser("steps.choose", sys.modules[__name__], in_run=False)
    arguments = parser.parse_args(argv)
    return guarded("choose", lambda: choose(arguments))


def choose(arguments: argparse.Namespace) -> int:
    """Write the winner and the study of it. Raises `Incomplete` if no trial was trained to its end."""
    directory, study, search = read_search(arguments.outdir, os.environ.get("STORAGE") or None)
    best = open_journal(directory, study).best(search.then.best)
    if not best:
        raise Incomplete("no trial was trained and evaluated to its end, so there is no winner")
    write_best(directory, study, best[0])
    again = read_study(dump(again_document(directory, study, search, best)), "the winner's study")
    directory.again.root.mkdir(exist_ok=True)
    write_if_changed(directory.again.study_yaml, dump(again.document))
    write_cells(directory.again, again.cells)
    for trial in best:
        print(f"trial {trial.number}: {trial.value:.6g}, {dict(trial.values)}")
    write_outputs(listed(again.cells, again=False))
    return 0


def write_best(directory: SearchDirectory, study: Study, trial: Trial) -> None:
    """Write the parameters of a trial as a file of presets: what was searched, and what else the file gives
    that a preset may have.
    """
    (preset,) = study.cells
    known = preset_parameters(find_algorithm(preset.algorithm))
    given = {name: known[name].parse(text) for name, text in preset.given.items() if name in known}
    values = {**given, **{name: known[name].parse(one) for name, one in trial.values.items()}}
    section = {name: list(one) if isinstance(one, tuple) else one for name, one in values.items()}
    head = f"# trial {trial.number}: {trial.value:.6g} in the search\n"
    write_if_changed(directory.best_yaml, head + dump({preset.algorithm: section}))


def again_document(
    directory: SearchDirectory, study: Study, search: Search, best: Sequence[Trial]
) -> dict[str, Any]:
    """The study that compares the best trials with the preset."""
    (preset,) = study.cells
    (named,) = study.document["algorithms"]
    own = named.get(preset.algorithm, {}) if isinstance(named, Mapping) else {}
    trials = [
        {preset.algorithm: {**own, **trial.values}, "label": f"trial {trial.number}"}
        for trial in best
    ]
    parameters = {**study.document.get("parameters", {}), "seed": search.then.seed}
    return {
        "outdir": str(directory.again.root),
        "runs": search.then.runs,
        "algorithms": [*trials, {preset.algorithm: own, "label": PRESET}],
        "games": study.document["games"],
        "parameters": parameters,
        "compare": {"baseline": PRESET},
    }


if __name__ == "__main__":
    end(main())
