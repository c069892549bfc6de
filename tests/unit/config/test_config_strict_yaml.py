"""YAML that a reader and the machine read alike, or not at all."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.errors import BadInput
from config.strict_yaml import DEEPEST, LARGEST_BYTES, dump, load, load_mapping

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("2.5E-4", 2.5e-4), ("no", "no"), ("on", "on"), ("True", "True"), ("010", "010"), ("0x10", "0x10"),
        ("12:30:45", "12:30:45"), ("1_000", "1_000"), ("2026-01-01", "2026-01-01"), (".5", ".5"), (".nan", ".nan"), (".inf", ".inf"),
        ("=", "="), ("<<: 1", {"<<": 1}), ("true", True), ("null", None), ("", None), ("-7", -7), ("'1'", "1"), ("1.10", 1.1),
    ],
)  # fmt: skip
def test_a_scalar_is_what_it_looks_like(text: str, value: object) -> None:
    loaded = load(text, "test")
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize("text", ["1e-3", "no", "010", "12:30:45"])
def test_without_the_strict_loader_these_surprise(text: str) -> None:
    assert yaml.safe_load(text) != load(text, "test")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' stands twice"),
        ("{a: {b: 1, b: 2}}", "key 'b' stands twice"),
        ("!!python/object/apply:os.system ['true']", "tag .* is not allowed"),
        ("a: !!binary aGk=", "tag .* is not allowed"),
        ("a: !own 1", "tag .* is not allowed"),
        ("a: &x 1\nb: *x", "anchors and aliases"),
        (BOMB, "anchors and aliases"),
        ("&a [*a]", "anchors and aliases"),
        ("1: 2", "key '1' is no text"),
        ("true: 2", "key 'true' is no text"),
        ("? [a]\n: 1", "is no text"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested deeper"),
        ("[" * 50_000, "nested deeper"),
        ("a: [1", "line "),
        ("a: 1\n---\nb: 2", "document"),
        ("a: \0", "special characters"),
        ("1e999", "too large"),
        ("9" * 5000, "integer string conversion"),
        ("a: " + "x" * LARGEST_BYTES, "allowed: 262144"),
    ],
)
def test_hostile_or_mistaken_documents_are_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refusal:
        load(text, "some.yaml")
    assert str(refusal.value).startswith("some.yaml: ")
    assert len(str(refusal.value).splitlines()) == 1


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(BadInput):
        load(b"a: \xff\xfe\xfa", "some.yaml")


def test_a_large_document_is_refused_before_it_is_parsed() -> None:
    start = time.monotonic()
    with pytest.raises(BadInput):
        load("- a\n" * 10_000_000, "some.yaml")
    assert time.monotonic() - start < 1


def test_a_file_must_exist_and_hold_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        load_mapping(tmp_path / "missing.yaml")
    with pytest.raises(BadInput, match="cannot read"):
        load_mapping(tmp_path)
    listed = tmp_path / "list.yaml"
    listed.write_text("[1, 2]")
    with pytest.raises(BadInput, match="a mapping is expected, this is list"):
        load_mapping(listed)
    large = tmp_path / "large.yaml"
    large.write_text("a: 1\n" + "#" * LARGEST_BYTES)
    with pytest.raises(BadInput, match="allowed: 262144"):
        load_mapping(large)


PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | PRINTABLE
)
SCALARS |= st.sampled_from(
    [
        "no",
        "1e-3",
        "010",
        "12:30",
        "",
        "~",
        "null",
        "true",
        "-",
        "1",
        "0.5",
        "=",
        "<<",
        "2026-01-01",
        "a: b",
        "# c",
    ]
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(PRINTABLE, inner), max_leaves=20
)


@given(DOCUMENTS)
def test_what_is_written_is_read_back_exactly_also_by_a_common_reader(document: object) -> None:
    text = dump(document)
    assert load(text, "test") == document
    assert yaml.safe_load(text) == document


def test_a_shared_object_is_written_twice() -> None:
    shared = [1]
    assert load(dump({"a": shared, "b": shared}), "test") == {"a": [1], "b": [1]}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_no_document_can_hold_is_never_written(number: float) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        dump({"a": number})
