"""Values of a YAML document that know their line."""

from __future__ import annotations

import pytest

from config.errors import BadInput
from config.located import Located
from config.strict_yaml import line_of

DOCUMENT = """\
---
first: 1
second:
  - a
  - {b: 2,
     c: [3,
         4]}
third: text
---
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("first",), 2),
        (("second",), 3),
        (("second", 0), 4),
        (("second", 1), 5),
        (("second", 1, "b"), 5),
        (("second", 1, "c"), 6),
        (("second", 1, "c", 1), 7),
        (("third",), 8),
    ],
)
def test_the_line_is_that_of_the_key_or_of_the_element(
    path: tuple[str | int, ...], line: int
) -> None:
    assert line_of(DOCUMENT, path) == line


def test_an_empty_document_has_one_line() -> None:
    assert line_of("", ()) == 1


def at(*path: str | int) -> Located:
    found = Located.of(DOCUMENT, "some.yaml")
    for part in path:
        found = found.below(part)
    return found


def test_a_refusal_names_source_and_line() -> None:
    assert str(at("second", 1, "c").refused("too long")) == "some.yaml: line 6: too long"


def test_errors_that_are_raised_inside_get_source_and_line() -> None:
    with pytest.raises(BadInput, match=r"^some\.yaml: line 8: not this$"), at("third").named():
        raise BadInput("not this")


def test_what_has_another_type_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="line 2: a size: a mapping is expected, this is a number"):
        at("first").entries("a size")
    with pytest.raises(BadInput, match="line 8: sizes: a list is expected, this is text"):
        at("third").elements("sizes")
    with pytest.raises(BadInput, match="line 2: a name cannot be 1; allowed: text; quote a number"):
        at("first").text("a name")
    with pytest.raises(
        BadInput, match="line 2: unknown key of a size 'first'; did you mean 'fist'"
    ):
        at().entries("a size", ["fist", "second"])
