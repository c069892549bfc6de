"""Runs any workflow on Slurm: `python -m workflows.local FILE.yaml --slurm`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.slurm import load_slurm
from workflows.local.engine import run as run_engine
from workflows.local.spec.manifest import prepare
from workflows.local.status import WorkflowStatus
from workflows.slurm import check
from workflows.slurm.executor import OnSlurm
from workflows.slurm.workflow import StatusFile, Workspace, locked

FOLDER = ".slurm"
"""In the storage: what engines keep."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says. cluster: the file with the settings."""

    cluster: Path | None
    name: str | None
    storage: Path
    deadline_s: float | None
    inherit: Sequence[str]


def run(
    document: dict[str, Any],
    parameters: Mapping[str, str],
    options: Options,
    *,
    on_change: Callable[[WorkflowStatus], None],
    notice: Callable[[str], None],
) -> WorkflowStatus:
    """Run a workflow to its end, or go on with the one of this name whose engine was killed. Raises
    `BadInput`.
    """
    slurm = load_slurm(options.cluster)
    check.require_slurm()
    check.check_files(slurm)
    manifest = prepare(document, parameters=parameters, name=options.name)
    is_named = bool(options.name or (document.get("metadata") or {}).get("name"))
    pointer = f"{manifest.name if is_named else 'unnamed'}.current"
    workspace = Workspace(options.storage.absolute() / FOLDER, pointer)
    if workspace.unfinished() is None:
        check.check(slurm, check.of_manifest(manifest.templates))
    begun, record = workspace.begin(
        name=manifest.name,
        manifest=document,
        parameters=parameters,
        storage=options.storage.absolute(),
    )
    status_file = StatusFile(record)

    def changed(status: WorkflowStatus) -> None:
        on_change(status)
        status_file.update(status)

    with locked(record, begun.name) as lock:
        status = run_engine(
            document,
            parameters=parameters,
            name=begun.name,
            storage=options.storage,
            deadline=options.deadline_s,
            logs=record.logs,
            inherit=options.inherit,
            executor=OnSlurm(
                slurm,
                record,
                uid=begun.uid,
                storage=options.storage.absolute(),
                lock=lock,
                notice=notice,
            ),
            again=begun.again,
            on_change=changed,
            notice=notice,
        )
        workspace.end(record)
    return status
