"""The last step of a study: `python -m steps.report_study --outdir results/gae`.

Makes the report of every experiment that was begun, then compares them as they are now and makes the
study's page. As the exit handler of the workflow it runs after success, failures, a stop and a deadline
alike, and reads directories only: what is missing is said, and ends it with 5.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from config.ending import end
from config.errors import BadInput, ExperimentError, Incomplete, on_one_line
from config.outdir import check_outdir
from steps import report
from steps.command.main import command_parser, guarded
from steps.compare import compare_study, show
from steps.directory import owner
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.directory.study import StudyDirectory, asked_cells, besides, part_of, read_asked

NOT_MADE_HERE = 4
"""The exit code of a report whose experiment belongs to another workflow."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    arguments = _parser().parse_args(argv)
    return guarded("report-study", lambda: report_study(arguments))


def report_study(arguments: argparse.Namespace) -> int:
    """Make all pages. Raises `Incomplete` if an experiment is."""
    directory = StudyDirectory(check_outdir(arguments.outdir, os.environ.get("STORAGE") or None))
    if not directory.cells_json.exists():
        raise BadInput(f"no file {directory.cells_json}: plan makes it")
    cells = asked_cells(directory, read_asked(directory))
    names = [cell.name for cell in part_of(cells, arguments.part)]
    names += [name for name in besides(directory, cells) if _is_ours(directory.experiment(name))]
    missing = []
    for name in names:
        lack = _reported(directory.experiment(name), arguments.workflow_status)
        if lack:
            missing.append(f"{name} {lack}")
    missing += write_comparison(directory)
    if missing:
        raise Incomplete(f"the study is incomplete: {'; '.join(missing)}")
    return 0


def _is_ours(experiment: ExperimentDirectory) -> bool:
    """Whether this workflow owns an experiment: one that the study's file asked for when the workflow
    began, and not any more.
    """
    me = owner.from_environment()
    try:
        last = owner.read_owner(experiment.owner_json)
    except (ExperimentError, OSError):
        return False
    return me is not None and last is not None and last.uid == me.uid


def _reported(experiment: ExperimentDirectory, workflow_status: str) -> str:
    """Make the report of an experiment. Returns what is wrong with it, in words; empty if it is
    complete.
    """
    if not experiment.experiment_yaml.exists():
        return "was not begun"
    words = ["--outdir", str(experiment.root), "--workflow-status", workflow_status]
    code = report.main(words)
    if code == NOT_MADE_HERE:
        return _elsewhere(experiment)
    return "is incomplete" if code else ""


def _elsewhere(experiment: ExperimentDirectory) -> str:
    """What is wrong with an experiment that this workflow may not write: nothing if the workflow that
    had it before has completed it.
    """
    try:
        last = owner.read_owner(experiment.owner_json)
    except (ExperimentError, OSError) as error:
        return on_one_line(error)
    if last is not None and not last.released:
        return f"belongs to {last}"
    reported = read_status(experiment.status / "report.json")
    return "" if reported is not None and reported.state == "succeeded" else "is incomplete"


def write_comparison(directory: StudyDirectory) -> list[str]:
    """Compare what lies there, draw it if that has changed, and write the page. Returns why there is no
    page, which is a shortcoming as every other.
    """
    # Again, because `compare` did not run after a failure, and came before the reports in any case.
    try:
        is_new = compare_study(directory)
        show(directory, redraw=is_new or not directory.plots.is_dir())
    except ExperimentError as error:
        return [f"no comparison: {on_one_line(error)}"]
    return []


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("steps.report_study", sys.modules[__name__], in_run=False)
    parser.add_argument(
        "--part",
        default="1/1",
        metavar="K/N",
        help="which part of the experiments the workflow has; those of others are not judged",
    )
    parser.add_argument(
        "--workflow-status",
        default="",
        metavar="STATUS",
        help="how the workflow ended before: {{workflow.status}}",
    )
    return parser


if __name__ == "__main__":
    end(main())
