"""Tries a game in a process of its own with a time limit, because a person's code may print for ever,
start processes, end its own, or never return.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import IO

from agents.checks.trial_process import MADE, REFUSED, STEPPED
from config.errors import BadInput, shown
from config.own_packages import ROOT
from config.resolve import Resolved

SAID_BYTES = 65536
"""Of what the game prints, so many bytes are kept, the last ones."""
# Our own packages come before those of the working directory, which is looked into, too: a person's
# game may lie there, and so may a `config.py`.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from agents.checks.trial_process import main
main(sys.argv[1:])
"""


def made_elsewhere(resolved: Resolved, timeout_s: float) -> None:
    """Check in a process of its own that the game can be made, and played by the algorithm and its
    network. Raises `BadInput` with one line.
    """
    cannot = f"game {resolved.game.name!r} cannot be made: "
    try:
        code, said = _ask(resolved, MADE, timeout_s)
    except subprocess.TimeoutExpired:
        raise BadInput(f"{cannot}it was not there after {timeout_s:g} s") from None
    if said != MADE:
        raise BadInput(f"{cannot}its process ended with {code}: {shown(said, 300)}")


def tried_elsewhere(resolved: Resolved, timeout_s: float) -> None:
    """As `made_elsewhere`, and step a stranger's environment as training will. Raises `BadInput` with
    one line.
    """
    from agents.checks.trial import STEPS

    game = resolved.game.name
    try:
        code, said = _ask(resolved, STEPPED, timeout_s)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"game {game!r} has not made {STEPS} steps within {timeout_s:g} s; allowed: a faster "
            "environment, or more seconds by -p trial_timeout=…"
        ) from None
    if said != STEPPED:
        raise BadInput(
            f"game {game!r} ended the process in which it was tried, with {code}: "
            f"{shown(said, 300)}; an environment must not end its process"
        )


def _ask(resolved: Resolved, wanted: str, timeout_s: float) -> tuple[int, str]:
    """The exit code and the last line of a process that tries what is wanted: the line is `wanted`
    where it went well. Raises `BadInput` for what the process refuses, and `TimeoutExpired`.
    """
    command = [sys.executable, "-c", PROGRAM, str(ROOT), wanted, json.dumps(resolved.as_dict())]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    printed = bytearray()
    reader = threading.Thread(target=_keep_the_end, args=(process.stdout, printed), daemon=True)
    reader.start()
    try:
        process.wait(timeout_s)
    finally:
        _kill(process)
        # What the game has started is gone, too, unless it has made itself independent.
        reader.join(1)
    lines = printed.decode(errors="replace").strip().splitlines() or [""]
    said = lines[-1]
    if said.startswith(REFUSED):
        raise BadInput(said.removeprefix(REFUSED))
    # A game that prints `made` or `stepped`, and then ends the process, has not been tried.
    if process.returncode and said == wanted:
        said = ""
    return process.returncode, said


def _keep_the_end(pipe: IO[bytes] | None, printed: bytearray) -> None:
    """Read the pipe to its end, and keep the last SAID_BYTES of it."""
    if pipe is None:
        return
    with pipe:
        while piece := pipe.read1(SAID_BYTES):  # type: ignore[attr-defined]
            printed += piece
            del printed[:-SAID_BYTES]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process with all that the game has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
