"""The options and the script of a submission, and what a job is told to execute."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from config.pipeline import EARLIER_JOBS
from config.slurm import Jobs, Slurm
from workflows.local.executor import Order
from workflows.local.machine.pod_spec import PYTHONS, is_inherited
from workflows.local.machine.slots import Resources
from workflows.slurm import job
from workflows.slurm.records import key_of

PROGRAM = Path(job.__file__)
OF_THE_LOGIN_NODE = (
    "DISPLAY",
    "XAUTHORITY",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_RUNTIME_DIR",
    "LD_PRELOAD",
)
"""Inherited variables that mean nothing on another machine."""
BEFORE_SETUP = "exec {RL_BEFORE}< <(env -0)"
"""Keeps the variables of a job, so that what `setup` sets can be told from them."""
HELPERS = ("train-actor", "train-worker")
"""How the names of the templates begin whose pods belong to the pool `actor`."""


def pool_of(order: Order) -> str:
    """The pool of a pod: `gpu` only if it requests one, so that jobs without one stay off those nodes."""
    if order.template.startswith(HELPERS):
        return "actor"
    return "gpu" if order.spec.resources.gpus else "cpu"


def requested(resources: Resources, pool: Jobs) -> list[str]:
    """The options for what a pod requests, and those of its pool."""
    options = ["--nodes=1", "--ntasks=1", f"--cpus-per-task={max(1, math.ceil(resources.cpus))}"]
    if resources.memory_bytes:
        options.append(f"--mem={math.ceil(resources.memory_bytes / 2**20)}M")
    if resources.gpus:
        options.append(f"--gres={pool.gres}:{resources.gpus}")
    return options + placement(pool)


def placement(pool: Jobs) -> list[str]:
    """The options of a pool."""
    given = {
        "partition": pool.partition,
        "account": pool.account,
        "qos": pool.qos,
        "time": pool.time_limit,
        "constraint": pool.constraint,
        "reservation": pool.reservation,
    }
    return [f"--{name}={value}" for name, value in given.items() if value] + list(pool.options)


def options(order: Order, slurm: Slurm) -> list[str]:
    """All options of a pod's submission but its name and its index."""
    return [
        *requested(order.spec.resources, slurm.pool(pool_of(order))),
        f"--signal=B:USR1@{slurm.warning}",
        "--requeue" if slurm.requeue else "--no-requeue",
        "--output=/dev/null",
        "--chdir=/",
        "--export=PATH",
    ]


def script(slurm: Slurm, state: Path, batch: str) -> str:
    """What sbatch is given on standard input. The shared directory may be late on the node; until it is
    seen, what the job says would be lost. The time limit counts from the first line. A warning that comes
    before the program listens must not kill the shell.
    """
    folder = shlex.quote(str(state / "jobs"))
    words = [slurm.python or sys.executable, "-I", str(PROGRAM), str(state), batch, str(slurm.late)]
    start = f"exec {shlex.join(words)}"
    return "\n".join(
        [
            "#!/bin/bash",
            "trap '' USR1",
            "export RL_BEGAN=$(date +%s.%N)",
            f"for second in $(seq {slurm.late}); do [ -d {folder} ] && break; sleep 1; done",
            f"exec >> {folder}/{shlex.quote(batch)}.log 2>&1 < /dev/null",
            *([BEFORE_SETUP, *slurm.setup, f'{start} "$RL_BEFORE"'] if slurm.setup else [start]),
            "",
        ]
    )


def scratch(slurm: Slurm, uid: str, pod: str) -> Path:
    """A pod's folder on its node. Its name is short, because a path of a socket below it must be."""
    return Path(slurm.scratch) / f"rl-{hashlib.sha256(f'{uid} {pod}'.encode()).hexdigest()[:12]}"


def order_of(
    order: Order, link: int, slurm: Slurm, scratch_folder: Path, storage: Path
) -> dict[str, Any]:
    """What a job reads. link: how many jobs of the pod have ended at their time limit."""
    pool = slurm.pool(pool_of(order))
    values = {
        name: value
        for name, value in order.environment.items()
        if name not in OF_THE_LOGIN_NODE or value != os.environ.get(name)
    }
    if link:
        values[EARLIER_JOBS] = str(link)
    own = [folder for folder in order.mounts.folders.values() if _is_below(folder, scratch_folder)]
    state = [folder for folder in order.mounts.folders.values() if folder not in own]
    bound = [storage, scratch_folder, order.folder, *state]
    return {
        "key": key_of(order.pod, link),
        "arguments": [*pool.before, *_command(order.arguments, pool, bound, order.folder)],
        "environment": values,
        "inside": [name for name in values if not is_inherited(name)],
        "own": [name for name in values if not _is_from_here(name, values[name])],
        "in_container": pool.image is not None,
        "folder": str(order.folder),
        "log": None if order.log is None else str(order.log),
        "folders": [str(scratch_folder), *map(str, own)],
        "scratch": str(scratch_folder),
        "gpus": order.spec.resources.gpus,
        "address": slurm.address,
        "limit_s": pool.time_limit_s,
        "warning_s": slurm.warning,
    }


def _command(
    arguments: Sequence[str], pool: Jobs, bound: Sequence[Path], folder: Path
) -> Sequence[str]:
    """The command as it is, or in Apptainer, with the image's own Python."""
    if pool.image is None:
        return arguments
    program = arguments[0]
    if program == sys.executable:
        program = PYTHONS[0]
    binds = [f"--bind={path}" for path in dict.fromkeys(map(str, bound))]
    return [
        "apptainer", "exec", "--nv", "--cleanenv", *binds, f"--pwd={folder}",
        *pool.apptainer_options, pool.image, program, *arguments[1:],
    ]  # fmt: skip


def _is_from_here(name: str, value: str) -> bool:
    return is_inherited(name) and value == os.environ.get(name)


def _is_below(folder: Path, root: Path) -> bool:
    return folder == root or root in folder.parents
