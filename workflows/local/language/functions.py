"""The functions of Argo's expressions: Argo's `asInt`, `asFloat`, `toJson` and `jsonpath`, expr's own,
and sprig's. Expr's `now`, `date`, `duration` and `timezone` are not here: a workflow that is started
again would become another.

Sources: expr 1.17 `builtin`, Argo `util/expr/env`, github.com/Masterminds/sprig. `env` and
`expandenv` do not exist in Argo.
"""

from __future__ import annotations

import base64
import json
import math
import operator
import re
import statistics
from collections.abc import Callable
from typing import Any

from workflows.local.language.expression_parser import ExpressionError
from workflows.local.language.go_values import display, to_json
from workflows.local.language.sprig import SPRIG, unique

INTEGER = re.compile(r"[+-]?[0-9]+")
DECIMAL = re.compile(
    r"[+-]?(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?|[+-]?(?:inf|infinity)|nan",
    re.IGNORECASE,
)
LONGEST_TEXT = 1_000_000
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


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ExpressionError(f"{display(value)} is no array")
    return value


def _numbers(values: tuple[Any, ...]) -> list[float]:
    """The numbers of a call, which may be given in arrays, too."""
    found: list[float] = []
    for value in values:
        found += _numbers(tuple(value)) if isinstance(value, list) else [_number(value)]
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"{display(value)} is no number")
    return value


def _largest(*values: Any) -> float:
    return max(_some(_numbers(values)))


def _smallest(*values: Any) -> float:
    return min(_some(_numbers(values)))


def _some(numbers: list[float]) -> list[float]:
    if not numbers:
        raise ExpressionError("not enough arguments: there is no number")
    return numbers


def _mean(*values: Any) -> float:
    numbers = _some(_numbers(values))
    return sum(numbers) / len(numbers)


def _median(*values: Any) -> float:
    return float(statistics.median(_some(_numbers(values))))


def _first(items: Any) -> Any:
    return items[0] if items else None


def _last(items: Any) -> Any:
    return items[-1] if items else None


def _get(holder: Any, key: Any) -> Any:
    """Unlike `holder[key]`, nil for what is not there."""
    if isinstance(holder, dict):
        return holder.get(key)
    inside = isinstance(key, int) and -len(holder) <= key < len(holder)
    return holder[key] if inside else None


def _floor(value: Any) -> float:
    number = float(_number(value))
    return number if not math.isfinite(number) else float(math.floor(number))


def _ceil(value: Any) -> float:
    number = float(_number(value))
    return number if not math.isfinite(number) else float(math.ceil(number))


def _round(value: Any) -> float:
    # Go rounds halves away from zero; Python's `round` takes them to the even number.
    number = float(_number(value))
    if not math.isfinite(number):
        return number
    return math.copysign(math.floor(abs(number) + 0.5), number)


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    """Without a separator, into characters; with a number, into at most so many parts."""
    if most == 0:
        return []
    if not separator:
        return list(text) if most < 0 else [*text[: most - 1], text[most - 1 :]]
    return text.split(separator, most - 1 if most > 0 else -1)


def _split_after(text: str, separator: str, most: int = -1) -> list[str]:
    parts = _split(text, separator, most)
    return [part + separator for part in parts[:-1]] + parts[-1:]


def _repeat(text: str, count: int) -> str:
    if count < 0 or len(text) * count > LONGEST_TEXT:
        raise ExpressionError("memory budget exceeded")
    return text * count


def _concat(*lists: Any) -> list[Any]:
    return [item for items in lists for item in _list(items)]


def _flatten(items: Any) -> list[Any]:
    found: list[Any] = []
    for item in _list(items):
        found += _flatten(item) if isinstance(item, list) else [item]
    return found


def _sorted(items: Any, order: str = "asc") -> list[Any]:
    return sorted(_list(items), reverse=_descends(order))


def _descends(order: str) -> bool:
    if order not in ("asc", "desc"):
        raise ExpressionError(f"invalid order {order}, expected asc or desc")
    return order == "desc"


def _type_name(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", str: "string", list: "array", dict: "map"}
    return "nil" if value is None else names[type(value)]


def _from_base64(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    # Argo's own
    "asInt": as_int,
    "asFloat": as_float,
    "toJson": to_json_text,
    "jsonpath": jsonpath,
    # expr's, in the order of its documentation
    "trim": lambda text, characters=None: text.strip(characters),
    "trimPrefix": lambda text, prefix=" ": text.removeprefix(prefix),
    "trimSuffix": lambda text, suffix=" ": text.removesuffix(suffix),
    "upper": str.upper,
    "lower": str.lower,
    "split": _split,
    "splitAfter": _split_after,
    "replace": lambda text, old, new: text.replace(old, new),
    "repeat": _repeat,
    "indexOf": str.find,
    "lastIndexOf": str.rfind,
    "hasPrefix": str.startswith,
    "hasSuffix": str.endswith,
    "max": _largest,
    "min": _smallest,
    "abs": lambda value: abs(_number(value)),
    "ceil": _ceil,
    "floor": _floor,
    "round": _round,
    "join": lambda items, separator="": separator.join(items),
    "concat": _concat,
    "flatten": _flatten,
    "uniq": unique,
    "reverse": lambda items: _list(items)[::-1],
    "sort": _sorted,
    "first": _first,
    "last": _last,
    "take": lambda items, count: _list(items)[: max(0, count)],
    "mean": _mean,
    "median": _median,
    "keys": lambda mapping: list(dict.keys(mapping)),
    "values": lambda mapping: list(dict.values(mapping)),
    "toPairs": lambda mapping: [[key, value] for key, value in dict.items(mapping)],
    "fromPairs": lambda pairs: {str(key): value for key, value in pairs},
    "type": _type_name,
    "int": as_int,
    "float": as_float,
    "string": display,
    "toJSON": to_json_text,
    "fromJSON": from_json,
    "toBase64": lambda text: base64.b64encode(text.encode()).decode(),
    "fromBase64": _from_base64,
    "len": length,
    "get": _get,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "bitnot": operator.invert,
    "bitshl": lambda value, places: value << min(places, 63),
    "bitshr": lambda value, places: value >> places,
    **{f"sprig.{name}": function for name, function in SPRIG.items()},
}
"""Each is called with its evaluated arguments; any exception is the expression's error."""

Apply = Callable[..., Any]
"""Evaluates a predicate for an item: `apply(item, index=…, acc=…)`."""


def _filter(items: list[Any], apply: Apply) -> list[Any]:
    return [item for index, item in enumerate(items) if apply(item, index=index)]


def _map(items: list[Any], apply: Apply) -> list[Any]:
    return [apply(item, index=index) for index, item in enumerate(items)]


def _count(items: list[Any], apply: Apply) -> int:
    return len(_filter(items, apply))


def _found(items: list[Any], apply: Apply, *, last: bool = False) -> int:
    """The place of the first or last item for which the predicate holds; -1 without one."""
    places = range(len(items))
    for place in reversed(places) if last else places:
        if apply(items[place], index=place):
            return place
    return -1


def _item(items: list[Any], place: int) -> Any:
    return None if place < 0 else items[place]


def _reduce(items: list[Any], apply: Apply, *initial: Any) -> Any:
    """Without an initial value the first item is one."""
    rest = list(enumerate(items))
    if initial:
        (found,) = initial
    elif rest:
        _, found = rest.pop(0)
    else:
        raise ExpressionError("reduce of empty array with no initial value")
    for index, item in rest:
        found = apply(item, index=index, acc=found)
    return found


def _sort_by(items: list[Any], apply: Apply, order: str = "asc") -> list[Any]:
    return sorted(items, key=apply, reverse=_descends(order))


def _group_by(items: list[Any], apply: Apply) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(display(apply(item)), []).append(item)
    return groups


PREDICATES: dict[str, Callable[..., Any]] = {
    "all": lambda items, apply: len(_filter(items, apply)) == len(items),
    "any": lambda items, apply: _found(items, apply) >= 0,
    "one": lambda items, apply: _count(items, apply) == 1,
    "none": lambda items, apply: _found(items, apply) < 0,
    "map": _map,
    "filter": _filter,
    "find": lambda items, apply: _item(items, _found(items, apply)),
    "findIndex": _found,
    "findLast": lambda items, apply: _item(items, _found(items, apply, last=True)),
    "findLastIndex": lambda items, apply: _found(items, apply, last=True),
    "count": _count,
    "sum": lambda items, apply: sum(_numbers(tuple(_map(items, apply)))),
    "reduce": _reduce,
    "sortBy": _sort_by,
    "groupBy": _group_by,
}
"""Functions whose second argument is evaluated for every item, which is written `#`; further ones are
values.
"""
WITHOUT_PREDICATE = {"count", "sum"}
"""Of these, those that can be called with an array alone: `count` of what is true, `sum` of numbers."""
