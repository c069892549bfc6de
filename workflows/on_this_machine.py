"""Runs an experiment on this machine: the local engine executes the manifest, with live progress."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path, PurePosixPath

from config import preloading
from config.errors import ExperimentError
from steps.directory.processes import identity
from workflows import local
from workflows.progress.ending import INTERRUPTED, SUCCEEDED, end
from workflows.progress.view import ProgressView
from workflows.request import preflight
from workflows.request.submission import Submission

HANDED_ON = (
    "MPLCONFIGDIR", "TORCHINDUCTOR_*", "HF_*", "IMAGEIO_*", "MUJOCO_*", "PYOPENGL_*",
    "EXPERIMENT_FAULT",
)  # fmt: skip
"""Variables of this process that are passed on to every pod, for the libraries of the steps and for
tests.

`OMP_…` and the like are not: the parameter `threads` decides how many threads compute.
"""


def run(submission: Submission) -> int:
    """Run the experiment to its end and return the exit code. An interrupt stops it as `argo stop`
    does: the report is still made.
    """
    place = submission.place
    name = submission.name
    if place is None:
        raise ValueError("a submission for this machine has a place")
    print(f"Running {submission} on this machine; results in {place.directory}", flush=True)
    if submission.sharing:
        print(submission.sharing, flush=True)
    started_s = time.monotonic()
    view = ProgressView(
        workflow=name,
        layout=submission.layout,
        resolved=submission.resolved,
        directory=place.directory,
        find=lambda outdir: seen(outdir, place),
        out=sys.stdout,
    )
    # What the pods print is kept until the end, for the reasons of failures; what a step logs for
    # good is in the directory.
    with _temporary_folder(f"{name}-logs-") as logs:
        with view:
            status = local.run(
                submission.manifest,
                parameters=given(submission),
                name=name,
                storage=place.storage,
                logs=Path(logs),
                fleeting=[Path(logs)],
                inherit=HANDED_ON,
                environment={"EXPERIMENT_OWNER_PROCESS": identity()},
                preloading=preloaded(submission),
                on_change=lambda status: view.update(status.as_dict()),
                notice=view.say,
            )
            view.update(status.as_dict())
        code = end(
            view.tasks,
            time.monotonic() - started_s,
            view.find,
            place.outdir,
        )
    return INTERRUPTED if status.interrupted and code != SUCCEEDED else code


def preloaded(submission: Submission) -> local.Preloading | None:
    """What is loaded once for the pods of this workflow."""
    if os.environ.get(preloading.SWITCH) == "0":
        return None
    run = {
        template["container"]["command"][-1]
        for template in submission.manifest["spec"]["templates"]
        if "container" in template
    }
    first = preloading.OF_SEARCHES if preloading.OF_SEARCHES.keys() <= run else {}
    return local.Preloading(modules={**first, **preloading.MODULES}, apart=preloading.APART)


def seen(outdir: str, place: preflight.Place) -> Path:
    """Where the results of an outdir are, in the words in which the person named the workflow's own."""
    path = PurePosixPath(outdir)
    if path.is_relative_to(place.outdir):
        return place.directory / path.relative_to(place.outdir)
    return preflight.place(outdir, place.storage).directory


def given(submission: Submission) -> dict[str, str]:
    """The parameters that the person gave, as the manifest has them: paths in them are paths of this
    machine.
    """
    parameters = submission.parameters
    return {name: value for name, value in parameters.items() if name in submission.given}


def _temporary_folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder. Raises `ExperimentError` if the machine has no room or denies
    permission.
    """
    try:
        return tempfile.TemporaryDirectory(prefix=prefix)
    except OSError as error:
        raise ExperimentError(
            f"no temporary folder can be made: {error}; TMPDIR may name another place"
        ) from None
