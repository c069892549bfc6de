"""Decides where a local experiment's results go, and checks whether it can work here, before
anything is started or written.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from config.errors import BadInput, WrongDirectory
from config.outdir import check_outdir, check_outdir_text
from config.parameters import cannot_be, refuse_hostile
from config.resolved import Resolved
from config.suites import check_installed
from config.tracking import refuse_missing
from steps.directory import processes
from steps.directory.continuing import held_experiment
from steps.directory.elsewhere import made_elsewhere
from steps.directory.layout import ExperimentDirectory
from steps.directory.owner import read_owner
from steps.directory.starting_point import recorded_games, with_origin, with_recorded

MOUNT = "/storage"
SMALLEST_FREE_BYTES = 64 * 1024**2
PROBE_TIMEOUT_S = 120.0
CUDA_PROBE = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"


@dataclass(frozen=True)
class Place:
    """storage: the folder that pods see as /storage. outdir: the results directory as pods see it.
    directory: the same as people see it here.
    """

    storage: Path
    outdir: str
    directory: Path


def cluster_outdir(outdir: str, name: str = "outdir") -> str:
    """Check a results directory for a cluster: it must lie below the mount. Raises `BadInput`."""
    check_outdir_text(outdir, name)
    path = PurePosixPath(outdir)
    if not path.is_relative_to(MOUNT) or path == PurePosixPath(MOUNT):
        below = f"a directory below {MOUNT} (only --local takes another path)"
        raise cannot_be(name, outdir, allowed=below)
    return str(path)


def place(outdir: str, storage: Path | None, name: str = "outdir") -> Place:
    """Map the mount to a folder of this machine, `storage/` by default. A plain local path is used
    as it is. name: the parameter's. Raises `BadInput`.
    """
    check_outdir_text(outdir, name)
    try:
        Path.cwd()
    except FileNotFoundError:
        raise BadInput(
            "the folder that this shell is in has been removed; change to another"
        ) from None
    path = PurePosixPath(outdir)
    if path.is_relative_to(MOUNT):
        root = Path("storage") if storage is None else storage
        directory = root / path.relative_to(MOUNT)
    else:
        directory = Path(outdir)
        root = check_outdir(outdir, None, name).parent if storage is None else storage
    resolved = check_outdir(str(directory), root, name)
    # The whole path reaches `prepare` as this parameter, and must pass there.
    refuse_hostile(name, str(resolved))
    return Place(
        root.resolve(), str(PurePosixPath(MOUNT, resolved.relative_to(root.resolve()))), directory
    )


def check_this_machine(where: Place, resolved: Resolved) -> Resolved:
    """Raise `BadInput` for a request that cannot work here. Writes nothing. Returns the request as
    the continuation of what the directory holds.
    """
    continued = check_directory(where, resolved)
    _refuse_living_owner(ExperimentDirectory(where.directory))
    check_can_be_trained(resolved)
    return continued


def check_directory(where: Place, resolved: Resolved) -> Resolved:
    """Raise `BadInput` for a directory that cannot be written or belongs to other parameters, whoever
    owns it. Returns the request as the continuation of what the directory holds.
    """
    asked = resolved
    if (start_from := resolved.experiment.start_from) is not None:
        resolved = with_origin(
            resolved, where.directory, place(start_from, where.storage, "start_from").directory
        )
    if (imitate := getattr(resolved.hyperparameters, "imitate", None)) is not None:
        games = place(imitate, where.storage, "imitate").directory
        resolved = with_recorded(resolved, recorded_games(resolved, games))
    check_writable(where.directory)
    before = held_experiment(ExperimentDirectory(where.directory), resolved)
    return asked if before is None else asked.continuing(before)


def check_can_be_trained(resolved: Resolved) -> None:
    """Raise `BadInput` for a game, a device or a tracker that this machine does not have."""
    refuse_missing(resolved.experiment.track)
    check_installed(resolved.game.name, resolved.game.id)
    known = resolved.family and not resolved.packages and not resolved.environment.options
    if not known:
        # The game is only made here: `prepare` tries it as training will.
        made_elsewhere(resolved, PROBE_TIMEOUT_S)
    if resolved.experiment.device == "cuda" and not _has_cuda():
        raise cannot_be(
            "device", "cuda", "on this machine", because="torch finds no GPU", allowed="auto, cpu"
        )


def check_writable(directory: Path) -> None:
    """Raise `BadInput` for a results directory that cannot be made or written here."""
    existing = next(
        folder
        for folder in (directory.absolute(), *directory.absolute().parents)
        if os.path.lexists(folder)
    )
    refused = functools.partial(cannot_be, "outdir", str(directory))
    if not existing.is_dir():
        raise refused(because=f"{existing} is no directory")
    if not os.access(
        existing, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids
    ):
        mode = f"mode {existing.stat().st_mode & 0o7777:o}, owner {existing.stat().st_uid}"
        raise refused(because=f"{existing} is not writable for user {os.geteuid()} ({mode})")
    free = shutil.disk_usage(existing).free
    if free < SMALLEST_FREE_BYTES:
        needed = f"{SMALLEST_FREE_BYTES // 1024**2} MiB at least"
        raise refused(because=f"{free / 1024**2:.1f} MiB are free there; needed: {needed}")


def _refuse_living_owner(directory: ExperimentDirectory) -> None:
    """Raise `BadInput` if a workflow of this machine that is still running owns the directory."""
    try:
        owner = read_owner(directory.owner_json)
    except WrongDirectory as error:
        raise BadInput(str(error)) from None
    if (
        owner is not None
        and not owner.released
        and owner.process
        and processes.is_alive(owner.process)
    ):
        raise BadInput(
            f"{directory.root} belongs to {owner}, which is still running; wait for its end or choose another outdir"
        )


def _has_cuda() -> bool:
    """Whether torch finds a GPU. Asked in a process of its own, because importing torch takes
    seconds, which only a request for CUDA should cost.
    """
    command = [sys.executable, "-c", CUDA_PROBE]
    try:
        return (
            subprocess.run(
                command, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        no_answer = f"torch did not answer in {PROBE_TIMEOUT_S:g} s"
        raise cannot_be("device", "cuda", "on this machine", because=no_answer) from None
