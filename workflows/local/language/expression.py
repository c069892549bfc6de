"""Evaluates expr-lang expressions. Types are strict, integers and floats differ, and a missing
member is nil.

What expr's compiler rejects is rejected here before evaluation, as far as types are known: unknown
names, and comparisons of text with a number. The expected results in the tests were produced by
expr 1.17.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from workflows.local.language.expression_parser import ExpressionError, Node, parse
from workflows.local.language.functions import FUNCTIONS, PREDICATES, WITHOUT_PREDICATE
from workflows.local.language.go_values import display, divided_by_zero

LONGEST_RANGE = 1_000_000
BOOLEAN_OPERATORS = ("&&", "and", "||", "or")
ARITHMETIC = ("+", "-", "*", "/", "%", "**", "^")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def evaluate(source: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression over nested `variables`. Raises `ExpressionError` with expr's
    message.
    """
    tree = _parsed(source)
    try:
        _check(tree, variables)
        return _Evaluation(variables).value(tree)
    except ExpressionError as error:
        raise ExpressionError(error.shown(source)) from None
    except RecursionError:
        raise ExpressionError("expression is nested too deeply") from None


def expand(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` -> `{"a": {"b": 1}}`. A name that is a prefix of others is dropped, as Argo
    does.
    """
    nested: dict[str, Any] = {}
    # Sorted, so that `a.b` comes after `a` and replaces it.
    for name in sorted(flat):
        *parents, last = name.split(".")
        level = nested
        for parent in parents:
            if not isinstance(level.get(parent), dict):
                level[parent] = {}
            level = level[parent]
        level[last] = flat[name]
    return nested


def check_readable(source: str) -> None:
    """Raise `ExpressionError` for an expression that cannot be parsed, or that calls a function which
    is not known here.
    """
    pending = [_parsed(source)]
    while pending:
        node = pending.pop()
        pending += node.children
        if node.kind != "call":
            continue
        name = _path(node.children[0]) or "what is no name"
        if name in FUNCTIONS or name in PREDICATES:
            continue
        nearest = difflib.get_close_matches(name, [*FUNCTIONS, *PREDICATES], 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ExpressionError(f"the local engine does not have the function {name}{hint}")


def _parsed(source: str) -> Node:
    try:
        return parse(source)
    except ExpressionError as error:
        raise ExpressionError(error.shown(source)) from None
    except RecursionError:
        raise ExpressionError("expression is nested too deeply") from None


def unguarded_names(source: str) -> list[str]:
    """Dotted paths that the expression reads without the guard of `??` or `?.`. Raises
    `ExpressionError`.
    """
    names: list[str] = []

    def visit(node: Node, guarded: bool) -> None:
        path = _path(node)
        if node.kind == "name" or (node.kind == "member" and path and not guarded):
            names.append(path or str(node.value))
        for index, child in enumerate(node.children):
            # `??` guards the members that its left side reads, and nothing deeper: in
            # `f(a.b) ?? c` the name `a.b` is read without a guard.
            left_of_coalesce = node.kind == "binary" and node.value == "??" and index == 0
            of_member = node.kind == "member" and (node.optional or guarded)
            visit(child, left_of_coalesce or of_member)

    visit(parse(source), False)
    return list(dict.fromkeys(names))


def _path(node: Node) -> str | None:
    if node.kind == "name":
        return str(node.value)
    if (
        node.kind != "member"
        or node.optional
        or node.children[1].kind != "literal"
        or not isinstance(node.children[1].value, str)
    ):
        return None
    parent = _path(node.children[0])
    if parent is None:
        return None
    return f"{parent}.{node.children[1].value}"


def _check(node: Node, variables: Mapping[str, Any]) -> str | None:
    """The static type of a node (`string`, `int`, …) where it is known. Raises `ExpressionError`
    where expr does not compile.
    """
    if node.kind == "name":
        if (
            node.value not in variables
            and node.value not in FUNCTIONS
            and node.value not in PREDICATES
        ):
            raise ExpressionError(f"unknown name {node.value}", node.column)
        # expr knows the types of top-level variables only: `"1" == 1` does not compile, while
        # `x.y == 1` with a text in `x.y` is false (docs/argo.md).
        value = variables.get(node.value)
        if value is None or isinstance(value, Mapping):
            return None
        return _type(value)
    if node.kind == "literal":
        if node.value is None:
            return None
        return _type(node.value)
    checked = node.children
    if node.kind == "call" and _path(node.children[0]) in FUNCTIONS:
        checked = node.children[1:]  # the function's name is no variable
    types = [_check(child, variables) for child in checked]
    if node.kind == "binary" and None not in types:
        return _check_binary(node, str(types[0]), str(types[1]))
    if node.kind == "unary" and node.value in ("!", "not"):
        return "bool"
    return None


def _check_binary(node: Node, left: str, right: str) -> str | None:
    numbers = {left, right} <= {"int", "float64"}
    texts = left == right == "string"
    result = "string" if left == "string" else None
    symbol = node.value
    if symbol in ("==", "!="):
        allowed = left == right or numbers
    elif symbol == "+" or symbol in COMPARISONS:
        allowed = numbers or texts
    elif symbol in BOOLEAN_OPERATORS:
        allowed = left == right == "bool"
    elif symbol in ARITHMETIC:
        allowed = numbers
    else:
        return result
    if not allowed:
        raise ExpressionError(
            f"invalid operation: {symbol} (mismatched types {left} and {right})", node.column
        )
    if symbol not in ARITHMETIC:
        return "bool"
    return result


def _type(value: Any) -> str:
    if value is None:
        return "<nil>"
    names = {
        bool: "bool",
        int: "int",
        float: "float64",
        str: "string",
        list: "[]interface {}",
        dict: "map[string]interface {}",
    }
    return names.get(type(value), type(value).__name__)


class _Evaluation:
    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = variables
        self.pointers: list[dict[str, Any]] = []

    def value(self, node: Node) -> Any:
        return getattr(self, f"_{node.kind}")(node)

    def _literal(self, node: Node) -> Any:
        return node.value

    def _name(self, node: Node) -> Any:
        return self.variables.get(node.value)

    def _pointer(self, node: Node) -> Any:
        """`#` is the item, `#index` its place, `#acc` what `reduce` has made so far."""
        if not self.pointers:
            raise ExpressionError("cannot use pointer accessor outside predicate", node.column)
        if node.value not in self.pointers[-1]:
            raise ExpressionError(f"unknown pointer #{node.value}", node.column)
        return self.pointers[-1][node.value]

    def _closure(self, node: Node) -> Any:
        return self.value(node.children[0])

    def _list(self, node: Node) -> list[Any]:
        return [self.value(child) for child in node.children]

    def _map(self, node: Node) -> dict[str, Any]:
        pairs = node.children
        return {
            str(key.value): self.value(value)
            for key, value in zip(pairs[::2], pairs[1::2], strict=True)
        }

    def _member(self, node: Node) -> Any:
        parent = self.value(node.children[0])
        key = self.value(node.children[1])
        if isinstance(parent, Mapping):
            return parent.get(key)
        if isinstance(parent, list | str) and isinstance(key, int) and not isinstance(key, bool):
            if not -len(parent) <= key < len(parent):
                raise ExpressionError(
                    f"index out of range: {key} (array length is {len(parent)})", node.column
                )
            return parent[key]
        if parent is None and (
            node.optional or (node.children[0].kind == "member" and node.children[0].optional)
        ):
            return None
        raise ExpressionError(f"cannot fetch {display(key)} from {_type(parent)}", node.column)

    def _slice(self, node: Node) -> Any:
        sliced, start, end = (self.value(child) for child in node.children)
        if not isinstance(sliced, list | str) or not all(
            bound is None or isinstance(bound, int) for bound in (start, end)
        ):
            raise ExpressionError(f"cannot slice {_type(sliced)}", node.column)
        return sliced[start:end]

    def _conditional(self, node: Node) -> Any:
        condition = self.value(node.children[0])
        if not isinstance(condition, bool):
            raise ExpressionError(
                f"non-bool expression (type {_type(condition)}) used as condition",
                node.children[0].column,
            )
        if condition:
            return self.value(node.children[1])
        return self.value(node.children[2])

    def _unary(self, node: Node) -> Any:
        value = self.value(node.children[0])
        if node.value in ("!", "not") and isinstance(value, bool):
            return not value
        if node.value in "+-" and _is_number(value):
            return value if node.value == "+" else -value
        raise ExpressionError(
            f"invalid operation: {node.value} (mismatched type {_type(value)})", node.column
        )

    def _binary(self, node: Node) -> Any:
        if node.value == "??":
            return self._coalesce(node)
        left = self.value(node.children[0])
        if node.value in BOOLEAN_OPERATORS:
            right = left
            decided = left is (node.value in ("||", "or"))
            if not decided:
                right = self.value(node.children[1])
            if not isinstance(left, bool) or not isinstance(right, bool):
                raise ExpressionError(
                    f"invalid operation: {node.value} (mismatched types {_type(left)} and {_type(right)})",
                    node.column,
                )
            return right
        return _operate(node, left, self.value(node.children[1]))

    def _coalesce(self, node: Node) -> Any:
        left = self.value(node.children[0])
        if left is None:
            return self.value(node.children[1])
        return left

    def _call(self, node: Node) -> Any:
        called, *arguments = node.children
        if (
            called.kind == "name"
            and called.value in PREDICATES
            and called.value not in self.variables
        ):
            return self._predicate(called, arguments)
        path = _path(called)
        function = FUNCTIONS.get(path or "")
        if function is None:
            problem = f"cannot call {path or 'this'}"
            if called.kind == "name":
                problem = f"unknown name {path}"
            raise ExpressionError(problem, called.column)
        values = [self.value(argument) for argument in arguments]
        return _called(function, str(path), values, node)

    def _predicate(self, called: Node, arguments: list[Node]) -> Any:
        name = str(called.value)
        if not arguments or (len(arguments) == 1 and name not in WITHOUT_PREDICATE):
            raise ExpressionError(f"not enough arguments to call {name}", called.column)
        items = self.value(arguments[0])
        if not isinstance(items, list):
            raise ExpressionError(
                f"builtin {called.value} takes only array (got {_type(items)})", called.column
            )

        def apply(item: Any, **others: Any) -> Any:
            if len(arguments) == 1:
                return item
            self.pointers.append({"": item, **others})
            try:
                return self.value(arguments[1])
            finally:
                self.pointers.pop()

        further = [self.value(argument) for argument in arguments[2:]]
        return _called(PREDICATES[name], name, [items, apply, *further], called)


def _called(function: Callable[..., Any], name: str, values: list[Any], node: Node) -> Any:
    """The function's value. Raises `ExpressionError` whatever is wrong with the values: they come from
    a workflow, and none may end the engine.
    """
    try:
        return function(*values)
    except ExpressionError as error:
        raise ExpressionError(error.problem, node.column) from None
    except RecursionError:
        raise
    except Exception as error:
        why = f": {error}" if isinstance(error, ValueError) else ""
        raise ExpressionError(f"invalid arguments to call {name}{why}", node.column) from None


def _operate(node: Node, left: Any, right: Any) -> Any:
    symbol = node.value
    if symbol in ("==", "!="):
        return _equal(left, right) == (symbol == "==")
    if symbol == "in" and isinstance(right, list):
        return any(_equal(left, item) for item in right)
    if symbol == "in" and (isinstance(right, Mapping) or right is None):
        return right is not None and left in right
    if isinstance(left, str) and isinstance(right, str):
        return _operate_on_text(node, left, right)
    if _is_number(left) and _is_number(right):
        return _operate_on_numbers(node, left, right)
    raise ExpressionError(
        f"invalid operation: {symbol} (mismatched types {_type(left)} and {_type(right)})",
        node.column,
    )


def _equal(left: Any, right: Any) -> bool:
    """Numbers compare by value, other values only with their own type. Nested values of different
    types are unequal and raise nothing.
    """
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _operate_on_text(node: Node, left: str, right: str) -> Any:
    symbol = node.value
    if symbol == "matches":
        try:
            return re.search(right, left) is not None
        except re.error as error:
            raise ExpressionError(f"error parsing regexp: {error}", node.column) from None
    operations: dict[str, Callable[[], Any]] = {
        "+": lambda: left + right,
        "contains": lambda: right in left,
        "startsWith": lambda: left.startswith(right),
        "endsWith": lambda: left.endswith(right),
    }
    if symbol in COMPARISONS:
        return COMPARISONS[symbol](left, right)
    if symbol not in operations:
        raise ExpressionError(
            f"invalid operation: {symbol} (mismatched types string and string)", node.column
        )
    return operations[symbol]()


def _operate_on_numbers(node: Node, left: float, right: float) -> Any:
    symbol = node.value
    if symbol in COMPARISONS:
        return COMPARISONS[symbol](left, right)
    if symbol == "..":
        return _range(node, left, right)
    if symbol == "%" and not (isinstance(left, int) and isinstance(right, int)):
        raise ExpressionError(
            f"invalid operation: % (mismatched types {_type(left)} and {_type(right)})", node.column
        )
    try:
        return _calculate(symbol, left, right)
    except ZeroDivisionError:
        if symbol == "%":
            raise ExpressionError("integer divide by zero", node.column) from None
        return divided_by_zero(left)
    except (ValueError, OverflowError, KeyError):
        raise ExpressionError(f"invalid operation: {symbol}", node.column) from None


def _calculate(symbol: str, left: float, right: float) -> float:
    if symbol == "%":
        # Go's remainder has the sign of the dividend (-7 % 3 is -1), Python's that of the divisor.
        if left:
            return int(math.copysign(abs(int(left)) % abs(int(right)), left))
        return 0 % int(right)
    if symbol in ("**", "^"):
        return math.pow(left, right)
    operations: dict[str, Callable[[float, float], float]] = {
        "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    }  # fmt: skip
    return operations[symbol](left, right)


def _range(node: Node, left: float, right: float) -> list[int]:
    if not isinstance(left, int) or not isinstance(right, int):
        raise ExpressionError(
            f"invalid operation: .. (mismatched types {_type(left)} and {_type(right)})",
            node.column,
        )
    if right - left >= LONGEST_RANGE:
        raise ExpressionError("memory budget exceeded", node.column)
    return list(range(left, right + 1))
