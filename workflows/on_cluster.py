"""An experiment on an Argo cluster: submitted and followed; interrupting the following stops nothing."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from config.errors import BadInput
from config.resolve import Resolved, resolve
from workflows.ending import INTERRUPTED, SUCCEEDED, end, where_to_look
from workflows.manifest import Manifest
from workflows.preflight import MOUNT, place
from workflows.progress_view import ProgressView
from workflows.server import Address, ArgoServer
from workflows.submission import Submission
from workflows.tasks import FINAL_PHASES, Layout, seconds_between

POLL_S = 3.0


def submit(address: Address, submission: Submission, storage: Path | None, *, detach: bool) -> int:
    """Submit and follow to the end, or only submit; the exit code."""
    argo, name = ArgoServer(address), submission.name
    try:
        argo.create(submission.manifest)
        print(f"Submitted {name} to {address.url}, namespace {address.namespace}: {submission}", flush=True)
        if detach:
            print(f"Follow: {_follow_command(name)}\n{where_to_look(None, submission.resolved.experiment.outdir)}")
            return SUCCEEDED
        return _follow(argo, name, submission.manifest, submission.resolved, storage)
    except KeyboardInterrupt:
        return _let_go(name, address)


def follow(address: Address, name: str, storage: Path | None) -> int:
    """A workflow that was submitted before, to its end; the exit code."""
    argo = ArgoServer(address)
    workflow = argo.read(name)
    values = _values(workflow)
    resolved = _resolved(workflow, values)
    if "outdir" not in values or resolved is None:
        raise BadInput(f"workflow {name!r} in namespace {address.namespace} is no experiment of this program")
    print(f"Following {name} on {address.url}, namespace {address.namespace}", flush=True)
    try:
        return _follow(argo, name, workflow, resolved, storage)
    except KeyboardInterrupt:
        return _let_go(name, address)


def _follow(argo: ArgoServer, name: str, manifest: Manifest, resolved: Resolved, storage: Path | None) -> int:
    outdir = resolved.experiment.outdir
    directory = _seen_here(outdir, storage)
    view = ProgressView(workflow=name, layout=Layout.of(manifest), resolved=resolved, directory=directory, out=sys.stdout)
    argo.say = view.say
    with view:
        while True:
            status = argo.status(name)
            view.update(status)
            if status.get("phase") in FINAL_PHASES:
                break
            time.sleep(POLL_S)
    return end(view.tasks, _duration_s(status), directory, outdir)


def _let_go(name: str, address: Address) -> int:
    """Interrupted: the workflow goes on."""
    print(f"\nNo longer following; {name} goes on.")
    print(f"Follow it again: {_follow_command(name)}\nStop it:         argo stop {name} -n {address.namespace}")
    return INTERRUPTED


def _seen_here(outdir: str, storage: Path | None) -> Path | None:
    """The directory of results on this machine, if the cluster's storage is mounted here: at `--storage`, or at the same path."""
    if storage is not None:
        return place(outdir, storage).directory
    return Path(outdir) if Path(MOUNT).is_dir() else None


def _values(workflow: Manifest) -> dict[str, str]:
    return {one["name"]: str(one.get("value", "")) for one in workflow["spec"].get("arguments", {}).get("parameters", [])}


def _resolved(workflow: Manifest, values: dict[str, str]) -> Resolved | None:
    """The experiment as this version of the program reads the workflow's parameters; None if it is none."""
    words = [word for template in workflow["spec"].get("templates", []) for word in template.get("container", {}).get("args", [])]
    algorithms = [word.removeprefix("--algorithm=") for word in words if word.startswith("--algorithm=")]
    try:
        return resolve(algorithms[0], values) if algorithms else None
    except BadInput:
        return None


def _duration_s(status: dict[str, Any]) -> float:
    started, finished = status.get("startedAt"), status.get("finishedAt")
    return seconds_between(started, finished) if started and finished else 0.0


def _follow_command(name: str) -> str:
    return f"python -m workflows.submit --follow {name}"
