"""What was measured, as JSON in docs/results: the documentation's tables are made from it.

A file holds rows, each with what it was measured on (`measured`: commit, processor, cores, torch). A
row replaces the one with the same key that was measured on the same processor, so one case can be
measured again alone. `git diff docs/results` shows what has changed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs/results"

Row = dict[str, Any]


def record(path: Path, rows: Iterable[Row], *key: str) -> None:
    """Write the rows into a file. key: the fields that say what a row is about."""
    known: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for row in rows:
        same = [one for one in known if _about(one, key) == _about(row, key)]
        place = known.index(same[0]) if same else len(known)
        known = [one for one in known if one not in same]
        known.insert(place, row)
    write_rows(path, known)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a JSON list with one row on each line, in place of what the file held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[{lines}]\n", encoding="utf-8")


def rounded(values: Iterable[float]) -> list[float]:
    """Returns as they are recorded, with two digits."""
    return [round(float(one), 2) for one in values]


def measured(commit: str = "") -> Mapping[str, Any]:
    """This machine, with the commit that is checked out unless another one is given."""
    import torch

    from agents.devices import processor_name

    return {
        "commit": commit or _checked_out(),
        "processor": f"{processor_name('cpu')}, {torch.backends.cpu.get_cpu_capability()}",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }


def _about(row: Row, key: tuple[str, ...]) -> tuple[Any, ...]:
    return (*(row.get(field) for field in key), row["measured"]["processor"])


def _checked_out() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    ended = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    return ended.stdout.strip()
