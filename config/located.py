"""A value of a YAML document with the place where it stands, so that a refusal names the line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from config.errors import BadInput, shown, unknown
from config.strict_yaml import line_of, load

KINDS: dict[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "empty",
}
"""What a value of a document is called in messages."""


@dataclass(frozen=True)
class Located:
    """One value of a document.

    document: the whole text; source: its name in messages; path: the keys and indices that lead to
    the value.
    """

    value: Any
    document: str = field(repr=False)
    source: str
    path: tuple[str | int, ...] = ()

    @staticmethod
    def of(document: str, source: str) -> Located:
        """The root of a document. Raises `BadInput` if `config.strict_yaml.load` refuses it."""
        return Located(load(document, source), document, source)

    def below(self, part: str | int) -> Located:
        """The value under a key, or at an index."""
        return Located(self.value[part], self.document, self.source, (*self.path, part))

    def refused(self, reason: object) -> BadInput:
        """The error `study.yaml: line 3: …`."""
        return BadInput(f"{self.source}: line {line_of(self.document, self.path)}: {reason}")

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Add the source and the line to every `BadInput` that is raised inside."""
        try:
            yield
        except BadInput as error:
            raise self.refused(error) from None

    def entries(self, what: str, known: Iterable[str] | None = None) -> dict[str, Located]:
        """The values of a mapping by key. what: a name for the mapping in messages; known: all
        allowed keys. Raises `BadInput`.
        """
        if not isinstance(self.value, dict):
            raise self.refused(f"{what}: a mapping is expected, this is {self.kind}")
        for key in self.value:
            if known is not None and key not in known:
                raise self.below(key).refused(unknown(f"key of {what}", key, known))
        return {key: self.below(key) for key in self.value}

    def elements(self, what: str) -> list[Located]:
        """The elements of a list, of which there is at least one. Raises `BadInput`."""
        if not isinstance(self.value, list):
            raise self.refused(f"{what}: a list is expected, this is {self.kind}")
        if not self.value:
            raise self.refused(f"{what}: an empty list; allowed: at least one element")
        return [self.below(index) for index in range(len(self.value))]

    def text(self, what: str) -> str:
        """The value if it is a text that is not empty. Raises `BadInput`."""
        if isinstance(self.value, str) and self.value:
            return self.value
        quote = "; quote a number" if self.kind == KINDS[int] else ""
        raise self.refused(f"{what} cannot be {shown(self.value)}; allowed: text{quote}")

    @property
    def kind(self) -> str:
        """What the value is, in words."""
        return KINDS[type(self.value)]
