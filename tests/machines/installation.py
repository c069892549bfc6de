"""The packages of another Python: installed by the project's own command, in as little space as
they can be."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import Distribution
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
    command fails; what is half installed is removed then.
    """
    if python.environment.resolve() == Path(sys.prefix).resolve():
        return  # `make` has seen to the one that runs this
    with ONE_AT_A_TIME:  # all of them write the same *.egg-info
        if not python.packages.is_dir():
            check_space()
            share_packages(python)
        output, code = _make(python)
    if code:
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
    """Begin its environment with hard links to the packages of the one that runs this, as far as
    they fit every Python 3: CUDA's libraries, half of it all, are on the disk once.

    `pip` finds them installed then. Where no links can be made it installs all of them.
    """
    subprocess.run([python.program, "-m", "venv", python.environment], check=True)
    with contextlib.suppress(OSError):
        for distribution in importlib.metadata.distributions():
            for source in shareable_files(distribution):
                target = python.packages / source.relative_to(_packages(distribution))
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():
                    target.hardlink_to(source)


def shareable_files(distribution: Distribution) -> Iterator[Path]:
    """The files of a package that is the same for every Python 3 and installs nothing outside of
    the folder of packages; none of any other."""
    tags = (distribution.read_text("WHEEL") or "").split()
    files = distribution.files or []
    outside = any(".." in file.parts for file in files)
    if outside or not any(tag.startswith("py3-none-") for tag in tags):
        return
    for file in files:
        if "__pycache__" not in file.parts:
            yield Path(str(distribution.locate_file(file)))


def _packages(distribution: Distribution) -> Path:
    return Path(str(distribution.locate_file("")))


def _make(python: Interpreter) -> tuple[str, int]:
    """Output and exit code of the project's own command."""
    folder = python.environment.relative_to(ROOT)
    process = subprocess.Popen(
        ["make", "--no-print-directory", f"PYTHON={python.program}", f"VENV={folder}",
         f"{folder}/.installed"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    INSTALLING.append(process)
    output, _ = process.communicate()
    return output, process.returncode


def stop_installing() -> None:
    """End what `install` runs; `make` begins again where it was not finished."""
    for process in INSTALLING:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
