"""The functions of sprig (github.com/Masterminds/sprig/v3) that manifests use, as `sprig.name(…)`.

Numbers follow sprig: `add` and its kin convert every argument to an integer, also text, of which
what is no number counts as 0. What depends on the clock, on chance or on the machine (`now`,
`randAlphaNum`, `getHostByName`, …) is not here: a workflow that is started again would become another.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from workflows.local.language.expression_parser import ExpressionError
from workflows.local.language.go_values import display, to_json

NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
LONGEST_LIST = 1_000_000


def _float(value: Any) -> float:
    if isinstance(value, str):
        return float(value) if NUMBER.fullmatch(value) else 0.0
    if value is None:
        return 0.0
    if isinstance(value, int | float):
        return float(value)
    raise ExpressionError(f"{display(value)} is no number")


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return int(value)
    number = _float(value)
    if not math.isfinite(number):
        raise ExpressionError(f"{display(value)} is no integer")
    return math.trunc(number)


def _text(value: Any) -> str:
    return "" if value is None else display(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ExpressionError(f"{display(value)} is no list")
    return value


def _divide(dividend: Any, divisor: Any) -> int:
    """Go cuts towards 0, where Python's `//` rounds down."""
    left, right = _integer(dividend), _integer(divisor)
    if right == 0:
        raise ExpressionError("integer divide by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(dividend: Any, divisor: Any) -> int:
    return _integer(dividend) - _divide(dividend, divisor) * _integer(divisor)


def _multiply(first: Any, *others: Any) -> int:
    return math.prod([_integer(first), *map(_integer, others)])


def _round(value: Any, places: Any = 0) -> float:
    # Halves go away from zero, as in Go; Python's `round` takes them to the even digit.
    scale = 10.0 ** _integer(places)
    number = _float(value)
    return math.copysign(math.floor(abs(number) * scale + 0.5) / scale, number)


def _substring(start: Any, end: Any, text: Any) -> str:
    first, last = _integer(start), _integer(end)
    if first < 0:
        return str(text)[:last]
    if last < 0 or last > len(text):
        return str(text)[first:]
    return str(text)[first:last]


def _truncate(length: Any, text: Any) -> str:
    """A negative length keeps the end."""
    count = _integer(length)
    if count < 0:
        return str(text)[count:]
    return str(text)[:count]


def _join(separator: Any, items: Any) -> str:
    if not isinstance(items, list):
        return _text(items)
    return str(separator).join(_text(item) for item in items if item is not None)


def _split(separator: str, text: str) -> dict[str, str]:
    """Sprig's `split` makes a map: `_0`, `_1`, …; `splitList` makes a list."""
    return {f"_{number}": part for number, part in enumerate(text.split(separator))}


def _indent(spaces: Any, text: str) -> str:
    padding = " " * _integer(spaces)
    return padding + text.replace("\n", f"\n{padding}")


def _until_step(start: Any, stop: Any, step: Any) -> list[int]:
    first, end, by = _integer(start), _integer(stop), _integer(step)
    if by == 0 or (end - first) * by < 0:
        return []
    numbers = range(first, end, by)
    if len(numbers) > LONGEST_LIST:
        raise ExpressionError("memory budget exceeded")
    return list(numbers)


def _until(count: Any) -> list[int]:
    number = _integer(count)
    return _until_step(0, number, 1 if number >= 0 else -1)


def unique(items: Any) -> list[Any]:
    """The items without repetitions, in the order in which they come first."""
    found: list[Any] = []
    for item in _list(items):
        if item not in found:
            found.append(item)
    return found


def _dictionary(*pairs: Any) -> dict[str, Any]:
    values = [*pairs[1::2], ""] if len(pairs) % 2 else pairs[1::2]
    return dict(zip(map(_text, pairs[::2]), values, strict=True))


def _merge(*mappings: Any) -> dict[str, Any]:
    """The first mapping that has a key wins."""
    merged: dict[str, Any] = {}
    for mapping in reversed(mappings):
        merged |= mapping
    return merged


def _from_json(text: Any) -> Any:
    """Text that is no JSON is nil, as sprig has it."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _to_json(value: Any) -> str:
    try:
        return to_json(value)
    except ValueError:
        return ""


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value), None)


def _default(fallback: Any, value: Any = None) -> Any:
    return value or fallback  # sprig's empty values are those that are false in Python


def _has_key(mapping: Mapping[str, Any], key: str) -> bool:
    return key in mapping


def _pick(mapping: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: mapping[key] for key in keys if key in mapping}


def _quoted(mark: str, values: tuple[Any, ...]) -> str:
    return " ".join(f"{mark}{_text(value)}{mark}" for value in values if value is not None)


def _title(text: str) -> str:
    return re.sub(r"(^|\s)(\S)", lambda found: found[1] + found[2].upper(), text)


def _go_pattern(replacement: str) -> str:
    """Go writes a group as `${1}` or `$1`, Python as `g<1>` behind a backslash."""
    return re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", replacement.replace("\\", r"\\"))


def _regex_find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else ""


def _regex_find_all(pattern: str, text: str, most: Any) -> list[str]:
    found = [one[0] for one in re.finditer(pattern, text)]
    count = _integer(most)
    return found if count < 0 else found[:count]


def _regex_split(pattern: str, text: str, most: Any) -> list[str]:
    count = _integer(most)
    if count == 0:
        return []
    return re.split(pattern, text, maxsplit=0 if count < 0 else count - 1)


def _dig(*path: Any) -> Any:
    """`dig("a", "b", fallback, mapping)`: the member a.b, or the fallback."""
    *keys, fallback, found = path
    for key in keys:
        if not isinstance(found, Mapping) or key not in found:
            return fallback
        found = found[key]
    return found


def _slice(items: Any, *bounds: Any) -> list[Any]:
    """`slice(items, start, end)`; without bounds a copy, without an end the rest."""
    first, *end = [*map(_integer, bounds)] or [0]
    return _list(items)[first:] if not end else _list(items)[first : end[0]]


SPRIG: dict[str, Callable[..., Any]] = {
    # text
    "upper": str.upper,
    "lower": str.lower,
    "title": _title,
    "untitle": lambda text: re.sub(r"(^|\s)(\S)", lambda one: one[1] + one[2].lower(), text),
    "trim": str.strip,
    "trimAll": lambda characters, text: text.strip(characters),
    "trimPrefix": lambda prefix, text: text.removeprefix(prefix),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "nospace": lambda text: re.sub(r"\s", "", text),
    "trunc": _truncate,
    "substr": _substring,
    "repeat": lambda count, text: text * _integer(count),
    "replace": lambda old, new, text: text.replace(old, new),
    "contains": lambda part, text: part in text,
    "hasPrefix": lambda prefix, text: text.startswith(prefix),
    "hasSuffix": lambda suffix, text: text.endswith(suffix),
    "quote": lambda *values: " ".join(to_json(_text(one)) for one in values if one is not None),
    "squote": lambda *values: _quoted("'", values),
    "cat": lambda *values: " ".join(_text(value) for value in values if value is not None),
    "indent": _indent,
    "nindent": lambda spaces, text: "\n" + _indent(spaces, text),
    "join": _join,
    "split": _split,
    "splitList": lambda separator, text: text.split(separator),
    "sortAlpha": lambda items: sorted(map(_text, _list(items))),
    "toString": _text,
    "toStrings": lambda items: [_text(item) for item in _list(items)],
    # numbers
    "int": _integer,
    "int64": _integer,
    "atoi": _integer,
    "float64": _float,
    "add": lambda *numbers: sum(map(_integer, numbers)),
    "add1": lambda number: _integer(number) + 1,
    "sub": lambda left, right: _integer(left) - _integer(right),
    "mul": _multiply,
    "div": _divide,
    "mod": _modulo,
    "max": lambda *numbers: max(map(_integer, numbers)),
    "min": lambda *numbers: min(map(_integer, numbers)),
    "addf": lambda *numbers: math.fsum(map(_float, numbers)),
    "subf": lambda first, *others: _float(first) - math.fsum(map(_float, others)),
    "mulf": lambda *numbers: math.prod(map(_float, numbers)),
    "divf": lambda left, right: _float(left) / _float(right),
    "maxf": lambda *numbers: max(map(_float, numbers)),
    "minf": lambda *numbers: min(map(_float, numbers)),
    "floor": lambda number: float(math.floor(_float(number))),
    "ceil": lambda number: float(math.ceil(_float(number))),
    "round": _round,
    "until": _until,
    "untilStep": _until_step,
    # lists and maps
    "list": lambda *items: list(items),
    "first": lambda items: _list(items)[0] if items else None,
    "last": lambda items: _list(items)[-1] if items else None,
    "rest": lambda items: _list(items)[1:],
    "initial": lambda items: _list(items)[:-1],
    "append": lambda items, item: [*_list(items), item],
    "prepend": lambda items, item: [item, *_list(items)],
    "concat": lambda *lists: [item for items in lists for item in _list(items)],
    "reverse": lambda items: _list(items)[::-1],
    "uniq": unique,
    "without": lambda items, *omitted: [item for item in _list(items) if item not in omitted],
    "has": lambda item, items: item in (items or []),
    "compact": lambda items: [item for item in _list(items) if item],
    "slice": _slice,
    "dict": _dictionary,
    "get": lambda mapping, key: mapping.get(key, ""),
    "hasKey": _has_key,
    "keys": lambda *mappings: sorted(key for mapping in mappings for key in mapping),
    "values": lambda mapping: [mapping[key] for key in sorted(mapping)],
    "pick": _pick,
    "omit": lambda mapping, *keys: {k: v for k, v in mapping.items() if k not in keys},
    "merge": _merge,
    "dig": _dig,
    # choices
    "default": _default,
    "empty": lambda value=None: not value,
    "coalesce": _coalesce,
    "ternary": lambda yes, no, condition: yes if condition else no,
    "all": lambda *values: all(values),
    "any": lambda *values: any(values),
    # encodings
    "toJson": _to_json,
    "fromJson": _from_json,
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "b64dec": lambda text: base64.b64decode(text, validate=True).decode(),
    "sha1sum": lambda text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    # regular expressions
    "regexMatch": lambda pattern, text: re.search(pattern, text) is not None,
    "regexFind": _regex_find,
    "regexFindAll": _regex_find_all,
    "regexReplaceAll": lambda pattern, text, by: re.sub(pattern, _go_pattern(by), text),
    "regexReplaceAllLiteral": lambda pattern, text, by: re.sub(pattern, lambda _: by, text),
    "regexSplit": _regex_split,
}
"""Each is called with its evaluated arguments; any exception is the expression's error."""
