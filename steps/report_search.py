"""The last step of a search: `python -m steps.report_search --outdir results/search`.

Makes the pages of the winner's study and of the search. As the exit handler of the workflow it runs after
success, failures, a stop and a deadline alike, and reads directories only. Ends with 5 if trials are missing or
there is no winner. Then it lets go of the search.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from config.ending import end
from config.errors import ExperimentError, Incomplete, on_one_line
from config.numbers import counted
from steps.command.main import command_parser, guarded
from steps.directory import owner
from steps.directory.search import SearchDirectory, read_search
from steps.propose import open_journal
from steps.report_study import report_study


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    parser = command_parser("steps.report_search", sys.modules[__name__], in_run=False)
    parser.add_argument(
        "--workflow-status",
        default="",
        metavar="STATUS",
        help="how the workflow ended before: {{workflow.status}}",
    )
    arguments = parser.parse_args(argv)
    return guarded("report-search", lambda: report_search(arguments))


def report_search(arguments: argparse.Namespace) -> int:
    """Make all pages. Raises `Incomplete` if the search is."""
    from steps.page.search import write_search_page
    from steps.search.findings import find

    directory, study, search = read_search(arguments.outdir, os.environ.get("STORAGE") or None)
    missing = _report_again(directory, arguments.workflow_status)
    journal = open_journal(directory, study)
    ended = sum(one.has_ended for one in journal.trials())
    if ended < search.trials:
        missing.append(f"{ended} of {counted(search.trials, 'trial')} ended")
    write_search_page(directory, find(directory, study, search, journal, missing))
    me = owner.from_environment()
    if me is not None:
        owner.release(directory.owner_json, me.uid)
    if missing:
        raise Incomplete(f"the search is incomplete: {'; '.join(missing)}")
    return 0


def _report_again(directory: SearchDirectory, workflow_status: str) -> list[str]:
    """Make the pages of the winner's study. Returns what it lacks."""
    if not directory.again.cells_json.exists():
        return ["the winner was not measured again"]
    told = argparse.Namespace(
        outdir=str(directory.again.root), part="1/1", workflow_status=workflow_status
    )
    try:
        report_study(told)
    except ExperimentError as error:
        return [f"the winner again: {on_one_line(error)}"]
    return []


if __name__ == "__main__":
    end(main())
