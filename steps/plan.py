"""The first step of a study: `python -m steps.plan study.yaml --outdir results/gae`.

Reads the study, checks every experiment of it as `prepare` will, writes down what they are, and
outputs their names. Bad input fails here, before a GPU pod exists and before anything is written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from config.ending import end
from config.errors import BadInput, shown
from config.experiment import Experiment
from config.given import from_argo
from config.outdir import check_outdir
from config.parameters import cannot_be, declared
from config.resolve import resolve
from config.resolved import Resolved
from config.strict_yaml import dump
from config.study import AdaptiveRuns, Cell, Study, read_study, read_text
from config.study.workflow_parameters import OF_WORKFLOW, PART, WHOLE
from config.webhook import NOTIFY
from steps.command.main import guarded, write_outputs
from steps.directory.continuing import held_experiment
from steps.directory.files import make_and_probe, write_if_changed
from steps.directory.starting_point import (
    origin_directory,
    recorded_games,
    with_origin,
    with_recorded,
)
from steps.directory.study import (
    MOST_PODS,
    StudyDirectory,
    listed,
    part_of,
    pods,
    read_cells,
    write_cells,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    arguments = plan_parser("steps.plan", __doc__ or "").parse_args(argv)
    return guarded("plan", lambda: plan(arguments))


def plan(arguments: argparse.Namespace) -> int:
    """Check the whole study, then write what it is."""
    study, outdir, given = asked(arguments, OF_WORKFLOW)
    if study.search is not None:
        raise BadInput(
            "the file has a search, whose trials are proposed by another workflow; allowed: "
            "`python -m workflows.submit`, or workflows/manifests/search.yaml"
        )
    part = given.get(PART, WHOLE)
    is_adaptive = isinstance(study.runs, AdaptiveRuns)
    if is_adaptive and part != WHOLE:
        one = "one workflow must decide how many runs all experiments have"
        raise cannot_be("part", part, because=one, allowed=WHOLE)
    directory = StudyDirectory(check_outdir(outdir, os.environ.get("STORAGE") or None))
    every = as_grown(directory, study.cells) if is_adaptive else study.cells
    cells = part_of(every, part)
    resolved = {cell.name: resolve(cell.algorithm, cell.given) for cell in cells}
    _refuse_too_many_pods(resolved.values())
    check_games(cells, resolved)
    for cell in cells:
        _check_directory(directory, cell, resolved[cell.name])
    make_and_probe(directory.root)
    write_if_changed(directory.study_yaml, dump(study.document))
    write_cells(directory, every)
    print(f"{len(every)} experiments, {len(cells)} in this workflow")
    for cell in cells:
        print(f"  {cell.name}")
    write_outputs(listed(cells, again=is_adaptive))
    return 0


def asked(
    arguments: argparse.Namespace, known: Collection[str]
) -> tuple[Study, str, Mapping[str, str]]:
    """The study that a workflow or a person asks for, its directory, and the parameters of the workflow.
    known: the names of those. Raises `BadInput`.
    """
    given = {"outdir": arguments.outdir}
    if arguments.workflow_parameters is not None:
        given = from_argo(arguments.workflow_parameters, "--workflow-parameters")
        if unknown := [name for name in given if name not in known]:
            raise BadInput(
                f"unknown parameter {shown(unknown[0])}; a workflow of a study has "
                f"{', '.join(known)}; what holds for all experiments stands in the study, "
                "below `parameters`"
            )
    declared(Experiment)[NOTIFY].parse(given.get(NOTIFY))
    text = given.get("study", "") if arguments.study is None else read_text(arguments.study)
    if not text:
        raise BadInput(
            "parameter 'study' is empty; allowed: a study as YAML, -p study=\"$(cat …)\""
        )
    outdir = given.get("outdir", "")
    source = "study" if arguments.study is None else str(arguments.study)
    study = read_study(text, source, {"outdir": outdir})
    if arguments.workflow_parameters is None:
        outdir = study.outdir
    if not outdir:
        raise BadInput(
            "parameter 'outdir' is empty; allowed: a directory below the storage's mount"
        )
    return study, outdir, given


def as_grown(directory: StudyDirectory, cells: Sequence[Cell]) -> list[Cell]:
    """The cells with as many runs as an earlier workflow of the same study has given them."""
    if not directory.cells_json.exists():
        return list(cells)
    before = {cell.name: cell.given.get("runs", "") for cell in read_cells(directory)}
    return [
        replace(cell, given={**cell.given, "runs": before[cell.name]})
        if int(before.get(cell.name) or 0) > int(cell.given["runs"])
        else cell
        for cell in cells
    ]


def _refuse_too_many_pods(resolved: Iterable[Resolved]) -> None:
    count = sum(map(pods, resolved))
    if count > MOST_PODS:
        raise BadInput(
            f"the study has {count} pods, and the status of one workflow has room for {MOST_PODS}; "
            "allowed: `python -m workflows.submit`, which splits it, or -p part=1/2 and -p part=2/2 …"
        )


def _check_directory(study: StudyDirectory, cell: Cell, resolved: Resolved) -> None:
    """Raise `BadInput` for an experiment whose directory holds another one, or which reads what is not
    there. That it belongs to another workflow is left to its own `prepare`.
    """
    directory = study.experiment(cell.name)
    storage = os.environ.get("STORAGE") or None
    try:
        origin = origin_directory(resolved, storage)
        resolved = with_origin(resolved, directory.root, origin)
        resolved = with_recorded(resolved, recorded_games(resolved))
        held_experiment(directory, resolved)
    except BadInput as error:
        raise BadInput(f"experiment {cell.name}: {error}") from None


def check_games(cells: Sequence[Cell], resolved: dict[str, Resolved]) -> None:
    """Check every game as `prepare` will. A stranger's environment, which is tried in a process of its
    own for seconds, is tried once with each algorithm. Raises `BadInput`, which names the experiment.
    """
    from agents.checks.trial import needs_a_trial
    from steps.prepare import check_game

    tried = set[str]()
    for cell in cells:
        one = resolved[cell.name]
        kind = repr(one)
        if needs_a_trial(one):
            kind = repr((one.algorithm, one.game, one.environment, one.network))
        if kind in tried:
            continue
        tried.add(kind)
        try:
            check_game(one)
        except BadInput as error:
            raise BadInput(f"experiment {cell.name}: {error}") from None


def plan_parser(module: str, described: str) -> argparse.ArgumentParser:
    """The parser of a step that reads a study's file."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=described,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("study", nargs="?", type=Path, help="the study's file, by hand")
    parser.add_argument("--outdir", default="", help="directory of the study")
    parser.add_argument(
        "--workflow-parameters",
        metavar="JSON",
        help="the parameters of the workflow, `study` among them",
    )
    return parser


if __name__ == "__main__":
    end(main())
