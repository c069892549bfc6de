"""Asks Slurm, before anything is submitted, whether it could run the pods (`sbatch --test-only`)."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.cluster import Cluster, Pool
from config.errors import BadInput, ExperimentError
from config.resolved import Resolved
from config.slurm import Slurm
from workflows.local.language.quantities import quantity
from workflows.local.machine.slots import Resources
from workflows.slurm import scripts
from workflows.slurm.commands import call
from workflows.slurm.errors import SlurmError

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
STARTS = re.compile(r"to start at (\S+) using .*? in partition (\S+)")


@dataclass(frozen=True)
class Request:
    """What the pods of a pool request."""

    pool: str
    resources: Resources


def require_slurm() -> None:
    """Raise `BadInput` where Slurm's commands are missing."""
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        raise BadInput(
            f"--slurm needs Slurm's commands, and {', '.join(missing)} cannot be found in PATH; "
            "allowed: a login node of a Slurm cluster"
        )


def check_files(slurm: Slurm) -> None:
    """Raise `BadInput` for a Python that is not there."""
    if slurm.python is not None and not Path(slurm.python).exists():
        raise BadInput(f"'slurm.python' cannot be {slurm.python!r}: there is no such file")


def requests(cluster: Cluster, experiments: Iterable[Resolved]) -> list[Request]:
    """What the pods of some experiments request, each different request once."""
    found: dict[Request, None] = {}
    for one in experiments:
        gpus = one.experiment.gpus
        memory = quantity(one.experiment.training_memory)
        training = Resources(quantity(cluster.gpu.requests.cpu), gpus, memory_bytes=memory)
        found[Request("gpu" if gpus else "cpu", training)] = None
        if one.members is not None:
            found[Request("actor", _resources(cluster.actor))] = None
        found[Request("cpu", _resources(cluster.cpu))] = None
    return list(found)


def _resources(pool: Pool) -> Resources:
    return Resources(quantity(pool.requests.cpu), memory_bytes=quantity(pool.requests.memory or 0))


def check(slurm: Slurm, asked: Iterable[Request]) -> list[str]:
    """One line for each request: when it could start. Raises `BadInput` for one that no node can meet,
    or that Slurm refuses.
    """
    return asyncio.run(_check(slurm, list(asked)))


async def _check(slurm: Slurm, asked: Iterable[Request]) -> list[str]:
    return [await _one(slurm, request) for request in asked]


async def _one(slurm: Slurm, request: Request) -> str:
    options = scripts.requested(request.resources, slurm.pool(request.pool))
    words = ["sbatch", "--test-only", *options, "--wrap=true"]
    try:
        said = await call(words, answer_s=slurm.answer, merged=True)
    except SlurmError as error:
        if error.is_without_answer:
            raise ExperimentError(f"Slurm cannot be asked: {error}") from None
        if not error.is_permanent:  # a queue that is full now, say
            return f"{request.pool}: not at the moment: {error} ({' '.join(options)})"
        raise BadInput(
            f"pool {request.pool!r}: {str(error).removeprefix('sbatch: ')} ({' '.join(options)})"
        ) from None
    found = STARTS.search(said)
    when = f"could start at {found[1]} in partition {found[2]}" if found else "can start"
    return f"{request.pool}: {when} ({' '.join(options)})"


def of_manifest(templates: Mapping[str, Mapping[str, Any]]) -> list[Request]:
    """What the pods of any workflow request, as far as it stands in the manifest as a number."""
    from workflows.local.errors import WorkflowError
    from workflows.local.machine.pod_spec import build

    found: dict[Request, None] = {}
    for template in templates.values():
        if template.get("container") is None:
            continue
        try:
            resources = build(template, "", {}).resources
        except (WorkflowError, BadInput):
            continue
        found[Request("gpu" if resources.gpus else "cpu", resources)] = None
    return list(found)
