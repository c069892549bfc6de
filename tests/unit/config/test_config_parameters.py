"""A declared parameter reads text by its type and refuses everything else in one line."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import BadInput
from config.parameters import LONGEST_VALUE, declared, parameter, refuse_hostile, to_text


@dataclass(frozen=True, kw_only=True)
class Sample:
    count: int = parameter(3, low=-5, high=256, help="a count", unit="things")
    rate: float = parameter(0.5, low=0, high=1, help="a rate")
    threshold: float | None = parameter(None, optional=True, help="a threshold")
    switch: bool = parameter(False, help="a switch", identity=False)
    policy: str = parameter("greedy", choices=("greedy", "sample"), help="a choice")
    label: str = parameter("x", pattern="[a-z]+", form="small letters", help="a label")
    sizes: tuple[int, ...] = parameter((64, 64), low=1, high=512, help="sizes")
    goal: int | None = parameter(
        None, low=1, high=10**9, optional=True, exponents=True, help="a goal"
    )


def parse(name: str, value: object) -> Any:
    return declared(Sample)[name].parse(value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "0", 0), ("count", "256", 256), ("count", "-5", -5), ("rate", "1e-3", 0.001), ("rate", "0", 0.0), ("rate", "1", 1.0),
        ("rate", "2.5E-4", 2.5e-4), ("threshold", "-90", -90.0), ("threshold", "", None), ("switch", "true", True),
        ("switch", "false", False), ("policy", "sample", "sample"), ("label", "abc", "abc"), ("sizes", "64", (64,)),
        ("sizes", "400,300", (400, 300)), ("goal", "1e6", 10**6), ("goal", "1.25E3", 1250), ("goal", "7", 7),
        ("goal", "1e9", 10**9), ("goal", "30e-1", 3), ("goal", "", None),
    ],
)  # fmt: skip
def test_text_becomes_a_value_of_the_declared_type(name: str, text: str, value: object) -> None:
    parsed = parse(name, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *[("count", text) for text in
          ("257", "-6", "1e3", "true", "nan", "inf", "10.0", "+1", " 1", "1 ", "010", "0x10", "1_000", "٣", "²", "one", "--1", "9" * 40)],
        *[("rate", text) for text in
          ("1.0000001", "-0.1", "nan", "NaN", "inf", "-inf", "Infinity", "1e999", "true", "1_0", ".5", "5.", "0x1p-1", "1,5", "1e", " 1")],
        *[("threshold", text) for text in ("nan", "inf", "1e400", "none", "null")],
        *[("switch", text) for text in ("True", "yes", "no", "on", "1", "0", "tru")],
        *[("policy", text) for text in ("Greedy", "greedy ", "random")],
        *[("goal", text) for text in ("1.5", "1e-3", "0e5", "-1e3", "1e10", "1e999", "1e", "e6", "1_0e3", "+1e6", "1e6 ")],
        *[("label", text) for text in ("Abc", "a b", "a;b", "a\u2028b")],
        *[("sizes", text) for text in ("0", "513", "64,", ",64", "64,,64", "64;64", "64.0", "(64,64)", "1,1,1,1,1,1,1,1,1")],
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_name_value_and_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse(name, text)
    message = str(refusal.value)
    assert repr(name) in message
    assert text[:40] in message or repr(text)[1:-1] in message
    assert "allowed" in message
    assert len(message.splitlines()) == 1


def test_a_message_gives_the_range_the_choices_or_the_form() -> None:
    allowed = {name: one.allowed for name, one in declared(Sample).items()}
    assert allowed == {
        "count": "an integer from -5 to 256",
        "rate": "a number from 0 to 1",
        "threshold": "a number, or empty",
        "switch": "true or false",
        "policy": "greedy or sample",
        "label": "small letters",
        "sizes": "1 to 8 integers from 1 to 512 with commas between",
        "goal": "a whole number such as 1e6 from 1 to 1000000000, or empty",
    }


@pytest.mark.parametrize("name", ["count", "rate", "switch", "policy", "label", "sizes"])
def test_a_required_value_cannot_be_empty(name: str) -> None:
    with pytest.raises(BadInput, match=f"^empty value for '{name}'; allowed: "):
        parse(name, "")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("count", 7, 7),
        ("rate", 1, 1.0),
        ("rate", 0.001, 0.001),
        ("switch", True, True),
        ("sizes", [32, 32], (32, 32)),
        ("threshold", None, None),
    ],
)
def test_a_preset_may_hold_typed_values(name: str, value: object, expected: object) -> None:
    parsed = parse(name, value)
    assert parsed == expected
    assert type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", True), ("count", 1.0), ("count", 257), ("count", [1]), ("rate", False), ("rate", float("nan")), ("rate", float("inf")),
        ("switch", 1), ("switch", 0), ("sizes", [64, True]), ("sizes", [0]), ("sizes", []), ("sizes", 64), ("policy", {}), ("count", None),
    ],
)  # fmt: skip
def test_a_typed_value_of_another_type_is_refused(name: str, value: object) -> None:
    with pytest.raises(BadInput):
        parse(name, value)


@pytest.mark.parametrize("value", [False, 10, 1.5])
def test_a_number_where_text_is_declared_is_refused_with_a_hint_to_quote(value: object) -> None:
    with pytest.raises(BadInput, match=r"quote it, as in label: '"):
        parse("label", value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{{workflow.name}}", "braces"), ("{{=1+1}}", "braces"), ("a{b", "braces"), ("a}b", "braces"), ("a\nb", "control"),
        ("a\0b", "control"),         ("a\x1b[31m", "control"), ("a\x7f", "control"), ("a\u202eb", "control"), ("\udcff", "control"),
        ("a" * (LONGEST_VALUE + 1), "long"), ("$(X)", "are not allowed"), ("a$$b", "are not allowed"),  # defect B13 of docs/faults.md
    ],
)  # fmt: skip
def test_hostile_text_is_refused_whatever_the_parameter(value: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refusal:
        refuse_hostile("label", value)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 300
    with pytest.raises(BadInput, match=reason):
        parse("label", value)


@given(st.data())
def test_the_text_of_a_value_is_read_back_as_the_same_value(data: st.DataObject) -> None:
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "count": st.integers(-5, 256),
        "rate": st.floats(0, 1),
        "threshold": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "switch": st.booleans(),
        "sizes": st.lists(st.integers(1, 512), min_size=1, max_size=8).map(tuple),
    }
    name = data.draw(st.sampled_from(sorted(strategies)))
    value = data.draw(strategies[name])
    assert parse(name, to_text(value)) == value


@given(st.sampled_from([field.name for field in fields(Sample)]), st.text())
def test_any_text_is_either_read_or_refused_in_one_short_line(name: str, text: str) -> None:
    try:
        value = parse(name, text)
    except BadInput as refusal:
        assert str(refusal).isprintable()
        assert len(str(refusal)) < 300
    else:
        assert parse(name, to_text(value)) == value


def test_a_field_of_an_unknown_type_is_a_bug_found_at_once() -> None:
    wrong = make_dataclass("wrong", [("names", list[str], parameter(None, help="not supported"))])
    with pytest.raises(TypeError, match="cannot be declared"):
        declared(wrong)
