"""`-p name=value` and Argo's JSON become one mapping of texts; nothing is lost silently."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import BadInput
from config.given import from_argo, from_assignments, together


def test_assignments() -> None:
    assert from_assignments(["game=pong", "epochs=", "outdir=a=b"]) == {
        "game": "pong",
        "epochs": "",
        "outdir": "a=b",
    }
    assert from_assignments([]) == {}


@pytest.mark.parametrize("assignment", ["game", "", "=pong", "="])
def test_what_is_no_assignment_is_refused(assignment: str) -> None:
    with pytest.raises(BadInput, match=r"^cannot read -p .*; allowed: -p name=value$"):
        from_assignments([assignment])


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^parameter 'runs' was given twice: '1' and '2'$"):
        from_assignments(["runs=1", "game=pong", "runs=2"])
    with pytest.raises(BadInput, match="given twice"):
        from_argo('[{"name": "runs", "value": "1"}, {"name": "runs", "value": "1"}]')


def test_what_two_sources_say_must_be_the_same() -> None:
    """What a DAG decides, and what it is given as JSON."""
    decided = {"outdir": "/storage/a", "gpus": "1"}
    both = together(decided, {"gpus": "1", "runs": "3"})
    assert both == {"outdir": "/storage/a", "gpus": "1", "runs": "3"}
    with pytest.raises(BadInput, match=r"^parameter 'gpus' was given twice: '1' and '0'$"):
        together(decided, {"gpus": "0"})


def test_argo_json_with_descriptions_and_missing_values() -> None:
    text = '[{"name":"game","value":"pong","description":"what to learn"},{"name":"epochs"},{"name":"typo","value":"1"}]'
    assert from_argo(text) == {"game": "pong", "epochs": "", "typo": "1"}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "{}", "3", "null", '["game"]', '[{"value": "1"}]', '[{"name": 3, "value": "1"}]', '[{"name": "runs", "value": 3}]',
        '[{"name": "runs", "value": null}]', '[{"name": "runs", "value": ["1"]}]', '[{"name": "a", "name": "b", "value": "1"}]',
        "[" * 100_000, '[{"name": "a", "value": "' + "x" * 300_000 + '"}]',
    ],
)  # fmt: skip
def test_other_json_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadInput) as refusal:
        from_argo(text)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 300


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_argo_json_round_trip(values: dict[str, str]) -> None:
    assert (
        from_argo(json.dumps([{"name": name, "value": value} for name, value in values.items()]))
        == values
    )
