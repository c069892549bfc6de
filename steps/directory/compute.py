"""What all trainings of an experiment compute on and in: `compute.json`.

Results depend on the device and the precision, so `auto` is decided once, by the first training
that starts, and every run and every resume keeps to it. So is how the environments step together,
on which only the speed depends: a person sees in one place what was chosen, and nobody measures
twice. Of two that start at once both may measure; one creates the file, and what stands there
counts for both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import BadInput, WrongDirectory, shown
from steps.directory.files import create_once, read_bytes

LIMIT_BYTES = 65536
ALLOWED: Mapping[str, tuple[str | None, ...]] = {
    "device": ("cpu", "cuda"),
    "precision": ("fp32", "bf16"),
    "vectorisation": ("native", "sync", "async", None),  # files of an older version have none
}


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What counts of the file; the figures beside it are for people. vectorisation: see
    `agents.environments.vectors`, None in a file of an older version.
    """

    device: str
    precision: str
    reason: str
    vectorisation: str | None = None
    vectorisation_reason: str = ""

    def __str__(self) -> str:
        return f"{self.device}, {self.precision} ({self.reason})"


def read_compute(path: Path) -> Compute | None:
    """What was decided; None before a training has started. Raises `WrongDirectory` if damaged."""
    try:
        return _parse(json.loads(read_bytes(path, LIMIT_BYTES)))
    except FileNotFoundError:
        return None
    except (BadInput, ValueError, TypeError, RecursionError) as error:
        remedy = "delete it, and the next training that starts decides again"
        raise WrongDirectory(f"{path} cannot be read ({error}); {remedy}") from error


def settle(path: Path, decided: Mapping[str, Any]) -> Compute:
    """Record a decision, unless another training was first; returns the one that counts."""
    create_once(path, f"{json.dumps(decided, indent=1)}\n".encode())
    return read_compute(path) or _parse(decided)


def _parse(document: Any) -> Compute:
    if not isinstance(document, Mapping):
        raise ValueError("no mapping")
    for name, allowed in ALLOWED.items():
        if document.get(name) not in allowed:
            said = shown(document.get(name))
            raise ValueError(f"{name} is {said}, allowed: {', '.join(filter(None, allowed))}")
    return Compute(
        device=document["device"],
        precision=document["precision"],
        reason=_line(document, "reason"),
        vectorisation=document.get("vectorisation"),
        vectorisation_reason=_line(
            {"vectorisation_reason": "", **document}, "vectorisation_reason"
        ),
    )


def _line(document: Mapping[str, Any], name: str) -> str:
    line = document.get(name)
    if not isinstance(line, str) or not line.isprintable():
        raise ValueError(f"{name} is no line of text")
    return line
