"""What a process of the fork server does. It has a module of its own because the server imports it
by name, and several directories have a `conftest`.
"""

from __future__ import annotations

import importlib
import os
import resource
import socket
import sys

from config.ending import end
from tests.modes import respect_modes
from tests.outside import OF_A_WORKFLOW


def run_step(
    module: str,
    argv: list[str],
    environment: dict[str, str],
    output: str,
    file_size: int | None,
    unprivileged: bool,
    hostname: str | None,
) -> None:
    """Run the `main` of a step's module and end with its exit code; what it prints goes to a file."""
    os.setsid()
    if hostname is not None:
        socket.gethostname = lambda: hostname
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for name in OF_A_WORKFLOW:
        os.environ.pop(name, None)
    os.environ.update(environment)
    # A new interpreter would do so by itself.
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    if file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    if unprivileged:
        respect_modes()
    end(importlib.import_module(module).main(argv))
