"""Puts the engine itself into a job: for login nodes on which no process may stay."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from config.slurm import Slurm
from steps.directory.files import write_atomically
from workflows.slurm import scripts, states
from workflows.slurm.commands import Controller, call
from workflows.slurm.errors import SlurmError

OPTION = "--engine-job"
RESOURCES = ("--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=1G")
ANSWER_S = 60.0
LOG = "engine.log"
JOB = "engine.job"
"""The file with the id of the engine's job."""


def script(arguments: Sequence[str], folder: Path) -> str:
    """What the job runs. Before its time limit the job is begun again under the same id, and the engine,
    killed at once, goes on where it was; so it does after a preemption, which is a SIGTERM. SIGINT asks it to
    stop; it then makes the report.
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
            "again='until scontrol requeue $SLURM_JOB_ID; do sleep 5; done; sleep 60'",
            "trap 'kill -KILL $engine; wait $engine; eval \"$again\"' USR1",
            "trap 'kill -KILL $engine' TERM",
            "trap 'kill -TERM $engine' INT",
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

    job = asyncio.run(ask())
    write_atomically(folder / JOB, job)
    return job


def is_in_the_queue(folder: Path) -> bool:
    """Whether the engine is a job that waits or runs. folder: that of its log."""
    try:
        job = (folder / JOB).read_text()
        words = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
        state = asyncio.run(call(words, answer_s=ANSWER_S)).strip()
    except (OSError, SlurmError):
        return False
    return bool(state) and state.partition(" ")[0] not in states.ENDED
