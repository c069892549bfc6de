"""Puts the engine itself into a job: for login nodes on which no process may stay."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from config.slurm import Slurm
from workflows.slurm import scripts
from workflows.slurm.commands import Controller

OPTION = "--engine-job"
RESOURCES = ("--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=1G")
LOG = "engine.log"


def script(arguments: Sequence[str], folder: Path) -> str:
    """What the job runs. Before its time limit the job is begun again under the same id, and the engine,
    killed at once, goes on where it was. scancel asks it to stop; it then makes the report.
    """
    engine = [
        sys.executable,
        "-m",
        "workflows.submit",
        *(one for one in arguments if one != OPTION),
    ]
    log = shlex.quote(str(folder / LOG))
    return "\n".join(
        [
            "#!/bin/bash",
            f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
            f"{shlex.join(engine)} >> {log} 2>&1 < /dev/null &",
            "engine=$!",
            "trap 'kill -KILL $engine; wait $engine; scontrol requeue $SLURM_JOB_ID; sleep 60' USR1",
            "trap 'kill -TERM $engine' TERM INT",
            "while kill -0 $engine 2> /dev/null; do wait $engine; code=$?; done",
            "exit $code",
            "",
        ]
    )


def submit(slurm: Slurm, arguments: Sequence[str], name: str, folder: Path) -> str:
    """Submit the engine and return the job's id. folder: for its log. Raises `SlurmError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = [
        f"--job-name={name}-engine",
        *RESOURCES,
        *scripts.placement(slurm.cpu),
        f"--signal=B:USR1@{slurm.warning}",
        "--requeue",
        "--output=/dev/null",
        "--export=ALL",
    ]

    async def ask() -> str:
        return await Controller(slurm.answer).submit(options, script(arguments, folder.absolute()))

    return asyncio.run(ask())
