"""Tries a game in a process of its own with a time limit, because a person's code may print for ever,
start processes, end its own, or never return, and a graphics driver may crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, NamedTuple

from agents.checks.trial_process import DRAWN, MADE, REFUSED, STEPPED
from config.errors import BadInput, shown
from config.own_packages import ROOT
from config.resolved import Resolved
from config.suites import suite_of

GRAPHICS = ("egl", "osmesa")
"""Ways in which OpenGL draws without a display, as the variable MUJOCO_GL names them: by a driver's EGL or
Mesa's, else by Mesa's library OSMesa."""
BY_OPENGL = ("mujoco", "dm_control")
"""The suites whose pictures are drawn by OpenGL."""
TO_INSTALL = "apt-get install libegl1 libgl1 (or libosmesa6)"
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


class Drawing(NamedTuple):
    """Whether a game's pictures can be drawn on this machine. variables: the environment variables with
    which they can, to be set before the game's packages are imported; refused: why they cannot, in one
    sentence.
    """

    variables: Mapping[str, str]
    refused: str | None = None


def drawn_elsewhere(resolved: Resolved) -> Drawing:
    """Find out how the game's pictures can be drawn without a display, by trying: it depends on the
    machine. Atari's, board games' and those of gymnasium's own games but MuJoCo's need nothing.
    """
    game = resolved.game
    suite = suite_of(game.id)
    by_opengl = suite is not None and suite.name in BY_OPENGL
    if game.is_board or (game.family and not by_opengl):
        return Drawing({})
    chosen = os.environ.get("MUJOCO_GL")
    refused: dict[str, str] = {}
    for graphics in dict.fromkeys((*([chosen] if chosen else []), *GRAPHICS)):
        variables = {"MUJOCO_GL": graphics}
        reason = _not_drawn(resolved, variables)
        if reason is None:
            return Drawing(variables)
        refused[graphics] = reason
    if len(set(refused.values())) == 1:
        # It is the game itself that gives no pictures, however it is asked.
        return Drawing({}, next(iter(refused.values())))
    none = f"{game.name!r} gives no images: "
    tried = "; ".join(f"{name}: {text.removeprefix(none)}" for name, text in refused.items())
    return Drawing(
        {},
        f"{game.name!r} cannot be drawn on this machine, which has no OpenGL without a display: "
        f"{TO_INSTALL}, and run play again ({tried})",
    )


def _not_drawn(resolved: Resolved, variables: Mapping[str, str]) -> str | None:
    """Why no picture can be drawn with these environment variables; None if one was."""
    timeout_s = resolved.experiment.trial_timeout
    try:
        code, said = _ask(resolved, DRAWN, timeout_s, variables)
    except BadInput as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"nothing was drawn within {timeout_s:g} s"
    return None if said == DRAWN else f"the process ended with {code}: {shown(said, 200)}"


def _ask(
    resolved: Resolved, wanted: str, timeout_s: float, variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """The exit code and the last line of a process that tries what is wanted: the line is `wanted`
    where it went well. variables: of its environment, beside those of this process. Raises `BadInput`
    for what the process refuses, and `TimeoutExpired`.
    """
    command = [sys.executable, "-c", PROGRAM, str(ROOT), wanted, json.dumps(resolved.as_dict())]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(variables or {})},
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
