"""An experiment on this machine: the manifest by the local engine, with live progress."""

from __future__ import annotations

import sys
import time

from workflows import local
from workflows.ending import INTERRUPTED, end
from workflows.progress_view import ProgressView
from workflows.submission import Submission


def run(submission: Submission) -> int:
    """Run to the end; the exit code. Interrupting it stops the experiment as `argo stop` does: the report is still made."""
    place = submission.place
    if place is None:
        raise ValueError("a submission for this machine has a place")
    print(f"Running {submission} on this machine; results in {place.directory}", flush=True)
    started_s = time.monotonic()
    view = ProgressView(
        workflow=submission.name, layout=submission.layout, resolved=submission.resolved, directory=place.directory, out=sys.stdout
    )
    with view:
        status = local.run(submission.manifest, parameters={}, name=submission.name, storage=place.storage, on_change=view.update)
    view.update(status)
    code = end(view.tasks, time.monotonic() - started_s, place.directory, submission.resolved.experiment.outdir)
    return code if code else INTERRUPTED
