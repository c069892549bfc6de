"""Every error that a person can cause or meet, with one exit code per class (docs/resuming.md lists
them).

    ExperimentError            1   unexpected: a full disk, a lost peer
    ├── BadInput               2   a parameter, a path, a missing file of an earlier step
    ├── Diverged               3   non-finite loss, gradient, reward or observation
    │   └── NoProgress         3   the same step reached twice without a newer checkpoint
    ├── WrongDirectory         4   the directory belongs to another owner or other parameters
    │   └── NoUsableState      4   every checkpoint is damaged
    ├── Incomplete             5   fewer usable runs than `min_runs`, or a failed play or plot
    └── Preempted             75   SIGTERM or a deadline: to be continued from the last checkpoint

Only `main()` of a command catches them; Argo never retries 2, 3, 4 and 5.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEVER_RETRIED = (2, 3, 4, 5)
"""Exit codes of attempts that would end the same way again."""


class ExperimentError(Exception):
    """The root: its message is one line for a person, its class decides the exit code."""

    exit_code = 1


class BadInput(ExperimentError):
    """The input is wrong: names the parameter, the value, what is allowed, the nearest known
    name.
    """

    exit_code = 2


class Diverged(ExperimentError):
    """Training met a non-finite number; nothing was learnt from it."""

    exit_code = 3


class NoProgress(Diverged):
    """The last attempt ended at this very step and left no newer checkpoint."""


class WrongDirectory(ExperimentError):
    """The output directory belongs to another workflow or to other parameters."""

    exit_code = 4


class NoUsableState(WrongDirectory):
    """Checkpoints exist and none of them verifies: never silently from zero."""


class Incomplete(ExperimentError):
    """The experiment ended with less than what was asked for; the report is complete."""

    exit_code = 5


class Preempted(ExperimentError):
    """Asked to stop: the next attempt continues from the last checkpoint."""

    exit_code = 75


def unknown(kind: str, name: str, known: Iterable[str], meant: str = "") -> BadInput:
    """`unknown parameter 'epoch'; did you mean 'epochs'? known: clip, discount, …`; meant: by default
    the name that is spelt most alike.
    """
    names = sorted(known)
    nearest = [meant] if meant else difflib.get_close_matches(name[:64].lower(), names, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ";"
    return BadInput(f"unknown {kind} {shown(name)}{hint} known: {', '.join(names)}")


def on_one_line(text: object) -> str:
    """A message from elsewhere (an exception, a server, a file) for a terminal: one line, and
    nothing in it steers the terminal.
    """
    return printable(" ".join(part.strip() for part in str(text).splitlines() if part.strip()))


def printable(line: str) -> str:
    """What is not printable (escape sequences, bells, marks that turn the direction of writing) is
    shown as its Python escape.
    """
    return "".join(
        one if one.isprintable() else " " if one.isspace() else _escaped(one) for one in line
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def shown(value: object, longest: int = 80) -> str:
    """A value in a message: on one line, escaped, never long."""
    text = repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
