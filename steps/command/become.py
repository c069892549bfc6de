"""Starts a step by a user's own command, such as one that starts a display first."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from config.errors import BadInput, shown


def become(command: str, options: Sequence[str]) -> NoReturn:
    """Replace this process by the command, with the step's options appended. Raises `BadInput`.

    The words are split as a shell does, but no shell runs. `python` means this interpreter, because
    its folder is put first on the command's PATH.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    os.environ["PATH"] = path
    # `execvp` keeps the process id: the signals of Kubernetes reach the person's command directly.
    try:
        program, *words = shlex.split(command)
        os.execvp(program, [program, *words, *options])  # noqa: S606 - no shell is what is wanted
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"parameter 'actor_command', {shown(command)}: {why}") from None
