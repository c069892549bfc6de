"""Submits an experiment to an Argo cluster and follows it. Ending the following does not stop the
experiment.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import pipeline
from config.cluster import Cluster
from config.errors import BadInput, ExperimentError, on_one_line
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory.status import Progress, read_printed
from workflows.by_reference import to_send
from workflows.cluster.server import Address, ArgoServer, LostSight
from workflows.dag.installed import template_name
from workflows.dag.layout import Layout
from workflows.dag.manifest_yaml import Manifest
from workflows.dag.references import known_to_controller, whole
from workflows.dag.tasks import FINAL_PHASES, Tasks, Where, read_tasks, seconds_between
from workflows.progress.ending import INTERRUPTED, SUCCEEDED, end, where_to_look
from workflows.progress.view import ProgressView
from workflows.progress.words import is_training
from workflows.request.preflight import MOUNT, place
from workflows.request.submission import Submission

POLL_S = 3.0
ASK_FOR_LINES_S, LINES = 10.0, 20
"""How often a training's last lines are asked for at most, and how many of them. A training prints
its progress every 10 s.
"""


PULL_TIMEOUT_S = 600.0
"""How long a pod may wait for an image that cannot be pulled, before its workflow is stopped."""
PULL_FAILURES = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
"""The kubelet's reasons, with which Argo's messages begin."""


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How a submission is sent. storage: where the cluster's storage is mounted on this machine, if it
    is. detach: whether it is not followed. whole: whether the whole workflow is sent, even where its
    template is installed. settings: those of the cluster, if the user named a file of them.
    """

    storage: Path | None = None
    detach: bool = False
    whole: bool = False
    settings: Cluster | None = None


def submit(address: Address, submission: Submission, sending: Sending) -> int:
    """Submit, and follow to the end unless detached. Returns the exit code."""
    argo = ArgoServer(address)
    name = submission.name
    outdir = submission.outdir
    storage = sending.storage
    _seen_here(outdir, storage)  # refused before anything is sent
    found = None if sending.whole else argo.template(template_name(submission.kind))
    workflow, defaults = to_send(submission, found, sending.settings)
    _warn_of_images({**submission.parameters, **defaults})
    try:
        argo.create(workflow)
    except KeyboardInterrupt:
        print(f"\nInterrupted before the server had answered; {_perhaps(name)}")
        return INTERRUPTED
    except BadInput:
        raise
    except ExperimentError as error:
        raise ExperimentError(f"{error}; {_perhaps(name)}") from None
    print(
        f"Submitted {name} to {address.url}, namespace {address.namespace}: {submission}",
        flush=True,
    )
    if sending.detach:
        print(f"Follow: {_follow_command(name)}\n{where_to_look(None, outdir)}")
        return SUCCEEDED
    return _follow(argo, name, submission.manifest, submission.resolved, outdir, storage)


def _warn_of_images(parameters: Mapping[str, str]) -> None:
    """Say which images no node can fetch: a name without a registry, such as the defaults' `rl:…`, is
    found only where it was built or loaded.
    """
    images = {name: parameters[name] for name in ("gpu_image", "cpu_image")}
    alone = [f"{name}={image}" for name, image in images.items() if "/" not in image]
    if alone:
        print(
            f"warning: {' and '.join(alone)} name no registry, so only nodes that have them already "
            "can start pods; `make images` builds and pushes them, -p gpu_image=… and cpu_image=… name them",
            file=sys.stderr,
        )


def follow(address: Address, name: str, storage: Path | None) -> int:
    """Follow a workflow that was submitted before, to its end. Returns the exit code."""
    argo = ArgoServer(address)
    workflow = whole(known_to_controller(argo.read(name)), lambda other: _installed(argo, other))
    algorithm, values = _submitted(workflow)
    is_ours = algorithm is not None or _is_study(workflow)
    if not is_ours or "outdir" not in values:
        raise BadInput(
            f"workflow {name!r} in namespace {address.namespace} is no experiment of this program"
        )
    print(f"Following {name} on {address.url}, namespace {address.namespace}", flush=True)
    return _follow(
        argo,
        name,
        workflow,
        None if algorithm is None else _resolved(algorithm, values),
        values["outdir"],
        storage,
    )


def _installed(argo: ArgoServer, name: str) -> Manifest:
    """An installed template that a workflow refers to. Raises `BadInput`."""
    found = argo.template(name)
    if found is None:
        raise BadInput(
            f"the workflow refers to workflow template {name!r}, which is not in namespace {argo.where.namespace}, or may not be read"
        )
    return found


def _follow(
    argo: ArgoServer,
    name: str,
    manifest: Manifest,
    resolved: Resolved | None,
    outdir: str,
    storage: Path | None,
) -> int:
    printed = _PrintedProgress(argo, name)
    pulls = _FailedPulls()
    layout = Layout.of(manifest)
    directory = _seen_here(outdir, storage)
    view = ProgressView(
        workflow=name,
        layout=layout,
        resolved=resolved,
        directory=directory,
        find=lambda other: _seen_here(other, storage),
        out=sys.stdout,
        elsewhere=printed.seen.get,
    )
    argo.say = view.say
    try:
        with view:
            while True:
                status = argo.status(name)
                if not _is_there(directory):
                    printed.ask(read_tasks(status, name, layout, 0))
                view.update(status)
                if status.get("phase") in FINAL_PHASES:
                    break
                if why := pulls.hopeless(view.tasks):
                    view.say(f"stopping the workflow: {why}")
                    try:
                        argo.stop(name, why)
                    except ExperimentError as error:
                        view.say(f"the workflow is not stopped: {on_one_line(error)}")
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        print()
        return _let_go(name, argo.where)
    except LostSight as lost:
        print(f"failed to follow: {on_one_line(lost)}", file=sys.stderr)
        return _let_go(name, argo.where)
    return end(
        view.tasks,
        _duration_s(status),
        lambda other: found if _is_there(found := view.find(other)) else None,
        outdir,
    )


class _FailedPulls:
    """Notices a pod whose image cannot be pulled. Without that it would wait for ever."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._told = False

    def hopeless(self, tasks: Tasks) -> str:
        """Why the workflow can only wait, if a pull has failed for `PULL_TIMEOUT_S`; said once."""
        now = time.monotonic()
        waiting = {
            task.path: task
            for task in tasks.pods()
            if task.state == "pending" and task.message.startswith(PULL_FAILURES)
        }
        self._since_s = {path: self._since_s.get(path, now) for path in waiting}
        for path, since_s in self._since_s.items():
            if now - since_s >= PULL_TIMEOUT_S and not self._told:
                self._told = True
                minutes = PULL_TIMEOUT_S / 60
                return (
                    f"{path} has waited {minutes:g} minutes for its image: {waiting[path].message}"
                )
        return ""


class _PrintedProgress:
    """The progress of trainings from the lines that they print, for a machine that does not see the
    cluster's storage.
    """

    def __init__(self, argo: ArgoServer, name: str) -> None:
        self.seen: dict[Where, Progress] = {}
        self._argo, self._name, self._asked_s = argo, name, dict[Where, float]()
        self._unfinished = set[Where]()

    def ask(self, tasks: Tasks) -> None:
        """Ask for the last lines of one training, so that the states stay fresh: of one that has
        ended meanwhile, once, because its last line is its result; else of the running one that was
        not asked for longest.
        """
        trainings = {task.where: task for task in tasks.pods() if is_training(task)}
        ended = [
            run
            for run, task in trainings.items()
            if task.state == "succeeded" and run in self._unfinished
        ]
        self._unfinished |= {
            run
            for run, task in trainings.items()
            if task.state in ("waiting", "pending", "running", "retrying")
        }
        running = [run for run, task in trainings.items() if task.state == "running"]
        run = ended[0] if ended else None
        if run is None:
            run = min(running, key=lambda run: self._asked_s.get(run, -math.inf), default=None)
        if run is not None and (
            ended or time.monotonic() - self._asked_s.get(run, -math.inf) >= ASK_FOR_LINES_S
        ):
            self._asked_s[run] = time.monotonic()
            self._unfinished -= {run} & set(ended)
            lines = map(read_printed, self._argo.last_lines(self._name, trainings[run].pod, LINES))
            self.seen.update((run, progress) for progress in lines if progress is not None)


def _let_go(name: str, address: Address) -> int:
    """The following has ended before the workflow, which goes on."""
    print(f"No longer following; {name} goes on.")
    print(
        f"Follow it again: {_follow_command(name)}\nStop it:         argo stop {name} -n {address.namespace}"
    )
    return INTERRUPTED


def _seen_here(outdir: str, storage: Path | None) -> Path | None:
    """The results directory on this machine, if the cluster's storage is mounted here: at
    `--storage`, or at the same path.
    """
    if storage is not None:
        return place(outdir, storage).directory
    return Path(outdir) if Path(MOUNT).is_dir() else None


def _is_there(directory: Path | None) -> bool:
    """Whether results can be read here. False if a network file system does not answer."""
    try:
        return directory is not None and directory.is_dir()
    except OSError:
        return False


def _submitted(workflow: Manifest) -> tuple[str | None, dict[str, str]]:
    """The algorithm of a workflow (None if it is not an experiment of this project) and its
    parameters.
    """
    words = [
        word
        for template in workflow["spec"].get("templates", [])
        for word in template.get("container", {}).get("args", [])
    ]
    algorithms = [
        word.removeprefix("--algorithm=") for word in words if word.startswith("--algorithm=")
    ]
    parameters = workflow["spec"].get("arguments", {}).get("parameters", [])
    return next(iter(algorithms), None), {
        one["name"]: str(one.get("value", "")) for one in parameters
    }


def _is_study(workflow: Manifest) -> bool:
    """Whether one of the workflow's pods is the first step of a study."""
    module = pipeline.find(pipeline.PLAN).module
    return any(
        module in template.get("container", {}).get("command", [])
        for template in workflow["spec"].get("templates", [])
    )


def _resolved(algorithm: str, values: dict[str, str]) -> Resolved | None:
    """The resolved experiment. None if the parameters are invalid, which `prepare` reports, or
    those of another version of this program.
    """
    try:
        return resolve(algorithm, values)
    except BadInput:
        return None


def _duration_s(status: dict[str, Any]) -> float:
    started = status.get("startedAt")
    finished = status.get("finishedAt")
    return seconds_between(started, finished) if started and finished else 0.0


def _perhaps(name: str) -> str:
    return f"{name} may have been created; follow it then: {_follow_command(name)}"


def _follow_command(name: str) -> str:
    return f"python -m workflows.submit --follow {name}"
