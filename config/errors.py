"""Every error that a person can cause or meet, with one exit code per class (docs/resuming.md lists
them).

    ExperimentError            1   unexpected: a full disk, a lost peer
    ├── BadInput               2   a parameter, a path, a missing file of an earlier step
    ├── Diverged               3   non-finite loss, gradient, reward or observation
    │   └── NoProgress         3   the same step reached twice without a newer checkpoint
    ├── WrongDirectory         4   the directory belongs to another owner or other parameters
    │   └── NoUsableState      4   every checkpoint is damaged
    ├── Incomplete             5   fewer usable runs than `min_runs`, or a failed play or plot
    │   └── Unsent             5   a tracker that did not take everything, by hand only
    └── Preempted             75   SIGTERM or a deadline: to be continued from the last checkpoint

Only `main()` of a command catches them; Argo never retries 2, 3, 4 and 5.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEVER_RETRIED = (2, 3, 4, 5)
"""Exit codes that a retry would only repeat."""


class ExperimentError(Exception):
    """Base of all errors. Its message is one line for a person; its class decides the exit code."""

    exit_code = 1


class BadInput(ExperimentError):
    """The input is wrong. The message names the parameter, the value, what is allowed and the
    nearest known name.
    """

    exit_code = 2


class Diverged(ExperimentError):
    """Training met a number that is not finite. The update was not applied."""

    exit_code = 3


class NoProgress(Diverged):
    """The previous attempt ended at this very step without a newer checkpoint, so another attempt
    would end there again.
    """


class WrongDirectory(ExperimentError):
    """The output directory belongs to another workflow or to an experiment with other parameters."""

    exit_code = 4


class NoUsableState(WrongDirectory):
    """Checkpoints exist, but none of them is intact. Training never restarts silently from zero."""


class Incomplete(ExperimentError):
    """The experiment ended with less than was asked for. The report is complete."""

    exit_code = 5


class Unsent(Incomplete):
    """A tracker did not take everything. The rest is kept, and sent when it is asked again. In a
    workflow this is no failure.
    """


class Preempted(ExperimentError):
    """The process was asked to stop. The next attempt continues from the last checkpoint."""

    exit_code = 75


def unknown(
    kind: str, name: str, known: Iterable[str], meant: str = "", difference: str = ""
) -> BadInput:
    """An error such as `unknown parameter 'epoch'; did you mean 'epochs'? known: clip, discount,
    …`.

    meant: the suggested name; by default the known one that is spelt most alike. difference: of what
    it means, `which counts epochs`.
    """
    names = sorted(known)
    nearest = [meant] if meant else difflib.get_close_matches(name[:64].lower(), names, n=1)
    but = f", {difference}" if difference else ""
    hint = f"; did you mean {nearest[0]!r}{but}?" if nearest else ";"
    return BadInput(f"unknown {kind} {shown(name)}{hint} known: {', '.join(names)}")


def on_one_line(text: object) -> str:
    """Make a message from an exception, a server or a file safe for a terminal: one line without
    control sequences.
    """
    return printable(" ".join(part.strip() for part in str(text).splitlines() if part.strip()))


def printable(line: str) -> str:
    """Replace characters that cannot be printed (escape sequences, bells, marks that turn the
    direction of writing) by their Python escapes.
    """
    return "".join(
        one if one.isprintable() else " " if one.isspace() else _escaped(one) for one in line
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def shown(value: object, longest: int = 80) -> str:
    """Format a value for a message: on one line, escaped and shortened."""
    text = repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
