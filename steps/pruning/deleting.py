"""Deletes the state of an experiment, or all of it. Killed at any moment and run again, it ends right.

State: each run is marked first (`steps.directory.pruned`), then its folders go. All: the experiment is
marked, then gets a hidden name beside its own, by which a later call finds it, then it goes, the mark last.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from config.errors import ExperimentError, WrongDirectory
from steps.directory import owner, processes, pruned
from steps.directory.experiment import read_experiment
from steps.directory.files import fault, refuse_links, write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.owner import Owner
from steps.directory.status import read_status

MARK = "pruned.json"
"""In an experiment that is being deleted as a whole."""
HIDDEN = re.compile(r"\..+\.[0-9a-f]{8}\.pruned")
WORKFLOW = "steps.prune"


def runs_of(directory: ExperimentDirectory) -> list[RunDirectory]:
    """The runs that an experiment was planned with. Raises `ExperimentError` for a damaged one."""
    count = read_experiment(directory).resolved.experiment.runs
    return [directory.run(index) for index in range(count)]


def deletable(directory: ExperimentDirectory, *, is_whole: bool) -> list[Path]:
    """The folders that would be deleted. Raises `WrongDirectory` if a link lies in the way, and as
    `runs_of`.
    """
    runs = runs_of(directory)
    for run in runs:
        refuse_links(directory, run.index)
    if is_whole:
        return [directory.root]
    return [folder for run in runs for folder in pruned.state_folders(run)]


def size_of(folders: list[Path]) -> int:
    """How many bytes lie in folders, without what links lead to."""
    return sum(
        os.lstat(Path(parent) / name).st_size
        for folder in folders
        for parent, _, names in os.walk(folder, followlinks=False, onerror=None)
        for name in names
        if not (Path(parent) / name).is_symlink()
    )


def delete_state(directory: ExperimentDirectory) -> None:
    """Delete the state of every run. Raises `WrongDirectory` if a workflow works on the directory."""
    with _owned(directory):
        for run in runs_of(directory):
            refuse_links(directory, run.index)
            folders = pruned.state_folders(run)
            if folders:
                pruned.mark(run, size_of(folders))
            for folder in folders:
                fault("before_delete", folder)
                shutil.rmtree(folder)


def delete_all(directory: ExperimentDirectory) -> None:
    """Delete a whole experiment. Raises as `delete_state`."""
    root = directory.root
    hidden = root.with_name(f".{root.name}.{secrets.token_hex(4)}.pruned")
    with _owned(directory):
        for run in runs_of(directory):
            refuse_links(directory, run.index)
        write_atomically(root / MARK, f'"{WORKFLOW}"\n')
        root.rename(hidden)
    finish(hidden)


def finish(hidden: Path) -> None:
    """Delete what has its hidden name already."""
    with os.scandir(hidden) as listed:
        entries = [Path(entry.path) for entry in listed if entry.name != MARK]
    for path in entries:
        fault("before_delete", path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (hidden / MARK).unlink(missing_ok=True)
    hidden.rmdir()


def unfinished(folder: Path) -> list[Path]:
    """What an interrupted call has left in a folder: hidden, of this module's form, and marked or empty."""
    try:
        found = [path for path in sorted(folder.iterdir()) if HIDDEN.fullmatch(path.name)]
    except OSError:
        return []
    return [path for path in found if not path.is_symlink() and _is_left(path)]


def _is_left(path: Path) -> bool:
    try:
        is_empty = not any(path.iterdir())
    except OSError:
        return False
    mark = path / MARK
    return is_empty or (mark.is_file() and not mark.is_symlink())


@contextlib.contextmanager
def _owned(directory: ExperimentDirectory) -> Iterator[None]:
    """Own the directory meanwhile, so that no workflow begins in it. Raises `WrongDirectory` for one that
    another workflow works on, or a step by hand.
    """
    me = Owner(
        uid=f"prune-{secrets.token_hex(8)}",
        workflow=WORKFLOW,
        host=socket.gethostname(),
        process=processes.identity(),
    )
    owner.claim(directory.owner_json, me)
    is_over = threading.Event()
    threading.Thread(
        target=_keep, args=(directory.owner_json, me.uid, is_over), daemon=True
    ).start()
    try:
        _refuse_running(directory)
        yield
    finally:
        is_over.set()
        with contextlib.suppress(ExperimentError, OSError):  # a renamed directory has no owner here
            owner.release(directory.owner_json, me.uid)


def _keep(owner_json: Path, uid: str, is_over: threading.Event) -> None:
    """Keep the lease: a replay of many gigabytes takes longer to delete than a silent owner is given."""
    while not is_over.wait(owner.LEASE_S / owner.HEARTBEATS_PER_LEASE):
        with contextlib.suppress(ExperimentError, OSError):
            owner.touch(owner_json, uid)


def _refuse_running(directory: ExperimentDirectory) -> None:
    """Raise `WrongDirectory` if a step that was started by hand runs on this machine."""
    folders = [directory.status, *(run.status for run in runs_of(directory))]
    for path in (path for folder in folders for path in folder.glob("*.json")):
        status = read_status(path)
        if status is not None and status.state == "running" and processes.is_alive(status.process):
            raise WrongDirectory(f"{status.task} of {directory.root} is running")
