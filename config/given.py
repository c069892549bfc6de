"""Parameters as a person gave them, by `-p name=value` or by Argo's `{{workflow.parameters.json}}`,
as one mapping of texts.

`config.resolve` checks names and values. This module only detects what a mapping cannot show: a
parameter that was given twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from config.errors import BadInput, shown
from config.parameters import to_text

LARGEST_CHARACTERS = 256 * 1024
REPLACING = "parameters"
"""The input of the experiment's template through which its parameters come."""


def from_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Parse `["game=pong", "runs=3"]` to `{"game": "pong", "runs": "3"}`. Raises `BadInput`."""
    pairs = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise BadInput(f"cannot read -p {shown(assignment)}; allowed: -p name=value")
        pairs.append((name, value))
    return _once(pairs)


def over_presets(presets: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Overlay given parameters on the typed values of a presets file, as texts. An empty given
    value means the file's value.
    """
    texts = {name: to_text(value) for name, value in presets.items()}
    return texts | {name: text for name, text in given.items() if text or name not in texts}


def refuse_replaced(text: str) -> None:
    """Raise `BadInput` if a workflow parameter has the name of the input that passes all parameters
    on: Argo would silently replace the whole input by that parameter.
    """
    if REPLACING in from_argo(text, "--workflow-parameters"):
        raise BadInput(
            f"a workflow cannot have the parameter {REPLACING!r}, which replaces all others; "
            "allowed: each parameter of the experiment by its own name, -p name=value"
        )


def from_argo(text: str, option: str = "--parameters") -> dict[str, str]:
    """Parse `[{"name": "game", "value": "pong"}, …]`, which holds every parameter of the workflow,
    also unknown ones.

    Argo writes numbers and booleans as texts, so every other type is refused. A parameter without a
    value is empty. Raises `BadInput`, which names the option.
    """
    if len(text) > LARGEST_CHARACTERS:
        raise BadInput(f"{option}: {len(text)} characters; allowed: {LARGEST_CHARACTERS}")
    try:
        entries = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        # ValueError is more than bad JSON: Python refuses integers of more than 4300 digits.
        raise BadInput(f"{option} is no JSON: {error}") from None
    if not isinstance(entries, list):
        raise BadInput(f"{option} cannot be {shown(entries)}; allowed: a list of names and values")
    return _once([_pair(entry, option) for entry in entries])


def together(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Merge parameters from two sources. Raises `BadInput` if both name a parameter with different
    values.
    """
    given = dict(one)
    for name, value in other.items():
        if given.setdefault(name, value) != value:
            raise _given_twice(name, given[name], value)
    return given


def _pair(entry: Any, option: str) -> tuple[str, str]:
    name, value = (
        (entry.get("name"), entry.get("value", "")) if isinstance(entry, dict) else (None, None)
    )
    if not isinstance(name, str) or not isinstance(value, str):
        raise BadInput(
            f"{option}: cannot read {shown(entry)}; allowed: a name and a value, both text"
        )
    return name, value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            raise _given_twice(name, seen[name], value)
        seen[name] = value
    return seen


def _given_twice(name: str, one: Any, other: Any) -> BadInput:
    return BadInput(f"parameter {shown(name)} was given twice: {shown(one)} and {shown(other)}")
