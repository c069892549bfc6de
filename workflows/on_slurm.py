"""Runs an experiment on Slurm: the local engine executes the manifest, its pods are jobs, with live
progress.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from config.cluster import Cluster
from config.errors import BadInput, ExperimentError, shown
from config.resolved import Resolved
from config.slurm import Slurm
from config.study.workflow_parameters import PART
from steps.directory.experiment import read_experiment
from steps.directory.files import read_bytes
from steps.directory.layout import ExperimentDirectory
from steps.directory.owner import sign_of_life
from workflows import local
from workflows.dag.layout import Layout
from workflows.dag.tasks import FINAL_PHASES
from workflows.local.status import WorkflowStatus
from workflows.on_this_machine import HANDED_ON, given, seen
from workflows.progress.ending import INTERRUPTED, SUCCEEDED, end
from workflows.progress.view import ProgressView
from workflows.request.preflight import Place
from workflows.request.submission import Submission
from workflows.slurm import check, engine_job
from workflows.slurm.commands import BETWEEN_QUESTIONS_S
from workflows.slurm.executor import OnSlurm
from workflows.slurm.records import Record
from workflows.slurm.workflow import Begun, StatusFile, Workspace, locked

CURRENT = "current"
WHOLE = "1/1"
FOLDER = "slurm"
"""In the results directory: what engines keep."""
LOOK_S = 1.0
SILENT_S = 300.0
"""An engine that has given no sign of life for so long has been killed. One that is a job and was requeued
begins again after two minutes.
"""


def run(submission: Submission, slurm: Slurm, *, is_named: bool) -> int:
    """Run the experiment to its end and return the exit code; go on with it if an earlier engine was
    killed. An interrupt stops it as `argo stop` does: trainings save, the report is still made.
    """
    place = submission.place
    if place is None:
        raise ValueError("a submission for Slurm has a place")
    workspace = _workspace(submission)
    begun, record = workspace.begin(
        name=submission.name,
        manifest=submission.manifest,
        parameters=given(submission),
        storage=place.storage,
        outdir=place.outdir,
        directory=str(place.directory.absolute()),
        is_named=is_named,
    )
    again = begun.name != submission.name
    doing = "Going on with" if again else "Running"
    print(
        f"{doing} {submission} on Slurm as {begun.name}; results in {place.directory}", flush=True
    )
    started_s = time.monotonic()
    view = _view(begun, place, submission.layout, submission.resolved)
    status_file = StatusFile(record)

    def changed(status: WorkflowStatus) -> None:
        view.update(status.as_dict())
        status_file.update(status)

    with locked(record, begun.name) as lock:
        with view:
            status = local.run(
                {**begun.manifest, "metadata": {**begun.manifest["metadata"], "name": begun.name}},
                parameters=begun.parameters,
                name=begun.name,
                storage=place.storage,
                logs=record.logs,
                inherit=HANDED_ON,
                executor=OnSlurm(
                    slurm, record, uid=begun.uid, storage=place.storage, lock=lock, notice=view.say
                ),
                again=begun.again,
                on_change=changed,
                notice=view.say,
            )
            changed(status)
        workspace.end(record)
    code = end(view.tasks, time.monotonic() - started_s, view.find, place.outdir)
    return INTERRUPTED if status.interrupted and code != SUCCEEDED else code


def in_a_job(submission: Submission, slurm: Slurm) -> int:
    """Submit the engine as a job of its own, and say how to follow and stop it."""
    place = submission.place
    if place is None:
        raise ValueError("a submission for Slurm has a place")
    folder = place.directory / FOLDER
    job = engine_job.submit(slurm, sys.argv[1:], submission.name, folder)
    print(f"The engine of {submission} is job {job}; results in {place.directory}")
    print(f"follow: python -m workflows.submit --slurm --follow {place.directory}")
    print(f"stop:   scancel --batch --signal=INT {job}")
    print(f"log:    {folder / engine_job.LOG}")
    return SUCCEEDED


def checked(
    slurm: Slurm,
    cluster: Cluster,
    experiments: Sequence[Resolved],
    begun: Sequence[Submission],
) -> list[str]:
    """What Slurm says of the jobs of some experiments. Raises `BadInput` for jobs that no node can run.
    Nothing is submitted. begun: submissions of which the workflow may have begun already: then Slurm is not
    asked again, because its own jobs may fill the queue.
    """
    check.require_slurm()
    check.check_files(slurm)
    if any(_workspace(one).unfinished() is not None for one in begun):
        return []
    for one in experiments:
        members = one.members
        if members is not None and (needed := members.learners + members.helpers) > slurm.max_jobs:
            raise BadInput(
                f"'slurm.max_jobs' cannot be {slurm.max_jobs}: a run has {needed} processes that must "
                "run at the same time; allowed: at least so many"
            )
    return check.check(slurm, check.requests(cluster, experiments))


def follow(directory: Path) -> int:
    """Show the progress of an experiment whose engine works elsewhere, until its end; the exit code is
    that of its end. Raises `BadInput`.
    """
    folder = directory / FOLDER
    if _newest(folder).find() is None and engine_job.is_in_the_queue(folder):
        print("waiting: the job of the engine is in Slurm's queue", flush=True)
        while _newest(folder).find() is None and engine_job.is_in_the_queue(folder):
            time.sleep(BETWEEN_QUESTIONS_S)
    found = _newest(folder).find()
    if found is None:
        raise BadInput(
            f"--follow cannot be {shown(str(directory))}: no workflow on Slurm has been begun there; "
            "allowed: the results directory of an experiment"
        )
    begun, record = found
    place = Place(Path(begun.storage), begun.outdir, directory)
    resolved = None
    with contextlib.suppress(ExperimentError, OSError):
        resolved = read_experiment(ExperimentDirectory(directory)).resolved
    manifest = {**begun.manifest, "metadata": {"name": begun.name}}
    print(f"Following {begun.name}; results in {directory}", flush=True)
    started_s = time.monotonic()
    view = _view(begun, place, Layout.of(manifest), resolved)
    with view:
        phase = _until_the_end(folder, record, view)
    if not phase:
        raise ExperimentError(
            f"the engine of {begun.name} has given no sign of life for {SILENT_S:g} s; submit the same "
            "again to go on"
        )
    return end(view.tasks, time.monotonic() - started_s, view.find, place.outdir)


def _workspace(submission: Submission) -> Workspace:
    """Where a submission's workflow keeps its state; each part of a study has one of its own."""
    place = submission.place
    if place is None:
        raise ValueError("a submission for Slurm has a place")
    part = submission.values.get(PART, WHOLE)
    pointer = CURRENT if part == WHOLE else f"{CURRENT}-{part.replace('/', '-of-')}"
    return Workspace(place.directory / FOLDER, pointer)


def _newest(root: Path) -> Workspace:
    """The workspace of the workflow that was begun or ended last."""
    found = sorted(root.glob(f"{CURRENT}*"), key=lambda path: path.stat().st_mtime)
    return Workspace(root, found[-1].name if found else CURRENT)


def _until_the_end(folder: Path, record: Record, view: ProgressView) -> str:
    """Show the status until it is final, and return its phase; empty if the engine is gone."""
    heard: Any = None
    heard_s = time.monotonic()
    while True:
        status: Mapping[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            status = json.loads(read_bytes(record.status_json))
            view.update(status)
        phase = str(status.get("phase", ""))
        if phase in FINAL_PHASES:
            return phase
        if (sign := sign_of_life(record.engine_json)) != heard:
            heard, heard_s = sign, time.monotonic()
        if time.monotonic() - heard_s > SILENT_S:
            if not engine_job.is_in_the_queue(folder):
                return ""
            heard_s = time.monotonic()
        time.sleep(LOOK_S)


def _view(begun: Begun, place: Place, layout: Layout, resolved: Resolved | None) -> ProgressView:
    return ProgressView(
        workflow=begun.name,
        layout=layout,
        resolved=resolved,
        directory=place.directory,
        find=lambda outdir: seen(outdir, place),
        out=sys.stdout,
    )
