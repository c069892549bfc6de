"""Checks whether a file system can hold an experiment, once, before any work, by trying it. Also
checks that paths stay below the storage root.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from config import pipeline
from config.errors import BadInput, WrongDirectory
from steps.directory.files import (
    free_bytes,
    sync_directory,
    temporary_beside,
    unwritable,
    write_and_sync,
)
from steps.directory.layout import ExperimentDirectory

LEAST_FREE_BYTES = 32 * 2**20
"""About what an experiment's plots, videos and reports need. A training that runs out of space says
so itself.
"""


def make_and_probe(directory: Path) -> None:
    """Create the output directory and try the operations that other modules rely on. Raises
    `BadInput`, which names what is missing.

    A directory that was created for the probe is removed again if the probe fails.
    """
    created = _make(directory)
    try:
        probe(directory)
    except BaseException:
        for path in created:
            path.rmdir()
        raise


def probe(directory: Path) -> None:
    """Try to write, to rename over a file and to link in an existing directory; raises
    `BadInput`.
    """
    one, other = (temporary_beside(directory / name) for name in ("probe-one", "probe-other"))
    try:
        _try_files(directory, one, other)
    except OSError as error:
        raise unwritable(directory, error) or BadInput(
            f"cannot write {directory}: {error.strerror}"
        ) from error
    finally:
        for path in (one, other):
            path.unlink(missing_ok=True)
    free = free_bytes(directory)
    if free < LEAST_FREE_BYTES:
        raise BadInput(
            f"no space in {directory}: {free} bytes free, at least {LEAST_FREE_BYTES} needed"
        )


def _try_files(directory: Path, one: Path, other: Path) -> None:
    write_and_sync(one, b"new")
    write_and_sync(other, b"old")
    try:
        one.replace(other)
    except OSError as error:
        raise BadInput(
            f"{directory} lies on a storage that cannot rename a file over another: {error.strerror}"
        ) from error
    if other.read_bytes() != b"new" or one.exists():
        raise BadInput(
            f"{directory} lies on a storage whose rename is not atomic: the old file was still there"
        )
    sync_directory(directory)
    try:
        os.link(other, one)
    except OSError as error:
        raise BadInput(
            f"{directory} lies on a storage without hard links, which claim a directory: {error.strerror}"
        ) from error
    try:
        os.link(other, one)
    except FileExistsError:
        return
    raise BadInput(
        f"{directory} lies on a storage where a link replaces an existing file: two owners could claim it"
    )


def refuse_links(directory: ExperimentDirectory, run_index: int | None = None) -> None:
    """Raise `WrongDirectory` if a step would write through a symbolic link, which leads outside of
    the directory.

    Links to the output directory itself were followed and checked by `check_outdir`. Whole files
    need no check, because a rename replaces a link. run_index: of a step inside a run; None
    outside.
    """
    folders = [directory.runs, directory.logs, directory.status]
    folders += [directory.root / name for name in pipeline.folders("experiment")]
    files = [directory.owner_json, *directory.logs.glob("*.log")]
    if run_index is not None:
        run = directory.run(run_index)
        folders += [run.root, run.logs, run.status]
        folders += [run.root / name for name in pipeline.folders("run")]
        files += [run.train_csv, *run.root.glob("resources*.csv"), *run.logs.glob("*.log")]
    for path in folders:
        refuse_link(path, is_folder=True)
    for path in files:
        refuse_link(path, is_folder=False)


def refuse_link(path: Path, *, is_folder: bool) -> None:
    """Raise `WrongDirectory` for a symbolic link, and for a file in a folder's place or the
    reverse. A missing path is fine.
    """
    mode = _mode(path)
    if mode is not None and stat.S_ISLNK(mode):
        raise WrongDirectory(
            f"{path} is a symbolic link, through which nothing is written; remove it or choose another outdir"
        )
    if mode is not None and stat.S_ISDIR(mode) != is_folder:
        raise WrongDirectory(
            f"{path} is {'no' if is_folder else 'a'} directory; remove it or choose another outdir"
        )


def _mode(path: Path) -> int | None:
    """The mode of a path; None if it is missing or may not be looked at, which the later write
    reports.
    """
    try:
        return path.lstat().st_mode
    except OSError:
        return None


def _make(directory: Path) -> list[Path]:
    """Create the directory and its parents. Returns those that were created, innermost first."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(directory, error) or BadInput(
            f"cannot create {directory}: {error.strerror}"
        ) from error
    return missing
