"""A parameter is declared once, as a field of a dataclass, with help, unit and range, and is read
from text by its declared type.

`parameter()` makes the field, `declared()` lists the parameters of a class, and `Parameter.parse()`
turns the text of `-p name=value`, or a preset's value, into a typed value or raises `BadInput` with
one line.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from config.errors import BadInput, shown

LONGEST_VALUE = 4096
"""Largest number of characters of a parameter's text; a path is the longest value that anybody
needs.
"""
INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
NOUNS: dict[type, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "1 to 8 integers",
}
MOST_ELEMENTS = 8


@dataclass(frozen=True)
class Parameter:
    """One declared parameter.

    kind: int, float, bool, str or tuple (of int). optional: the empty text means None. low, high:
    inclusive bounds, for each element of a tuple. pattern: what the whole text must match.
    canonical: returns the canonical spelling of a text, or raises `ValueError` with the reason.
    form: words for the allowed values, in place of the type and the range. identity: whether the
    value can change a training. later: whether only steps after the training read it. exponents:
    an integer may also be written as a whole number with an exponent, 1e6. secret: no message repeats
    the value.
    """

    name: str
    kind: type
    default: Any
    help: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    canonical: Callable[[str], str] | None = None
    form: str = ""
    identity: bool = True
    optional: bool = False
    exponents: bool = False
    later: bool = False
    secret: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values in words, for messages and tables."""
        if self.choices:
            words = " or ".join(self.choices)
        else:
            words = self.form or (
                "a whole number such as 1e6" if self.exponents else NOUNS[self.kind]
            )
            if not self.form and self.low is not None and self.high is not None:
                words += f" from {to_text(self.low)} to {to_text(self.high)}"
            if self.kind is tuple:
                words += " with commas between"
        return f"{words}, or empty" if self.optional else words

    @property
    def texts(self) -> tuple[str, ...]:
        """Every allowed text besides the empty one, if they can be listed."""
        return ("true", "false") if self.kind is bool else self.choices

    def parse(self, value: object) -> Any:
        """Convert a text, or a scalar or list of a preset, to the typed value. Raises `BadInput`."""
        if value is None or value == "":
            if self.optional:
                return None
            raise BadInput(f"empty value for {self.name!r}; allowed: {self.allowed}")
        if isinstance(value, str):
            refuse_hostile(self.name, value, said=self._said(value))
            typed = self._from_text(value)
        else:
            typed = self._from_typed(value)
        self._check(typed, value)
        return typed

    def _from_text(self, text: str) -> Any:
        if self.kind is str:
            return self._in_canonical_form(text)
        if self.kind is bool and text in ("true", "false"):
            return text == "true"
        if self.kind is int and INTEGER.fullmatch(text):
            return int(text)
        if self.exponents and NUMBER.fullmatch(text) and _is_whole(Decimal(text)):
            return int(Decimal(text))
        if self.kind is float and NUMBER.fullmatch(text):
            return float(text)
        if self.kind is tuple and all(INTEGER.fullmatch(part) for part in text.split(",")):
            return tuple(int(part) for part in text.split(","))
        raise self.refusal(text)

    def _in_canonical_form(self, text: str) -> str:
        if self.canonical is None:
            return text
        try:
            return self.canonical(text)
        except ValueError as error:
            raise self.refusal(text, f": {error}") from None

    def _from_typed(self, value: object) -> Any:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if (self.kind is bool and isinstance(value, bool)) or (self.kind is int and is_integer):
            return value
        if self.exponents and isinstance(value, float) and value.is_integer():
            return int(value)
        if self.kind is float and (is_integer or isinstance(value, float)):
            return float(typing.cast(float, value))
        if (
            self.kind is tuple
            and isinstance(value, list | tuple)
            and all(type(element) is int for element in value)
        ):
            return tuple(value)
        if self.kind is str and isinstance(value, bool | int | float):
            raise BadInput(
                f"{self.refusal(value)}; quote it, as in {self.name}: {to_text(value)!r}"
            )
        raise self.refusal(value)

    def _check(self, typed: Any, given: object) -> None:
        if self.choices and typed not in self.choices:
            raise self.refusal(given)
        if self.pattern is not None and not re.fullmatch(self.pattern, typed):
            raise self.refusal(given)
        numbers: Sequence[Any] = (
            typed if self.kind is tuple else (typed,) if self.kind in (int, float) else ()
        )
        for number in numbers:
            below = self.low is not None and number < self.low
            above = self.high is not None and number > self.high
            if below or above or not math.isfinite(number):
                raise self.refusal(given)
        if self.kind is tuple and not 1 <= len(typed) <= MOST_ELEMENTS:
            raise self.refusal(given)

    def refusal(self, value: object, because: str = "") -> BadInput:
        """The message `parameter 'runs' cannot be '0'; allowed: an integer from 1 to 256`."""
        refused = f"parameter {self.name!r} cannot be {self._said(value)}"
        return BadInput(f"{refused}{because}; allowed: {self.allowed}")

    def _said(self, value: object) -> str:
        """The value in a message."""
        return "what was given" if self.secret else shown(value)


def parameter(
    default: Any,
    *,
    help: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str | None = None,
    canonical: Callable[[str], str] | None = None,
    form: str = "",
    identity: bool = True,
    optional: bool = False,
    exponents: bool = False,
    later: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a parameter as a dataclass field. The arguments are those of `Parameter`; what only
    later steps read is not part of the identity.
    """
    described = {
        "help": help, "unit": unit, "low": low, "high": high, "choices": choices, "pattern": pattern,
        "canonical": canonical, "form": form, "identity": identity and not later, "optional": optional,
        "exponents": exponents, "later": later, "secret": secret,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=described)


def declared(owner: type) -> Mapping[str, Parameter]:
    """The parameters of a dataclass, by name and in order. Its fields must be made by
    `parameter()`.
    """
    return _declared(owner)


@functools.cache
def _declared(owner: Any) -> Mapping[str, Parameter]:
    hints = typing.get_type_hints(owner)
    return {field.name: of_field(field, hints[field.name]) for field in dataclasses.fields(owner)}


def of_field(field: dataclasses.Field[Any], hint: Any) -> Parameter:
    """The parameter of a field that `parameter()` made. hint: the declared type."""
    return Parameter(field.name, _kind(hint), field.default, **field.metadata)


def to_text(value: Any) -> str:
    """The text that `Parameter.parse` reads back as this value. None becomes the empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, list | tuple):
        return ",".join(str(element) for element in value)
    return str(value)


def cannot_be(
    name: str, value: object, where: str = "", *, because: str = "", allowed: str = ""
) -> BadInput:
    """The error that a parameter of an experiment has a wrong value, such as `parameter 'gpus' cannot be
    0 with device=cuda: torch needs one; allowed: 1`.

    value: a text is put in quotes. where: under which conditions it is wrong, `with device=cuda`.
    """
    said = shown(value) if isinstance(value, str) else to_text(value)
    condition = f" {where}" if where else ""
    reason = f": {because}" if because else ""
    remedy = f"; allowed: {allowed}" if allowed else ""
    return BadInput(f"parameter {name!r} cannot be {said}{condition}{reason}{remedy}")


def _is_whole(number: Decimal) -> bool:
    return number == number.to_integral_value()


def refuse_hostile(name: str, value: str, *, said: str = "") -> None:
    """Raise `BadInput` for texts that no value may contain: braces, which Argo expands, dollars,
    which Kubernetes expands, control characters, and texts that are too long. said: the value in the message; by default the value itself.
    """
    said = said or shown(value)
    if len(value) > LONGEST_VALUE:
        raise BadInput(
            f"parameter {name!r} is {len(value)} characters long; allowed: {LONGEST_VALUE}"
        )
    if "{" in value or "}" in value:
        raise BadInput(f"parameter {name!r} cannot be {said}; braces are not allowed in a value")
    if "$(" in value or "$$" in value:
        raise BadInput(
            f"parameter {name!r} cannot be {said}; '$(' and '$$' are not allowed in a value"
        )
    if not value.isprintable():
        raise BadInput(
            f"parameter {name!r} cannot be {said}; control characters and unusual spaces are not allowed in a value"
        )


def _kind(hint: Any) -> type:
    """`int | None` -> int, `tuple[int, ...]` -> tuple."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    kind = typing.get_origin(hint) or hint
    if kind not in NOUNS:
        raise TypeError(f"a parameter cannot be declared as {hint}")
    return typing.cast(type, kind)
