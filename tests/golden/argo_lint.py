"""`argo lint`, where this machine has the command."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def argo_command() -> str | None:
    """The command on the PATH, or the one that the tests on a cluster have fetched."""
    cached = sorted(Path(os.environ.get("HOME", "/"), ".cache/rl-cluster").glob("argo-*/argo"))
    return shutil.which("argo") or (str(cached[-1]) if cached else None)


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    """The ended command for a file; without the command, the test is skipped."""
    command = argo_command()
    if command is None:
        pytest.skip("no `argo` on the PATH or in ~/.cache/rl-cluster")
    arguments = [command, "lint", "--offline", "--no-color", str(path)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
