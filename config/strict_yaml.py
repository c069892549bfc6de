"""YAML restricted to what JSON can express, so that people and the program read the same thing.

Refused are object tags, anchors and aliases, duplicate keys, keys that are not text, and documents
that are too large or too deep. A plain scalar is null, true, false, a decimal integer or a decimal
number exactly when JSON or YAML 1.2's core schema says so (`1e-3` is a number). Everything else is
text: `no`, `010` and `12:30:45` stay what they look like, and the declared type of the parameter
decides whether that is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from config.errors import BadInput

LARGEST_BYTES = 256 * 1024
DEEPEST = 32

SCALARS = {
    "tag:yaml.org,2002:null": (re.compile(r"^(?:null|~|)$"), ["n", "~", ""]),
    "tag:yaml.org,2002:bool": (re.compile(r"^(?:true|false)$"), ["t", "f"]),
    "tag:yaml.org,2002:int": (re.compile(r"^-?(?:0|[1-9][0-9]*)$"), list("-0123456789")),
    "tag:yaml.org,2002:float": (
        re.compile(r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"),
        list("-0123456789"),
    ),
}


def load(text: str | bytes, source: str, loader: type[StrictLoader] | None = None) -> Any:
    """Parse the one document in `text`; empty ones may stand beside it. source: its name in messages.
    loader: a stricter one. Raises `BadInput`.
    """
    size = len(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    if size > LARGEST_BYTES:
        raise BadInput(f"{source}: {size} bytes; allowed: {LARGEST_BYTES}")
    try:
        documents = list(yaml.load_all(text, Loader=loader or StrictLoader))
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: {_one_line(error)}") from None
    except ValueError as error:
        # Integers with more digits than Python reads, and bytes that are no UTF-8.
        raise BadInput(f"{source}: {error}") from None
    # A separator at the end, as kubectl and helm write it, begins a document that is null.
    filled = [document for document in documents if document is not None]
    if len(filled) > 1:
        raise BadInput(f"{source}: {len(filled)} documents; allowed: one")
    return filled[0] if filled else None


def load_mapping(path: Path, loader: type[StrictLoader] | None = None) -> dict[str, Any]:
    """Parse the mapping in a file. At most the size limit is read. loader: as for `load`. Raises
    `BadInput`.
    """
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    document = load(text, str(path), loader)
    if not isinstance(document, dict):
        raise BadInput(f"{path}: a mapping is expected, this is {type(document).__name__}")
    return document


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, of a value in a document that `load` accepts: that of its key, or of its
    beginning in a list. path: the keys and indices that lead to it.
    """
    roots = yaml.compose_all(text, Loader=StrictLoader)
    node = next((root for root in roots if root.tag != "tag:yaml.org,2002:null"), None)
    line = 0
    for part in path:
        if isinstance(node, yaml.MappingNode):
            key, node = next(pair for pair in node.value if pair[0].value == part)
            line = key.start_mark.line
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line
    return line + 1


class StrictLoader(yaml.SafeLoader):
    """A `yaml.SafeLoader` that refuses what the module's docstring lists."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases, anchors, tags and deep nesting before a node exists."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.MarkedYAMLError(
                problem="anchors and aliases are not allowed", problem_mark=event.start_mark
            )
        if getattr(event, "tag", None):
            raise yaml.MarkedYAMLError(
                problem=f"tag {event.tag!r} is not allowed", problem_mark=event.start_mark
            )
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {DEEPEST}", problem_mark=event.start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuse duplicate keys, and keys that are not text."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is no text: quote it", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        """Accept decimal integers only."""
        return int(node.value)

    def construct_yaml_float(self, node: Any) -> float:
        """Accept finite decimal numbers, with or without an exponent."""
        number = float(node.value)
        if abs(number) == float("inf"):
            raise yaml.MarkedYAMLError(
                problem=f"{node.value} is too large", problem_mark=node.start_mark
            )
        return number


StrictLoader.yaml_implicit_resolvers = {}
for _tag, (_pattern, _first) in SCALARS.items():
    StrictLoader.add_implicit_resolver(_tag, _pattern, _first)
StrictLoader.add_constructor("tag:yaml.org,2002:int", StrictLoader.construct_yaml_int)
StrictLoader.add_constructor("tag:yaml.org,2002:float", StrictLoader.construct_yaml_float)


class StrictDumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or the core schema would read as another type, and writes no
    aliases.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Write a shared object twice instead of using an anchor."""
        return True

    def represent_finite(self, number: float) -> yaml.ScalarNode:
        """Write a number so that `load` reads it back exactly. Raises `ValueError` for a number
        that is not finite.
        """
        if not math.isfinite(number):
            raise ValueError(f"{number} cannot be written")
        return self.represent_float(number)


for _tag, (_pattern, _first) in SCALARS.items():
    StrictDumper.add_implicit_resolver(_tag, _pattern, _first)
StrictDumper.add_representer(float, StrictDumper.represent_finite)


def dump(document: Any, dumper: type[StrictDumper] = StrictDumper, *, width: int = 120) -> str:
    """Write a document so that `load` reads it back: texts that look like another type are quoted."""
    return yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=width)


def _one_line(error: yaml.YAMLError) -> str:
    problem = (
        getattr(error, "problem", None)
        or getattr(error, "reason", None)
        or str(error).splitlines()[0]
    )
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
