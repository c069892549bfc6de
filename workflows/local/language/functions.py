"""The functions of Argo's expressions: expr's own that matter, Argo's `asInt`, `asFloat`, `toJson`,
`jsonpath`, and some of sprig.

Sources: expr 1.17 `builtin`, Argo `util/expr/env`, github.com/Masterminds/sprig. `env` and
`expandenv` do not exist in Argo.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from workflows.local.language.expression_parser import ExpressionError
from workflows.local.language.go_values import display, to_json

INTEGER = re.compile(r"[+-]?[0-9]+")
DECIMAL = re.compile(
    r"[+-]?(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?|[+-]?(?:inf|infinity)|nan",
    re.IGNORECASE,
)
JSONPATH_PART = re.compile(r"\.([\w-]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")


def as_int(value: Any) -> int:
    """`asInt`: decimal text as Go's `strconv.Atoi` reads it (no exponents, points, spaces,
    prefixes); a float is cut.
    """
    if isinstance(value, str) and INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return int(value)
    raise ExpressionError(f"invalid operation: int({display(value)})")


def as_float(value: Any) -> float:
    """`asFloat`: text as Go's `strconv.ParseFloat` reads it; empty text is an error, `nan` is
    not.
    """
    if isinstance(value, str) and DECIMAL.fullmatch(value):
        return float(value.replace("_", ""))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ExpressionError(f"invalid operation: float({display(value)})")


def to_json_text(value: Any) -> str:
    """`toJson`."""
    try:
        return to_json(value)
    except ValueError as error:
        raise ExpressionError(str(error)) from None


def from_json(text: Any) -> Any:
    """`fromJSON`."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        raise ExpressionError(f"invalid operation: fromJSON({display(text)})") from None


def jsonpath(text: Any, path: Any) -> Any:
    """`jsonpath('{"a":5}', '$.a')`: members and indices; other paths are refused by name."""
    document = from_json(text)
    rest = str(path).removeprefix("$")
    while rest:
        part = JSONPATH_PART.match(rest)
        if part is None:
            raise ExpressionError(
                f"jsonpath {path!r} is not supported: only members and indices are"
            )
        try:
            if part[2]:
                document = document[int(part[2])]
            else:
                document = document[part[1] or part[3] or part[4]]
        except (KeyError, IndexError, TypeError):
            raise ExpressionError(f"{path}: key not found") from None
        rest = rest[part.end() :]
    return document


def length(value: Any) -> int:
    """`len` of text (characters), lists and maps."""
    if not isinstance(value, str | list | dict):
        raise ExpressionError(f"invalid argument for len (type {display(value)})")
    return len(value)


def _default(fallback: Any, value: Any = None) -> Any:
    return value or fallback  # sprig's empty values are those that are false in Python


def _first(items: Any) -> Any:
    if not items:
        return None
    return items[0]


def _last(items: Any) -> Any:
    if not items:
        return None
    return items[-1]


def _round(value: float) -> float:
    # Go rounds halves away from zero; Python's `round` takes them to the even number.
    return math.copysign(math.floor(abs(value) + 0.5), value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "asInt": as_int, "int": as_int, "asFloat": as_float, "float": as_float, "string": display,
    "toJson": to_json_text, "toJSON": to_json_text, "fromJSON": from_json, "jsonpath": jsonpath, "len": length,
    "upper": str.upper, "lower": str.lower, "trim": lambda text, *rest: text.strip(*rest),
    "trimPrefix": str.removeprefix, "trimSuffix": str.removesuffix, "split": str.split, "replace": str.replace,
    "join": lambda items, separator="": separator.join(items), "hasPrefix": str.startswith, "hasSuffix": str.endswith,
    "abs": abs, "floor": lambda value: float(math.floor(value)), "ceil": lambda value: float(math.ceil(value)), "round": _round,
    "min": min, "max": max, "sum": sum, "first": _first,
    "last": _last, "keys": list, "values": lambda mapping: list(mapping.values()),
    "sprig.upper": str.upper, "sprig.lower": str.lower, "sprig.trim": str.strip, "sprig.title": str.title,
    "sprig.trimPrefix": lambda prefix, text: text.removeprefix(prefix), "sprig.trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "sprig.replace": lambda old, new, text: text.replace(old, new), "sprig.contains": lambda part, text: part in text,
    "sprig.hasPrefix": lambda prefix, text: text.startswith(prefix), "sprig.hasSuffix": lambda suffix, text: text.endswith(suffix),
    "sprig.default": _default, "sprig.toString": display, "sprig.toJson": to_json_text,
    "sprig.join": lambda separator, items: separator.join(items),
    "sprig.quote": lambda text: f'"{text}"', "sprig.int": as_int, "sprig.add": lambda *numbers: sum(map(as_int, numbers)),
}  # fmt: skip
"""Each is called with its evaluated arguments. A `TypeError` is reported as a wrong call."""

PREDICATES: dict[str, Callable[[list[Any], Callable[[Any], Any]], Any]] = {
    "filter": lambda items, predicate: [item for item in items if predicate(item)],
    "map": lambda items, function: [function(item) for item in items],
    "any": lambda items, predicate: any(predicate(item) for item in items),
    "all": lambda items, predicate: all(predicate(item) for item in items),
    "none": lambda items, predicate: not any(predicate(item) for item in items),
    "one": lambda items, predicate: sum(bool(predicate(item)) for item in items) == 1,
    "count": lambda items, predicate: sum(bool(predicate(item)) for item in items),
    "find": lambda items, predicate: next((item for item in items if predicate(item)), None),
}
"""Functions whose second argument is evaluated for every item, which is written `#`."""
