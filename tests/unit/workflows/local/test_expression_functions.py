"""The functions of expressions: answers from the documentation of expr-lang and sprig, worked out by
hand. What is not known is refused by its name before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workflows import local
from workflows.local import engine, templates
from workflows.local.language.expression import check_readable, evaluate
from workflows.local.language.expression_parser import ExpressionError
from workflows.local.language.functions import FUNCTIONS, PREDICATES

VARIABLES = {"game": "breakout-v4", "list": "[3,1,2]", "user": {"name": "Ann", "age": 34}}

EXPR = {
    # https://expr-lang.org/docs/language-definition
    'trim("  Hello  ")': "Hello",
    'trim("__Hello__", "_")': "Hello",
    'trimPrefix("HelloWorld", "Hello")': "World",
    'trimSuffix("HelloWorld", "World")': "Hello",
    'upper("hello")': "HELLO",
    'lower("HELLO")': "hello",
    'split("apple,orange,grape", ",")': ["apple", "orange", "grape"],
    'split("apple,orange,grape", ",", 2)': ["apple", "orange,grape"],
    'split("abc", "")': ["a", "b", "c"],
    'splitAfter("apple,orange,grape", ",")': ["apple,", "orange,", "grape"],
    'splitAfter("apple,orange,grape", ",", 2)': ["apple,", "orange,grape"],
    'replace("Hello World", "World", "Universe")': "Hello Universe",
    'repeat("Hi", 3)': "HiHiHi",
    'indexOf("apple pie", "pie")': 6,
    'lastIndexOf("apple pie apple", "apple")': 10,
    'indexOf("apple", "x")': -1,
    'hasPrefix("HelloWorld", "Hello")': True,
    'hasSuffix("HelloWorld", "World")': True,
    "max(5, 7)": 7,
    "min(5, 7)": 5,
    "max([1, 2, 3])": 3,
    "min([4, 2], 3)": 2,
    "abs(-5)": 5,
    "ceil(1.5)": 2.0,
    "floor(1.5)": 1.0,
    "round(1.5)": 2.0,
    "round(-2.5)": -3.0,
    "all([2, 4], {# % 2 == 0})": True,
    "any([1, 3], {# % 2 == 0})": False,
    "one([1, 2, 3], {# == 2})": True,
    "none([1, 3], {# == 2})": True,
    "map([1, 2], {# * 2})": [2, 4],
    "map([5, 6], #index)": [0, 1],
    "filter([1, 2, 3, 4], {# > 2})": [3, 4],
    "find([1, 2, 3, 4], # > 2)": 3,
    "findIndex([1, 2, 3, 4], # > 2)": 2,
    "findLast([1, 2, 3, 4], # > 2)": 4,
    "findLastIndex([1, 2, 3, 4], # > 2)": 3,
    "find([1], # > 2)": None,
    "findIndex([1], # > 2)": -1,
    "groupBy([1, 2, 3], # % 2)": {"1": [1, 3], "0": [2]},
    "count([1, 2, 3], # > 1)": 2,
    "count([true, false, true])": 2,
    'concat([1, 2], ["a"])': [1, 2, "a"],
    "flatten([1, 2, [3, 4], [[5]]])": [1, 2, 3, 4, 5],
    "uniq([1, 2, 2, 1])": [1, 2],
    'join(["apple", "orange"], ",")': "apple,orange",
    'join(["apple", "orange"])': "appleorange",
    "reduce([1, 2, 3], #acc + #)": 6,
    "reduce([1, 2, 3], #acc + #, 10)": 16,
    "reduce([], #acc + #, 0)": 0,
    "sum([1, 2, 3])": 6,
    "sum([1, 2, 3], # * 2)": 12,
    "mean([1, 2, 3, 4])": 2.5,
    "median([3, 1, 2])": 2.0,
    "median([4, 1, 2, 3])": 2.5,
    "first([1, 2, 3])": 1,
    "last([1, 2, 3])": 3,
    "first([])": None,
    "take([1, 2, 3], 2)": [1, 2],
    "reverse([3, 1, 4])": [4, 1, 3],
    "sort([3, 1, 4])": [1, 3, 4],
    'sort([3, 1, 4], "desc")': [4, 3, 1],
    'map(sortBy([{"a": 2}, {"a": 1}], .a), .a)': [1, 2],
    'map(sortBy([{"a": 1}, {"a": 2}], .a, "desc"), .a)': [2, 1],
    'keys({"name": "John"})': ["name"],
    'values({"name": "John"})': ["John"],
    'toPairs({"a": 1})': [["a", 1]],
    'fromPairs([["a", 1], ["b", 2]])': {"a": 1, "b": 2},
    "type(42)": "int",
    'type("hello")': "string",
    "type(4.2)": "float",
    "type([1])": "array",
    'type({"a": 1})': "map",
    "type(nil)": "nil",
    'int("123")': 123,
    'float("123.5")': 123.5,
    "string(123)": "123",
    'toJSON({"a": [1, true]})': '{"a":[1,true]}',
    "fromJSON('{\"a\": [1]}').a[0]": 1,
    'toBase64("Hello World")': "SGVsbG8gV29ybGQ=",
    'fromBase64("SGVsbG8gV29ybGQ=")': "Hello World",
    "len([1, 2])": 2,
    "get([1, 2, 3], 1)": 2,
    "get([1], 5)": None,
    'get({"a": 1}, "b")': None,
    "bitand(0b1010, 0b1100)": 8,
    "bitor(0b1010, 0b1100)": 14,
    "bitxor(0b1010, 0b1100)": 6,
    "bitshl(0b101101, 2)": 180,
    "bitshr(0b101101, 2)": 11,
    # pipes and closures
    "game | upper()": "BREAKOUT-V4",
    'game | split("-") | first() | upper()': "BREAKOUT",
    "user.name | lower() == 'ann' ? 1 : 2": 1,
    "fromJSON(list) | sort() | map(# + 1)": [2, 3, 4],
    "reduce(fromJSON(list), #acc + #)": 6,
    "toJson(concat(fromJSON(list), [9]))": "[3,1,2,9]",
}
SPRIG = {
    # https://masterminds.github.io/sprig
    'sprig.trim("   hello    ")': "hello",
    'sprig.trimAll("$", "$5.00")': "5.00",
    'sprig.trimSuffix("-", "hello-")': "hello",
    'sprig.trimPrefix("-", "-hello")': "hello",
    'sprig.title("hello world")': "Hello World",
    'sprig.untitle("Hello World")': "hello world",
    'sprig.repeat(3, "hello")': "hellohellohello",
    'sprig.substr(0, 5, "hello world")': "hello",
    'sprig.nospace("hello w o r l d")': "helloworld",
    'sprig.trunc(5, "hello world")': "hello",
    'sprig.trunc(-5, "hello world")': "world",
    "sprig.trunc(8, game)": "breakout",
    'sprig.contains("cat", "catch")': True,
    'sprig.hasPrefix("cat", "catch")': True,
    'sprig.cat("hello", "beautiful", "world")': "hello beautiful world",
    'sprig.indent(4, "a\\nb")': "    a\n    b",
    'sprig.nindent(2, "a")': "\n  a",
    'sprig.replace(" ", "-", "I Am Henry VIII")': "I-Am-Henry-VIII",
    'sprig.quote("a", 1)': '"a" "1"',
    'sprig.squote("a")': "'a'",
    'sprig.regexMatch("^[a-z]+@x[.]org$", "me@x.org")': True,
    'sprig.regexFindAll("[2,4,6,8]", "123456789", -1)': ["2", "4", "6", "8"],
    'sprig.regexFind("[a-zA-Z][1-9]", "abcd1234")': "d1",
    'sprig.regexReplaceAll("a(x*)b", "-ab-axxb-", "${1}W")': "-W-xxW-",
    'sprig.regexReplaceAllLiteral("a(x*)b", "-ab-axxb-", "${1}")': "-${1}-${1}-",
    'sprig.regexSplit("z+", "pizza", -1)': ["pi", "a"],
    'sprig.join("_", ["hello", "world"])': "hello_world",
    'sprig.splitList("$", "foo$bar$baz")': ["foo", "bar", "baz"],
    'sprig.split("$", "foo$bar$baz")._1': "bar",
    'sprig.sortAlpha(["b", "a"])': ["a", "b"],
    "sprig.add(1, 2, 3)": 6,
    'sprig.add("2", 3)': 5,
    "sprig.add1(1)": 2,
    "sprig.sub(3, 5)": -2,
    "sprig.div(-7, 2)": -3,
    "sprig.mod(-7, 2)": -1,
    "sprig.mul(1, 2, 3)": 6,
    "sprig.max(1, 2, 3)": 3,
    "sprig.min(1, 2, 3)": 1,
    "sprig.floor(123.9999)": 123.0,
    "sprig.ceil(123.001)": 124.0,
    "sprig.round(123.555555, 3)": 123.556,
    "sprig.until(5)": [0, 1, 2, 3, 4],
    "sprig.untilStep(3, 6, 2)": [3, 5],
    'sprig.atoi("12")': 12,
    'sprig.int("12")': 12,
    'sprig.int("x")': 0,
    'sprig.float64("1.5")': 1.5,
    "sprig.toStrings([1, 2])": ["1", "2"],
    "sprig.first([1, 2, 3])": 1,
    "sprig.rest([1, 2, 3])": [2, 3],
    "sprig.last([1, 2, 3])": 3,
    "sprig.initial([1, 2, 3])": [1, 2],
    "sprig.append([1], 2)": [1, 2],
    "sprig.prepend([1], 0)": [0, 1],
    "sprig.concat([1], [2], [3])": [1, 2, 3],
    "sprig.reverse([1, 2])": [2, 1],
    "sprig.uniq([1, 1, 2])": [1, 2],
    "sprig.without([1, 2, 3], 3)": [1, 2],
    "sprig.has(4, [1, 4])": True,
    'sprig.compact([1, 0, "", 2])': [1, 2],
    "sprig.slice([1, 2, 3, 4, 5], 1, 3)": [2, 3],
    "sprig.slice([1, 2, 3], 1)": [2, 3],
    'sprig.get(sprig.dict("a", 1), "a")': 1,
    'sprig.hasKey(sprig.dict("a", 1), "b")': False,
    'sprig.pick(sprig.dict("a", 1, "b", 2), "a")': {"a": 1},
    'sprig.omit(sprig.dict("a", 1, "b", 2), "a")': {"b": 2},
    'sprig.merge(sprig.dict("a", 1), sprig.dict("a", 2, "b", 3))': {"a": 1, "b": 3},
    'sprig.dig("user", "role", "guest", sprig.dict("user", sprig.dict()))': "guest",
    'sprig.default("foo", "")': "foo",
    'sprig.default("foo", "bar")': "bar",
    'sprig.empty("")': True,
    "sprig.coalesce(0, 1, 2)": 1,
    'sprig.ternary("foo", "bar", true)': "foo",
    'sprig.toJson(["a"])': '["a"]',
    'sprig.fromJson("[1]")[0]': 1,
    'sprig.b64enc("a")': "YQ==",
    'sprig.b64dec("YQ==")': "a",
    'sprig.sha256sum("")': "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}
ANSWERS = {**EXPR, **SPRIG}


def test_there_are_enough_recorded_answers() -> None:
    assert len(ANSWERS) >= 100
    asked = " ".join(ANSWERS)
    unasked = {one for one in (*FUNCTIONS, *PREDICATES) if f"{one}(" not in asked}
    assert len(unasked) < 0.2 * len({*FUNCTIONS, *PREDICATES}), sorted(unasked)


@pytest.mark.parametrize("source", ANSWERS)
def test_a_function_answers_as_documented(source: str) -> None:
    found = evaluate(source, VARIABLES)
    assert found == ANSWERS[source]
    assert type(found) is type(ANSWERS[source])
    check_readable(source)


@pytest.mark.parametrize(
    "source",
    [
        "max([])", "min()", "mean([])", "reduce([], #acc)", "floor('x')", "sum(['a'])", "split(1, 2)",
        "join([1], ',')", "repeat('x', 99999999)", "fromBase64('!')", "bitand(1, 'x')", "sort([1, 'a'])",
        "sprig.div(1, 0)", "sprig.b64dec('!')", "sprig.until(99999999)", "sprig.regexFind('(', 'x')",
        "sprig.first('abc')", "sprig.mod(1, 0)", "sprig.join()", "get(nil, 1)", "keys(1)", "#acc",
        "map([1], #acc)", "fromPairs([1])", "toBase64(1)", "bitshl(1, -1)", "sprig.indent('x')",
    ],
)  # fmt: skip
def test_a_value_that_a_function_does_not_expect_is_the_expression_s_error(source: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(source, VARIABLES)


@pytest.mark.parametrize("source", ["floor(asFloat('inf'))", "round(asFloat('nan'))"])
def test_numbers_without_end_stay_what_they_are(source: str) -> None:
    assert str(evaluate(source, VARIABLES)) in ("inf", "nan")


def workflow(argument: str, **template: Any) -> dict[str, Any]:
    main = {"name": "main", "container": {"command": ["touch", argument]}, **template}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "wf"},
        "spec": {"entrypoint": "main", "templates": [main]},
    }


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("asInt('3') +", "unexpected token EOF (1:12)"),
        ("sprig.randAlphaNum(5)", "does not have the function sprig.randAlphaNum"),
        ("now()", "does not have the function now"),
        ("'a' | uper()", "does not have the function uper; did you mean upper?"),
        ("map([1], {frist(#)})", "does not have the function frist; did you mean first?"),
        ("(1", "unexpected token EOF"),
        ("'a", "literal not terminated"),
    ],
)
@pytest.mark.parametrize("place", ["argument", "retry"])
def test_what_is_not_known_is_refused_before_anything_runs(
    tmp_path: Path, source: str, problem: str, place: str
) -> None:
    made = tmp_path / "made"
    if place == "argument":
        manifest = workflow(f"{made}{{{{={source}}}}}")
    else:
        manifest = workflow(str(made), retryStrategy={"limit": 1, "expression": source})
    status = local.run(manifest, storage=tmp_path / "storage")
    assert status.phase == "Failed"
    assert problem in status.message
    assert not status.nodes and not list(tmp_path.glob("made*"))


def of_dag(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A DAG of tasks that call `made`, which makes a file, or `scores`, which gives an empty list."""
    touch = {"name": "made", "inputs": {"parameters": [{"name": "file"}]}}
    touch["container"] = {"command": ["touch", "{{inputs.parameters.file}}"]}
    scores = {
        "name": "scores",
        "outputs": {"parameters": [{"name": "list", "valueFrom": {"path": "/tmp/list"}}]},  # noqa: S108
        "container": {"command": ["sh", "-c", "echo '[]' > /tmp/list"]},
    }
    manifest = workflow("")
    manifest["spec"] |= {
        "entrypoint": "all",
        "templates": [{"name": "all", "dag": {"tasks": list(tasks)}}, touch, scores],
        **spec,
    }
    return manifest


def task(name: str, file: str, **fields: Any) -> dict[str, Any]:
    given = {"parameters": [{"name": "file", "value": file}]}
    return {"name": name, "template": "made", "arguments": given, **fields}


def of_exit(file: Path) -> dict[str, Any]:
    return {"name": "bye", "container": {"command": ["touch", str(file)]}}


@pytest.mark.parametrize("cause", ["expression", "defect"])
def test_what_fails_inside_a_task_is_that_task_s_error(
    tmp_path: Path, cause: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other tasks end, the exit handler runs, and the status is final."""
    bad = task(
        "use", "{{=string(max(fromJSON(tasks.gen.outputs.parameters.list)))}}", depends="gen"
    )
    message = "not enough arguments"
    if cause == "defect":
        bad = task("use", "x", depends="gen")
        exact = templates.processed

        def processed(state: Any, call: Any) -> Any:
            if call.task == "use":
                raise ZeroDivisionError("of the engine")
            return exact(state, call)

        monkeypatch.setattr(templates, "processed", processed)
        message = "defect of the local engine: ZeroDivisionError: of the engine"
    gen = {"name": "gen", "template": "scores"}
    manifest = of_dag(gen, bad, task("other", str(tmp_path / "other"), depends="gen"), onExit="bye")
    manifest["spec"]["templates"].append(of_exit(tmp_path / "bye"))
    status = local.run(manifest, storage=tmp_path / "storage")
    nodes = {node.name: node for node in status.nodes.values()}
    assert (nodes["wf.use"].phase, nodes["wf.other"].phase) == ("Error", "Succeeded")
    assert message in nodes["wf.use"].message
    assert status.phase == "Error" and status.finished is not None
    assert (tmp_path / "other").exists() and (tmp_path / "bye").exists()
    assert all(node.ended for node in nodes.values())


def test_a_defect_of_the_engine_itself_ends_with_a_final_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._Engine, "_deadline_timer", lambda self: 1 / 0)
    status = local.run(workflow(str(tmp_path / "made")), storage=tmp_path / "storage")
    assert (status.phase, status.message) == (
        "Error",
        "defect of the local engine: ZeroDivisionError: division by zero",
    )
    assert status.finished is not None


def test_a_defect_of_the_engine_itself_ends_nodes_that_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(state: Any, call: Any) -> None:
        call.add(state, "Pod", "Running")
        raise ZeroDivisionError("of the engine")

    monkeypatch.setattr(engine, "execute", broken)
    status = local.run(workflow(str(tmp_path / "made")), storage=tmp_path / "storage")
    (node,) = status.nodes.values()
    assert (node.phase, node.message) == (status.phase, status.message)
    assert status.phase == "Error" and node.finished is not None
