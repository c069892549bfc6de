"""The last step of a study: `python -m steps.report_study --outdir results/gae`.

Makes the report of every experiment that was begun, then the study's page. As the exit handler of the
workflow it runs after success, failures, a stop and a deadline alike, and reads directories only: what
is missing is said, and ends it with 5.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from config.ending import end
from config.errors import BadInput, Incomplete
from config.outdir import check_outdir
from steps import report
from steps.command.main import guarded
from steps.directory.study import StudyDirectory, read_cells

NOT_MADE_HERE = 4
"""The exit code of a report whose experiment belongs to another workflow, which will make it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    arguments = _parser().parse_args(argv)
    return guarded("report-study", lambda: report_study(arguments))


def report_study(arguments: argparse.Namespace) -> int:
    """Make all pages. Raises `Incomplete` if an experiment is."""
    directory = StudyDirectory(check_outdir(arguments.outdir, os.environ.get("STORAGE") or None))
    if not directory.cells_json.exists():
        raise BadInput(f"no file {directory.cells_json}: plan makes it")
    missing = []
    for cell in read_cells(directory):
        experiment = directory.experiment(cell.name)
        if not experiment.experiment_yaml.exists():
            missing.append(f"{cell.name} was not begun")
            continue
        words = ["--outdir", str(experiment.root), "--workflow-status", arguments.workflow_status]
        code = report.main(words)
        if code == NOT_MADE_HERE:
            missing.append(f"{cell.name} belongs to another workflow")
        elif code:
            missing.append(f"{cell.name} is incomplete")
    if missing:
        raise Incomplete(f"the study is incomplete: {'; '.join(missing)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m steps.report_study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--outdir", required=True, help="directory of the study")
    parser.add_argument(
        "--workflow-status",
        default="",
        metavar="STATUS",
        help="how the workflow ended before: {{workflow.status}}",
    )
    return parser


if __name__ == "__main__":
    end(main())
