"""Writes values as Go does, because Argo's messages, parameters and expressions are full of its
formats.

Sources: Go's `encoding/json` (Marshal), `strconv.Quote`, `fmt` (%v); Argo's `AnyString`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}
HTML = str.maketrans(
    {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
)


def to_json(value: Any) -> str:
    """`json.Marshal`: compact, sorted keys, HTML characters escaped, whole floats without a point.
    Raises `ValueError` for NaN.
    """
    if isinstance(value, Mapping):
        return (
            "{"
            + ",".join(f"{to_json(str(key))}:{to_json(value[key])}" for key in sorted(value))
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(to_json, value)) + "]"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"json: unsupported value: {float_text(value)}")
        return float_text(value)
    return json.dumps(value, ensure_ascii=False).translate(HTML)


def float_text(number: float) -> str:
    """A float as Go's JSON writes it: 4, 1.5, 1e+21, 1e-7; and NaN, +Inf, -Inf as `fmt` does."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    # Go changes to an exponent from 1e21 on and below 1e-6, Python already from 1e16 on and below
    # 1e-4. In between, Python's text cannot be used as it is.
    if number == 0 or 1e-6 <= abs(number) < 1e21:
        return _without_exponent(number)
    # Python pads the exponent to two digits (1e-07), Go does not (1e-7).
    mantissa, _, exponent = repr(number).partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"


def parameter_text(value: Any) -> str:
    """A parameter's value is always text: numbers without an exponent (1e5 -> 100000), booleans as
    true and false.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):  # before int, because Python's booleans are integers
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _plain(value)
    return to_json(value)


def display(value: Any) -> str:
    """`fmt.Sprint`: nil, true, 1.5, `[1 x]`, `map[a:1]`."""
    if value is None:
        return "<nil>"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(display, value)) + "]"
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{display(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, float):
        return float_text(value)
    return parameter_text(value)


def divided_by_zero(number: float) -> float:
    """What Go's floats make of `number / 0`: infinity with the sign of the number, NaN for 0."""
    if number == 0 or math.isnan(number):
        return math.nan
    return math.copysign(math.inf, number)


def quote(text: str) -> str:
    r"""`strconv.Quote` without the quotes. A control character becomes `\x01`, which is no JSON: Argo fails on it as well."""
    return "".join(ESCAPES.get(character) or _escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def _plain(number: float) -> str:
    text = float_text(number)
    if "e" not in text:
        return text
    return _without_exponent(number)


def _without_exponent(number: float) -> str:
    """As few digits as tell the number from its neighbours: `strconv.FormatFloat(…, 'f', -1, 64)`."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0")
