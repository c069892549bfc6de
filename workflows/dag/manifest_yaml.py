"""Writes a manifest as YAML that people and Go's YAML reader understand alike, and reads it again."""

from __future__ import annotations

import re
from typing import Any

import yaml

from config import strict_yaml

Manifest = dict[str, Any]

# Go reads a plain 3e5, 0x10 or 1_000 as a number and `on` as true, PyYAML does not: such a text
# must be quoted whoever reads it.
NUMBERS = r"[-+.]?[0-9][0-9a-fox_.:+-]*|[-+]?\.(inf|nan)|nan|inf"
WORDS = "y|yes|n|no|on|off|true|false|null|~"
AMBIGUOUS = re.compile(f"{NUMBERS}|{WORDS}|", re.IGNORECASE)  # and the empty text


def dump(manifest: Manifest) -> str:
    """YAML in reading order: names first, then plain values, then nested ones."""
    return strict_yaml.dump(_in_reading_order(manifest), _Dumper, width=140)


def load(text: str) -> Manifest:
    """Parse a manifest that this project rendered. `workflows.local` reads those of others."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loaded: Manifest = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    return loaded


FIRST = (
    "apiVersion", "kind", "metadata", "name", "value", "description", "entrypoint", "onExit",
    "template", "depends", "when", "withParam", "arguments", "inputs", "outputs", "image", "command",
    "args",
)  # fmt: skip
LAST = ("container", "dag", "spec", "templates")


def _in_reading_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_reading_order(value[key]) for key in sorted(value, key=_rank)}
    if isinstance(value, list):
        return [_in_reading_order(item) for item in value]
    return value


def _rank(key: str) -> tuple[int, int, str]:
    if key in FIRST:
        return 0, FIRST.index(key), key
    return (2, LAST.index(key), key) if key in LAST else (1, 0, key)


class _Dumper(strict_yaml.StrictDumper):
    """Indents lists under their key, and quotes every text that a reader could take for another
    type.
    """

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def _sequence(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    on_one_line = all(isinstance(item, str) for item in items) and sum(map(len, items)) < 100
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=on_one_line)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if AMBIGUOUS.fullmatch(text) or "{" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _sequence)
