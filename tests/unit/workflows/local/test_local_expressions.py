"""`{{= }}`, `when`, `depends` and textual replacement, against results that Argo's own libraries
gave (docs/argo.md)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.local.errors import ConditionError, MissingTagError, TagError, WorkflowError
from workflows.local.language.expression import evaluate
from workflows.local.language.expression_parser import ExpressionError
from workflows.local.language.go_values import parameter_text, quote, to_json
from workflows.local.language.govaluate import should_execute
from workflows.local.language.quantities import duration_s, quantity
from workflows.local.language.tags import STRICT_ALL, STRICT_TASKS, replace
from workflows.local.spec.depends import is_satisfied, logic_of, results_of
from workflows.local.spec.loops import expand_task, node_name, sequence

VARIABLES: dict[str, Any] = {
    "a": "xy",
    "e": 2,
    "c": True,
    "x": {"y": "1", "n": None},
    "list": [1, 2, 3],
    "tasks": {"plot-average": {"status": "Succeeded"}},
    "lastRetry": {"exitCode": "2", "status": "Failed"},
}


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ('asFloat("nan") > 30', False),
        ('asFloat("1e-4")', 0.0001),
        ('asFloat("1_000")', 1000.0),
        ('asInt("010")', 10),
        ('asInt("-1")', -1),
        ("3 / 2", 1.5),
        ("2 ** 3", 8.0),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("2 ** 3 ** 2", 512.0),
        ("1 + 2 * 3", 7),
        ("x.y == 1", False),
        ("x.missing == 1", False),
        ('x.missing ?? "d"', "d"),
        ("nil ?? 3", 3),
        ("x?.n?.deeper", None),
        ("tasks['plot-average'].status", "Succeeded"),
        ("e in [2, 3]", True),
        ("e not in [2, 3]", False),
        ("not (e == 2)", False),
        ("!(e == 2)", False),
        ("a matches 'x|y'", True),
        ('a startsWith "x"', True),
        ('a endsWith "x"', False),
        ('a contains "y"', True),
        ('c ? "yes" : "no"', "yes"),
        ('toJson({"k": [1, "<"]})', '{"k":[1,"\\u003c"]}'),
        ("len(list)", 3),
        ("filter(list, # > 1)", [2, 3]),
        ("filter(list, {# > 1})", [2, 3]),
        ("map(list, # * 2)", [2, 4, 6]),
        ("any(list, # == 3)", True),
        ("1..3", [1, 2, 3]),
        ("list[-1]", 3),
        ("list[1:]", [2, 3]),
        ('"a" + "b"', "ab"),
        ("true && !false", True),
        ("c and not c or c", True),
        ('sprig.upper("x")', "X"),
        ("""jsonpath('{"a":[5]}', '$.a[0]')""", 5),
        (r'"tab\t\u00e9"', "tab\té"),
        ("`raw\\n`", "raw\\n"),
        ("1 == 1.0", True),
        ("0x10 + 1_000", 1016),
        ("lastRetry.status == 'Error' || !(asInt(lastRetry.exitCode) in [2, 3])", False),
        ("1 / 0 > 5", True),
    ],
)
def test_expressions(source: str, result: Any) -> None:
    value = evaluate(source, VARIABLES)
    assert (type(value), value) == (type(result), result)


@pytest.mark.parametrize(
    "source",
    [
        'asFloat("")',
        'asInt("1e3")',
        'asInt("3.5")',
        'asInt(" 3")',
        'asFloat("0x10")',
        '"1" == 1',
        "a == 1",
        "tasks.plot-average",
        "nosuch.thing > 1",
        "a + 1",
        "c + 1",
        "1 % 0",
        "x.n.deeper",
        "(((",
        '"open',
        "1 +",
        "1 2",
        "e @ 2",
        "len(1)",
        "asInt()",
        "nosuch(1)",
        "1..10000000",
        "list[9]",
        '"a" ? 1 : 2',
        "(" * 5000,
        "a matches '('",
        "#",
    ],
)
def test_expressions_that_expr_refuses(source: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(source, VARIABLES)


def test_an_error_shows_the_place() -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate("e == nosuch", VARIABLES)
    assert str(error.value) == "unknown name nosuch (1:6)\n | e == nosuch\n | .....^"


@pytest.mark.parametrize(
    ("when", "result"),
    [
        ('"true" == "true"', True),
        ("true == true", True),
        ("foo == foo", True),
        ("a in (a, b)", True),
        ("c in (a, b)", False),
        ("a in (a)", True),
        ('true == "true"', False),
        ('"1" == 1', False),
        ('"10" > "9"', False),
        ("10 > 9", True),
        ('"2024-01-01" == "2024-01-01T00:00:00Z"', True),
        ('"" == ""', True),
        ("!true", False),
        ('b =~ "^b"', True),
        ('b !~ "^b"', False),
        ("5 % 2 == 1", True),
        ("true ? false : true", False),
        ('"a" == "a" && 3 > 2', True),
        ("1 == 2 || 2 == 2", True),
        ('"x" != "y"', True),
        ("'a' == \"a\"", True),
        ("-1 < 0", True),
        ("1 + 2 * 3 == 7", True),
        ('"False" == "false"', False),
        ("0x10 == 16", True),
        ("", True),
    ],
)
def test_when(when: str, result: bool) -> None:
    assert should_execute(when) is result


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("foo.bar == foo.bar", "Unable to access unexported field 'bar' in token 'foo.bar'"),
        ("/x == /x", "Cannot transition token types from UNKNOWN [<nil>] to MODIFIER [/]"),
        ("a-b == a-b", "Value 'a' cannot be used with the modifier '-', it is not a number"),
        ("1e-4 < 1", "Cannot transition token types from NUMERIC [1] to VARIABLE [e]"),
        ("1_000 > 1", "hint: try wrapping"),
        ("nan > 3", "Value 'nan' cannot be used with the comparator '>', it is not a number"),
        ("inf > 3", "Value 'inf' cannot be used with the comparator '>', it is not a number"),
        ('"it\'s" == "x"', "Unclosed string literal"),
        ('"yes"', "Expected boolean evaluation"),
        ("(true", "Unbalanced parenthesis"),
        ("true &&", "Unexpected end of expression"),
        ("f(1) == 1", "Undefined function f"),
        ("{{x}} == 1", "Invalid token"),
        ("(" * 3000 + "true" + ")" * 3000, "nested too deeply"),
    ],
)
def test_when_errors(when: str, message: str) -> None:
    with pytest.raises(ConditionError) as error:
        should_execute(when)
    assert message in str(error.value)


@given(st.text(alphabet="ab12 ()!=<>&|'\"+-*/%?:,.[]{}#\\{}", max_size=30))
def test_hostile_conditions_and_expressions_only_raise_their_own_error(text: str) -> None:
    for evaluated in (should_execute, lambda source: evaluate(source, {"a": "b"})):
        with contextlib.suppress(WorkflowError):
            evaluated(text)


# --- replacement
# -----------------------------------------------------------------------------------------------------------------


def test_a_value_is_scanned_again_by_the_next_pass_only() -> None:
    values = {"p": "{{workflow.name}}", "q": "{{=1+1}}", "workflow.name": "wf"}
    once = replace(["{{p}}", "{{q}}", "x{{ workflow.name }}y"], values)
    assert once == ["{{workflow.name}}", "{{=1+1}}", "xwfy"]
    assert replace(once, values) == ["wf", "2", "xwfy"]


@pytest.mark.parametrize(
    "value",
    [
        'a"b\\c\'d\n{"e":[1]}é $HOME `x` ${Y}',
        '"},{"evil":"1',
        "</script>",
        "\t",
        "漢字 🎲",
        "{{"[:1] + "x",
    ],
)
def test_values_are_data_never_structure(value: str) -> None:
    assert replace({"v": "{{p}}"}, {"p": value}) == {"v": value}


def test_a_control_character_is_an_error_as_in_argo() -> None:
    with pytest.raises(TagError, match="invalid JSON"):
        replace("{{p}}", {"p": "bell\a"})


def test_a_tag_without_end_is_an_error() -> None:
    with pytest.raises(TagError, match="Cannot find end tag"):
        replace("{{p", {"p": "1"})


def test_nested_tags_resolve_once() -> None:
    values = {"b": "x", "a.x": "found"}
    once = replace("{{a.{{b}}}}", values)
    assert (once, replace(once, values)) == ("{{a.x}}", "found")


def test_expressions_write_text_bare_and_everything_else_as_json() -> None:
    written = replace(
        [
            "{{=[1,2]}}",
            "{{=3/2}}",
            '{{="a"}}',
            "{{=1==1}}",
            "{{=4.0}}",
            "{{=1e21}}",
            '{{={"a":"<"}}}',
        ],
        {},
    )
    assert written[:6] == ["[1,2]", "1.5", "a", "true", "4", "1e+21"]


@pytest.mark.parametrize(
    "tag",
    [
        "{{=item}}",
        "{{=retries + 1}}",
        "{{=lastRetry.exitCode}}",
        "{{=workflow.status}}",
        "{{=tasks.later.status}}",
    ],
)
def test_expressions_over_what_is_not_known_yet_wait(tag: str) -> None:
    assert replace(tag, {"a": "1"}) == tag


def test_strict_tags_must_have_a_value() -> None:
    assert (
        replace("{{item}} {{tasks.a.status}}", {"tasks.a.status": "S"}, strict=STRICT_TASKS)
        == "{{item}} S"
    )
    for text, strict in (
        ("{{tasks.a.status}}", STRICT_TASKS),
        ("{{=tasks.a.status}}", STRICT_TASKS),
        ("{{item}}", STRICT_ALL),
    ):
        with pytest.raises(MissingTagError):
            replace(text, {"b": "1"}, strict=strict)


def test_an_absent_output_is_an_error_unless_guarded() -> None:
    values = {"tasks.a.outputs.parameters.o": None}
    with pytest.raises(TagError, match="absent optional"):
        replace("x{{tasks.a.outputs.parameters.o}}", values)
    assert (
        replace("{{=tasks.a.outputs.parameters.o ?? 'fallback'}}", values, strict=STRICT_TASKS)
        == "fallback"
    )


@given(st.text(max_size=40))
def test_any_text_survives_or_raises_a_workflow_error(text: str) -> None:
    try:
        assert replace(["{{p}}"], {"p": text}) == [text]
    except TagError:
        assert any(not character.isprintable() for character in text)


# --- depends, loops, numbers
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depends", "phases", "result"),
    [
        ("a", {"a": "Skipped"}, True),
        ("a", {"a": "Omitted"}, False),
        ("a.Succeeded", {"a": "Skipped"}, False),
        ("a.Failed || a.Errored", {"a": "Error"}, True),
        ("!a.Succeeded && b", {"a": "Failed", "b": "Succeeded"}, True),
        ("(a-b.Failed || c.Failed) && c", {"a-b": "Failed", "c": "Succeeded"}, True),
        ("a.Omitted", {"a": "Omitted"}, True),
    ],
)
def test_depends(depends: str, phases: dict[str, str], result: bool) -> None:
    logic = logic_of({"depends": depends}, lambda name: {})
    assert (
        is_satisfied(logic, {name: results_of(phase, []) for name, phase in phases.items()})
        is result
    )


def test_dependencies_accept_what_continue_on_tolerates() -> None:
    tasks = {"a": {"continueOn": {"failed": True}}, "b": {}}
    logic = logic_of({"dependencies": ["a", "b"]}, lambda name: tasks[name])
    assert is_satisfied(logic, {"a": results_of("Failed", []), "b": results_of("Succeeded", [])})
    assert not is_satisfied(logic, {"a": results_of("Error", []), "b": results_of("Succeeded", [])})


def test_loop_results() -> None:
    assert results_of("Failed", ["Succeeded", "Failed"])["AnySucceeded"]
    assert not results_of("Error", ["Failed", "Error"])["AllFailed"]


@pytest.mark.parametrize(
    ("fields", "items"),
    [
        ({"count": "0"}, []),
        ({"count": "-1"}, ["0", "-1", "-2"]),
        ({"start": "3", "end": "1"}, ["3", "2", "1"]),
        ({"count": 2, "start": 5}, ["5", "6"]),
        ({"count": "1", "format": "r%02d"}, ["r00"]),
        ({"end": "1"}, ["0", "1"]),
        ({"start": "10", "end": "10", "format": "%x"}, ["a"]),
    ],
)
def test_sequences(fields: dict[str, Any], items: list[str]) -> None:
    assert sequence(fields) == items


@pytest.mark.parametrize(
    "fields",
    [{"count": "1.5"}, {"count": "x"}, {}, {"count": "99999999"}, {"count": "1", "format": "%s"}],
)
def test_sequences_that_are_wrong(fields: dict[str, Any]) -> None:
    with pytest.raises(WorkflowError):
        sequence(fields)


def test_items_keep_their_text() -> None:
    task = {
        "name": "l",
        "template": "t",
        "withItems": [1, 1.5, True, "a", {"k": "(v)"}],
        "arguments": {"parameters": [{"name": "v", "value": "{{item}}"}]},
    }
    expanded = expand_task(task, {})
    assert [item["arguments"]["parameters"][0]["value"] for item in expanded] == [
        "1",
        "1.5",
        "true",
        "a",
        '{"k":"(v)"}',
    ]
    assert [item["name"] for item in expanded] == [
        "l(0:1)",
        "l(1:1.5)",
        "l(2:true)",
        "l(3:a)",
        "l(4:k:v)",
    ]
    assert node_name("l", 0, {"b": 1, "a": None}) == "l(0:a:null,b:1)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e5, "100000"),
        (0.10, "0.1"),
        (True, "true"),
        (1e-4, "0.0001"),
        (3, "3"),
        ("3e5", "3e5"),
        (1e21, "1" + "0" * 21),
    ],
)
def test_parameters_are_text_without_exponents(value: Any, text: str) -> None:
    assert parameter_text(value) == text


def test_go_json_and_quoting() -> None:
    assert (
        to_json({"b": 1.0, "a": ["<", None, 1e21, 1e-7]})
        == '{"a":["\\u003c",null,1e+21,1e-7],"b":1}'
    )
    assert quote('a"\\\n\x01\x7f\u200bé') == r"a\"\\\n\x01\x7f\u200bé"


def test_quantities_and_durations() -> None:
    assert [quantity(text) for text in ("500m", "2Gi", "1.5", 2, "1e3")] == [
        0.5,
        2 * 1024**3,
        1.5,
        2,
        1000,
    ]
    assert [duration_s(text) for text in ("10", "10s", "1h30m", "1d", "500ms", 5)] == [
        10,
        10,
        5400,
        86400,
        0.5,
        5,
    ]
    for wrong in ("one", "", "1s2"):
        with pytest.raises(WorkflowError):
            duration_s(wrong)
