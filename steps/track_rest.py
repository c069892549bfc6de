"""The last thing that happens to an experiment with trackers: `python -m steps.track_rest --outdir
results/cartpole`.

Sends what is left of every run: evaluations, films, the report, and whatever a tracker did not take
before. In a workflow it starts together with `report` and waits until that has released the directory;
behind it, it would hide from Argo how `report` ended. By hand the exit code is 5 if a tracker does not
take everything; in a workflow that is no failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from config.ending import end
from config.errors import NEVER_RETRIED, ExperimentError, Unsent, on_one_line
from config.outdir import check_outdir
from config.pipeline import TRACK_REST
from steps.command.context import Skipped, StepContext
from steps.command.main import guarded, run_step
from steps.command.stop import StopRequest
from steps.directory import owner
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.tracking import of_step
from steps.tracking.of_step import NOT_ASKED, is_complete, senders_of, told, trackers_of
from steps.tracking.passes import AT_THE_END, deliver

REPORT_S = 1800.0
POLL_S = 0.25


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step, give the directory back as `report` has done before, and return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if waited := guarded(TRACK_REST, lambda: _wait_for_report(words)):
        return waited
    started: list[StepContext] = []

    def inputs(context: StepContext) -> Mapping[str, Any]:
        started.append(context)
        return of_step.inputs(context)

    code = run_step(TRACK_REST, track_rest, inputs=inputs, complete=is_complete, argv=words)
    if code in (0, *NEVER_RETRIED):
        for context in started:
            _release(context)
    return code


def track_rest(context: StepContext) -> Mapping[str, Any] | Skipped:
    """Send what is left of every run to the trackers of the experiment: rows, evaluations, films and the
    report.
    """
    trackers = trackers_of(context)
    if not trackers:
        return Skipped(NOT_ASKED)
    context.note(workflow=context.owner_uid)
    senders = {tracker: senders_of(context, tracker) for tracker in trackers}
    outcome = deliver(senders, lambda: True, context.check_stop, AT_THE_END)
    details = told(outcome)
    kept = [str(one["kept"]) for one in outcome.values() if "kept" in one]
    if kept and context.owner_uid is None:
        raise Unsent(f"kept for later: {'; '.join(kept)}")
    return {**details, "workflow": context.owner_uid}


def _release(context: StepContext) -> None:
    """Release the directory; if that fails, the lease will expire."""
    if context.owner_uid is None:
        return
    try:
        owner.release(context.directory.owner_json, context.owner_uid)
    except (ExperimentError, OSError) as error:
        print(f"{TRACK_REST}: not released: {on_one_line(error)}", file=sys.stderr)


def _wait_for_report(words: Sequence[str]) -> int:
    """Wait until `report` of this workflow has released the directory: the page is then there. A
    bounded time, and not where `prepare` has never claimed it.
    """
    me = owner.from_environment()
    if me is None:
        return 0
    stop = StopRequest()
    stop.install()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--outdir", default="")
    given = parser.parse_known_args(words)[0].outdir
    directory = ExperimentDirectory(check_outdir(given, os.environ.get("STORAGE") or None))
    end_s = time.monotonic() + REPORT_S
    while _is_reported_on(directory, me.uid) and time.monotonic() < end_s:
        stop.check()
        time.sleep(POLL_S)
    return 0


def _is_reported_on(directory: ExperimentDirectory, uid: str) -> bool:
    """Whether this workflow owns the directory, and no earlier attempt of this step has begun."""
    present = owner.read_owner(directory.owner_json)
    if present is None or present.uid != uid or present.released:
        return False
    before = read_status(directory.status / f"{TRACK_REST}.json")
    return before is None or before.details.get("workflow") != uid


if __name__ == "__main__":
    end(main())
