"""Tells a web address how a workflow ended: `python -m steps.notify --outdir results/cartpole`.

Posts JSON to the address in the variable NOTIFY_ADDRESS, behind the report, also after failures and stops.
It writes nothing into the directory. An address that cannot be told is one line, which names its host
alone, and changes no result. Ends with 5 unless the report succeeded: as the last task of the exit handler
it must not hide a failed report.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from config.ending import end
from config.errors import BadInput, Incomplete, on_one_line
from config.numbers import duration, if_any
from config.outdir import check_outdir
from config.webhook import ADDRESS_VARIABLE, checked, host_of
from steps.browsing.overview import Overview
from steps.browsing.places import kind_of
from steps.browsing.rows import Row
from steps.command.main import command_parser, guarded
from steps.directory import owner
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.web.webhook import LONGEST_S, post

SUCCEEDED = "Succeeded"
"""The phase of a workflow, or of a task, that went well."""
NOT_COMPLETE = Incomplete.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    arguments = _parser().parse_args(argv)
    return guarded("notify", lambda: notify(arguments))


def notify(arguments: argparse.Namespace) -> int:
    """Post how the workflow ended. Raises `Incomplete` if the report did not succeed."""
    address = os.environ.get(ADDRESS_VARIABLE, "")
    try:
        checked(address)
    except ValueError as error:
        print(f"notify: {ADDRESS_VARIABLE} cannot be told anything: {error}", file=sys.stderr)
    else:
        _tell(address, message(arguments))
    if arguments.reported not in ("", SUCCEEDED):
        raise Incomplete(f"the report before this step ended {arguments.reported}")
    return 0


def _tell(address: str, told: dict[str, Any]) -> None:
    """Post within a bounded time, whatever the other side does."""
    said = [f"it did not answer within {LONGEST_S:g} s"]

    def work() -> None:
        said[0] = post(address, told)

    # In a thread, because a server that sends a byte now and then never lets a socket time out.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    problem = said[0]
    outcome = f"not told: {problem}" if problem else "told"
    print(f"notify: {host_of(address)}: {outcome}", file=sys.stderr if problem else sys.stdout)


def message(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is posted. Never raises because of what lies in the directory: that is a part of the message."""
    row, problem = _own_row(arguments.outdir)
    state = _state(arguments, row)
    name = os.environ.get("EXPERIMENT_WORKFLOW", "")
    result = None
    if row is not None and row.value is not None:
        result = {"measure": row.measure, "value": row.value, "interval": row.ends, "n": row.n}
    duration_s = _seconds(arguments.duration)
    parts = [
        f"{row.measure} {row.shown}{if_any(', ', row.interval)}" if result and row else "",
        f"n = {row.n}" if result and row and row.n else "",
        row.note if row is not None and state != "succeeded" else problem,
        "" if duration_s is None else duration(duration_s),
    ]
    # `text` is what the webhooks of chats show.
    return {
        "text": f"{name or arguments.outdir}: {'; '.join([state, *filter(None, parts)])}",
        "experiment": name,
        "directory": arguments.outdir,
        "state": state,
        "exit_code": _exit_code(arguments),
        "headline": result,
        "runs": None if row is None else {"usable": row.runs[0], "planned": row.runs[1]},
        "reason": problem if row is None else row.note,
        "duration_s": duration_s,
        "cost": None if row is None else asdict(row.cost),
        "workflow_status": arguments.workflow_status,
        "report_status": arguments.reported,
    }


def _own_row(outdir: str) -> tuple[Row | None, str]:
    """What the directory shows, if it belongs to this workflow; else why it shows nothing."""
    try:
        path = check_outdir(outdir, os.environ.get("STORAGE") or None)
        kind = kind_of(path)
        if kind is None:
            return None, "nothing was written"
        if not _is_ours(ExperimentDirectory(path)):
            return None, "the directory belongs to another workflow"
        return Overview(path).rows()[0], ""
    except Exception as error:
        # Whatever lies there: an experiment that went well must not fail because nobody can be told.
        return None, on_one_line(error) or type(error).__name__


def _is_ours(directory: ExperimentDirectory) -> bool:
    """Whether no other workflow has taken the directory. A study has no owner."""
    me = owner.from_environment()
    present = owner.read_owner(directory.owner_json)
    return me is None or present is None or present.uid == me.uid


def _state(arguments: argparse.Namespace, row: Row | None) -> str:
    """The state of the overview; failed where the workflow failed and left no reason of its own."""
    went_well = arguments.workflow_status in ("", SUCCEEDED) and arguments.reported in (
        "",
        SUCCEEDED,
    )
    if row is None:
        return "succeeded" if went_well else "failed"
    if row.state == "succeeded" and not went_well:
        return "incomplete"
    return "stopped" if row.state in ("running", "silent") else row.state


def _exit_code(arguments: argparse.Namespace) -> int:
    """That of the report; 5 where it left none."""
    if arguments.reported in ("", SUCCEEDED):
        return 0
    try:
        path = check_outdir(arguments.outdir, os.environ.get("STORAGE") or None)
    except BadInput:
        return BadInput.exit_code
    status = read_status(ExperimentDirectory(path).status / "report.json")
    return (status.exit_code if status is not None else None) or NOT_COMPLETE


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return round(seconds, 1) if math.isfinite(seconds) else None


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("steps.notify", sys.modules[__name__], in_run=False)
    parser.add_argument(
        "--workflow-status",
        default="",
        metavar="STATUS",
        help="how the workflow ended before: {{workflow.status}}",
    )
    parser.add_argument(
        "--reported",
        default="",
        metavar="STATUS",
        help="how the report ended: {{tasks.report.status}}",
    )
    parser.add_argument(
        "--duration", default="", metavar="SECONDS", help="of the workflow: {{workflow.duration}}"
    )
    return parser


if __name__ == "__main__":
    end(main())
