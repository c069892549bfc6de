"""Whether a study needs more runs: `python -m steps.decide --outdir results/gae`.

Follows a round of experiments of a study whose number of runs may grow. On each game it compares every
label with the baseline, by the runs that there are, and lists those experiments that need another group
of runs: of labels that are undecided, and of the baselines that they are compared with. Experiments
that a grid sets apart are compared with the baseline of the same values, unless the study names one
experiment as the baseline. What is known is written to
decisions.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby

import numpy as np

from config.ending import end
from config.errors import BadInput, ExperimentError
from config.outdir import check_outdir
from config.study import AdaptiveRuns, Baseline, Cell
from steps.average import read_run
from steps.command.main import command_parser, guarded, write_outputs
from steps.comparison.compared import Decided
from steps.directory.experiment import read_experiment
from steps.directory.files import write_if_changed
from steps.directory.study import StudyDirectory, asked_cells, listed, read_asked, write_cells
from steps.statistics.adastop import Decision, adastop
from steps.statistics.scores import Floats

SEED = 0
"""Of the assignments that are drawn where there are too many to try all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    parser = command_parser("steps.decide", sys.modules[__name__], in_run=False)
    arguments = parser.parse_args(argv)
    return guarded("decide", lambda: decide(arguments))


def decide(arguments: argparse.Namespace) -> int:
    """Write and output what is decided, and which experiments grow."""
    directory = StudyDirectory(check_outdir(arguments.outdir, os.environ.get("STORAGE") or None))
    study = read_asked(directory)
    if not isinstance(study.runs, AdaptiveRuns) or study.baseline is None:
        raise BadInput(f"{directory.study_yaml} has a fixed number of runs; nothing is to decide")
    cells = asked_cells(directory, study)
    decided = decisions(directory, cells, study.baseline, study.runs)
    written = [asdict(one) for one in decided]
    write_if_changed(directory.decisions_json, json.dumps(written, indent=1) + "\n")
    for one in decided:
        print(f"{one.cell} against {one.baseline}: {one.decision} after {one.runs} runs")
    open_ = [one for one in decided if one.decision == Decision.UNDECIDED.value]
    growing = {name for one in open_ for name in (one.cell, one.baseline)}
    grown = [_grown(cell, study.runs) if cell.name in growing else cell for cell in cells]
    write_cells(directory, grown)
    write_outputs(listed([cell for cell in grown if cell.name in growing], again=bool(growing)))
    return 0


def decisions(
    directory: StudyDirectory, cells: Sequence[Cell], baseline: Baseline, runs: AdaptiveRuns
) -> list[Decided]:
    """What is known of every experiment that has a baseline on its game: the one with its values of the
    grid, or the one that the study names.
    """

    def kind(cell: Cell) -> str:
        paired = sorted(cell.settings.items()) if baseline.settings is None else []
        return json.dumps([cell.game, paired])

    families = list[tuple[Cell, list[Cell]]]()
    for _, members in groupby(sorted(cells, key=kind), key=kind):
        family = list(members)
        first = next((cell for cell in family if baseline.fits(cell.label, cell.settings)), None)
        if first is not None and len(family) > 1:
            families.append((first, [cell for cell in family if cell is not first]))
    found = []
    for against, others in families:
        scores = {cell.name: groups(directory, cell, runs.group) for cell in (against, *others)}
        looks = adastop(
            scores[against.name],
            [scores[cell.name] for cell in others],
            looks=runs.most // runs.group,
            error=runs.error / len(families),
            seed=SEED,
        )
        found += [
            Decided(
                cell=cell.name,
                baseline=against.name,
                decision=decision.value,
                runs=min(_runs(cell), _runs(against)),
            )
            for cell, decision in zip(others, looks[-1].decisions, strict=True)
        ]
    return found


def groups(directory: StudyDirectory, cell: Cell, size: int) -> list[Floats]:
    """The scores of an experiment's usable runs, an array for each group of runs that was asked for;
    without an experiment they are empty.
    """
    found = [list[float]() for _ in range(_runs(cell) // size)]
    try:
        resolved = read_experiment(directory.experiment(cell.name)).resolved
    except (ExperimentError, OSError) as error:
        print(f"{cell.name}: no run is used: {error}")
    else:
        for index in range(len(found) * size):
            result = read_run(directory.experiment(cell.name).run(index), resolved)
            if result.is_evaluated:
                found[index // size].append(result.score)
    return [np.array(scores, np.float64) for scores in found]


def _runs(cell: Cell) -> int:
    return int(cell.given["runs"])


def _grown(cell: Cell, runs: AdaptiveRuns) -> Cell:
    given: Mapping[str, str] = {**cell.given, "runs": str(_runs(cell) + runs.group)}
    return replace(cell, given=given)


if __name__ == "__main__":
    end(main())
