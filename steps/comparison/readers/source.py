"""A source of a comparison as a person writes it: `PATH` or `PATH:label=PPO:game=hopper`.

An option begins at a colon that a name and an equals sign follow, so both paths and values may contain
other colons. A path may even contain `:lr=0.1`: of all beginnings of the text, the longest that exists
is the path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from config.errors import BadInput, shown, unknown
from steps.comparison.entries import Entry

OPTION_START = re.compile(r":(?=[a-z_]+=)")
LONGEST_LABEL = 80
LARGEST_FRAMES = 1000
OPTIONS: Mapping[str, str] = {
    "label": "the algorithm's name in figures and tables",
    "game": "its short name or its id, such as hopper or Hopper-v4",
    "frames": "frames of the emulator in one step of the agent, for Atari",
    "tag": "tag of the returns in TensorBoard's event files",
    "value": "column of the returns in a CSV file; in an export of W&B the metric",
    "step": "column of the environment steps in a CSV file",
    "run": "column of a CSV file that tells runs apart",
    "label_column": "column of the labels, in place of one label",
    "game_column": "column of the games, in place of one game",
    "kind": "what one value is: evaluation, episode (of the training) or mean (of training episodes)",
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A path that exists, and what was said about it."""

    path: Path
    options: Mapping[str, str]

    def needed(self, option: str, found: str, where: object) -> str:
        """What was said, else what was found. Raises `BadInput`, which names the option, if neither
        is there.
        """
        known = self.options.get(option) or usable_text(found)
        if not known:
            raise BadInput(
                f"the {option} of {where} is unknown: say it, {self.path}:{option}=… "
                f"({OPTIONS[option]})"
            )
        return known

    def column(self, option: str, columns: list[str]) -> int | None:
        """The index of the column that an option names; None if it was not given. Raises `BadInput`
        with the nearest name.
        """
        name = self.options.get(option)
        if name is None:
            return None
        if name not in columns:
            raise unknown(f"column ({option}=) of {self.path}:", name, columns)
        return columns.index(name)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One kind of source. title: of what it reads; form: by what it recognises that. options: the
    names of those that it takes. read: raises `BadInput` and the usual `OSError`s.
    """

    title: str
    form: str
    options: tuple[str, ...]
    recognises: Callable[[Path], bool]
    read: Callable[[Source], list[Entry]]


def parse(text: str) -> Source:
    """The path and the options in a text. Raises `BadInput` for a missing path, and for an option
    that is unknown, empty, or given twice.
    """
    ends = [match.start() for match in OPTION_START.finditer(text)]
    existing = [end for end in (*ends, len(text)) if end and os.path.lexists(text[:end])]
    end = max(existing, default=min([*ends, len(text)]))
    if end == 0:
        raise BadInput(f"{shown(text)} names no path; allowed: PATH or PATH:label=NAME")
    path = Path(text[:end])
    if not os.path.exists(path):  # noqa: PTH110 - pathlib raises for a folder that may not be entered
        raise BadInput(f"no file or directory {shown(str(path))}")
    options: dict[str, str] = {}
    for part in OPTION_START.split(text[end:])[1:]:
        name, _, value = part.partition("=")
        if name not in OPTIONS:
            raise unknown(f"option of {shown(str(path))}:", name, OPTIONS)
        if name in options:
            raise BadInput(f"option {name!r} of {shown(str(path))} is given twice")
        options[name] = _checked(name, value)
    return Source(path=path, options=options)


def usable_text(found: str) -> str:
    """A label or a game that a file or a folder says; empty for one that no figure can show."""
    return found if found.isprintable() and len(found) <= LONGEST_LABEL else ""


def _checked(name: str, value: str) -> str:
    refused = f"option {name!r} cannot be {shown(value)}"
    if not value or not value.isprintable():
        raise BadInput(f"{refused}; allowed: printable text")
    if name == "label" and len(value) > LONGEST_LABEL:
        raise BadInput(f"{refused}; allowed: up to {LONGEST_LABEL} characters")
    if name == "frames" and not (
        value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= LARGEST_FRAMES
    ):
        raise BadInput(f"{refused}; allowed: an integer from 1 to {LARGEST_FRAMES}")
    return value
