"""The packages of another Python: installed by the project's own command, in as little space as
they can be."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import threading
from importlib.metadata import Distribution, PackagePath
from pathlib import Path

from tests.machines.machine import ROOT, Interpreter

NEEDED_BYTES = 8 * 2**30
"""Free space for an environment (torch with CUDA: 3 GiB besides what is shared, 6 where nothing can
be), for the archives that pip unpacks meanwhile, and for what comes after."""
ONE_AT_A_TIME = threading.Lock()
INSTALLING: list[subprocess.Popen[str]] = []


class NoSpace(Exception):
    """The disk is too full for another environment; the message says how full."""


def install(python: Interpreter) -> None:
    """Make its environment, unless it is there and up to date.

    Raises `NoSpace` before it begins, and `RuntimeError` with the end of the output where the
    command fails; an environment that was begun here is removed then.
    """
    if python.environment.resolve() == Path(sys.prefix).resolve():
        return  # `make` has seen to the one that runs this
    with ONE_AT_A_TIME:  # all of them write the same *.egg-info
        begun = not python.environment.exists()
        if begun:
            check_space()
            share_packages(python)
        output, code = _make(python)
    if code:
        if begun:
            shutil.rmtree(python.environment, ignore_errors=True)
        raise RuntimeError(f"installing for {python.name} ended with {code}: {output[-500:]}")


def check_space() -> None:
    """Raise `NoSpace` unless another environment fits on the disk."""
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        raise NoSpace(
            f"{free / 2**30:.1f} GiB are free on the disk, its packages need {NEEDED_BYTES >> 30}"
        )


def share_packages(python: Interpreter) -> None:
    """Begin its environment with hard links to CUDA's libraries in the one that runs this: half of
    all packages, and the same for every Python 3.

    `pip` finds them installed then. Where no links can be made it installs them itself.
    """
    subprocess.run([python.program, "-m", "venv", python.environment], check=True)
    for distribution in importlib.metadata.distributions():
        files = shareable_files(distribution)
        try:
            for file in files:
                target = python.packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(str(distribution.locate_file(file)))
        except OSError:
            for file in files:  # half of a package would count as installed
                (python.packages / file).unlink(missing_ok=True)
            return


def shareable_files(distribution: Distribution) -> list[PackagePath]:
    """The files of one of CUDA's libraries, below the folder of packages; none of any other."""
    tags = (distribution.read_text("WHEEL") or "").split()
    files = [file for file in distribution.files or [] if "__pycache__" not in file.parts]
    if not distribution.name.startswith("nvidia-") or any(".." in file.parts for file in files):
        return []
    return files if any(tag.startswith("py3-none-") for tag in tags) else []


def _make(python: Interpreter) -> tuple[str, int]:
    """Output and exit code of the project's own command."""
    folder = python.environment.relative_to(ROOT)
    process = subprocess.Popen(
        ["make", "--no-print-directory", f"PYTHON={python.program}", f"VENV={folder}",
         f"{folder}/.installed-with-tests"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    INSTALLING.append(process)
    output, _ = process.communicate()
    return output, process.returncode


def stop_installing() -> None:
    """End what `install` runs; what was begun is removed."""
    for process in INSTALLING:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
