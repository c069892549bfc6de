"""What differs between two sets of parameters, field by field, for one line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(
    there: Mapping[str, Any], here: Mapping[str, Any], *, left: str = "there", right: str = "here"
) -> str:
    """`seed: 0 there, 1 here; …` over nested mappings; empty if nothing differs."""
    return "; ".join(
        f"{name}: {_shown(a)} {left}, {_shown(b)} {right}" for name, a, b in changes(there, here)
    )


def changes(there: Any, here: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(dotted name, there, here) of every leaf that differs; `...` stands for a missing one."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        names = [*there, *(name for name in here if name not in there)]
        return [
            change
            for name in names
            for change in changes(
                there.get(name, ...), here.get(name, ...), f"{path}.{name}" if path else str(name)
            )
        ]
    return [] if there == here and type(there) is type(here) else [(path, there, here)]


def _shown(value: Any) -> str:
    return "absent" if value is ... else repr(value)
