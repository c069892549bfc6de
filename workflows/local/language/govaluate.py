"""`when`: the condition language govaluate, as far as Argo's manifests can reach it (no parameters,
no functions).

Bare words are strings, quoted dates are numbers of seconds, there are no exponents, either quote
ends a string. Tokens are checked pairwise (`TRANSITIONS`) before anything is evaluated. Source:
github.com/Knetic/govaluate (lexer, `validLexerStates`, stages); error texts are its own.
"""

from __future__ import annotations

import datetime
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workflows.local.errors import ConditionError
from workflows.local.language.go_values import display, divided_by_zero

OPERANDS = {"NUMERIC", "BOOLEAN", "VARIABLE", "STRING", "TIME"}
STARTS = OPERANDS | {"PREFIX", "ACCESSOR", "CLAUSE"}
AFTER_VALUE = {"MODIFIER", "COMPARATOR", "LOGICALOP", "CLAUSE_CLOSE", "TERNARY", "SEPARATOR"}
TRANSITIONS: dict[str, set[str]] = {
    "UNKNOWN": STARTS,
    "CLAUSE": STARTS | {"CLAUSE_CLOSE"},
    "CLAUSE_CLOSE": OPERANDS | AFTER_VALUE | {"CLAUSE"},
    "NUMERIC": AFTER_VALUE,
    "BOOLEAN": AFTER_VALUE,
    "STRING": AFTER_VALUE,
    "TIME": AFTER_VALUE - {"TERNARY"},
    "VARIABLE": AFTER_VALUE,
    "ACCESSOR": AFTER_VALUE | {"CLAUSE"},
    "MODIFIER": (STARTS - {"TIME"}) | {"CLAUSE_CLOSE"},
    "COMPARATOR": STARTS | {"CLAUSE_CLOSE"},
    "LOGICALOP": STARTS | {"CLAUSE_CLOSE"},
    "PREFIX": {"NUMERIC", "BOOLEAN", "VARIABLE", "ACCESSOR", "CLAUSE", "CLAUSE_CLOSE"},
    "TERNARY": STARTS,
    "SEPARATOR": STARTS,
}
ENDS = OPERANDS | {"CLAUSE_CLOSE", "ACCESSOR"}
SYMBOLS = {
    "MODIFIER": {"+", "-", "*", "/", "%", "**", "&", "|", "^", "<<", ">>"},
    "LOGICALOP": {"&&", "||"},
    "COMPARATOR": {"==", "!=", ">", ">=", "<", "<=", "=~", "!~"},
    "TERNARY": {"?", ":", "??"},
}
PREFIXES = {"-", "!", "~"}
# The levels of govaluate's planner, the loosest operators first. They are not those of Go, where
# `&` and `<<` bind like `*`, and `|` and `^` like `+`.
LEVELS = [
    ["||"],
    ["&&"],
    ["==", "!=", ">", ">=", "<", "<=", "=~", "!~", "in"],
    ["&", "|", "^"],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/", "%"],
    ["**"],
]
DATES = [
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M%z",
]
DATE_SHAPE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")


@dataclass(frozen=True)
class Token:
    """A lexical unit; `value` is what govaluate prints in its messages."""

    kind: str
    value: Any


def should_execute(when: str) -> bool:
    """Whether a task runs, given its `when` after substitution; raises `ConditionError` with Argo's
    message.
    """
    if when == "":
        return True
    try:
        tokens = _tokens(when)
        _check(tokens)
    except ConditionError as error:
        if "Invalid token" in str(error):
            hint = ' (hint: try wrapping the affected expression in quotes ("))'
        else:
            hint = ""
        raise ConditionError(f"Invalid 'when' expression '{when}': {error}{hint}") from None
    try:
        result = _Evaluation(tokens).result()
    except ConditionError as error:
        raise ConditionError(f"Failed to evaluate 'when' expresion '{when}': {error}") from None
    except RecursionError:
        raise ConditionError(
            f"Failed to evaluate 'when' expresion '{when}': nested too deeply"
        ) from None
    if not isinstance(result, bool):
        raise ConditionError(f"Expected boolean evaluation for '{when}'. Got {display(result)}")
    return result


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        previous = "UNKNOWN"
        if tokens:
            previous = tokens[-1].kind
        token, position = _read(text, position, previous)
        tokens.append(token)
    # This only counts; `)(` is refused when the tokens are checked pairwise.
    kinds = [token.kind for token in tokens]
    if kinds.count("CLAUSE") != kinds.count("CLAUSE_CLOSE"):
        raise ConditionError("Unbalanced parenthesis")
    return tokens


def _read(text: str, start: int, previous: str) -> tuple[Token, int]:
    character = text[start]
    if character.isdigit() or character == ".":
        return _number(text, start)
    if character == ",":
        return Token("SEPARATOR", ","), start + 1
    if character == "[":
        end = text.find("]", start)
        if end < 0:
            raise ConditionError("Unclosed parameter bracket")
        return Token("VARIABLE", text[start + 1 : end]), end + 1
    if character.isalpha():
        return _word(text, start)
    if character in "'\"":
        return _string(text, start)
    # A parenthesis is a rune in Go, which its messages print as a number.
    if character == "(":
        return Token("CLAUSE", ord(character)), start + 1
    if character == ")":
        return Token("CLAUSE_CLOSE", ord(character)), start + 1
    return _symbol(text, start, previous)


def _number(text: str, start: int) -> tuple[Token, int]:
    if matched := re.compile(r"0x([0-9a-fA-F]+)").match(text, start):
        return Token("NUMERIC", float(int(matched[1], 16))), matched.end()
    end = start
    while end < len(text) and (text[end].isdigit() or text[end] == "."):
        end += 1
    try:
        return Token("NUMERIC", float(text[start:end])), end
    except ValueError:
        raise ConditionError(
            f"Unable to parse numeric value '{text[start:end]}' to float64"
        ) from None


def _word(text: str, start: int) -> tuple[Token, int]:
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] in "_."):
        end += 1
    word = text[start:end]
    if word in ("true", "false"):
        return Token("BOOLEAN", word == "true"), end
    if word in ("in", "IN"):
        return Token("COMPARATOR", "in"), end
    if "." not in word:
        return Token("VARIABLE", word), end
    if word.endswith("."):
        raise ConditionError(f"Hanging accessor on token '{word}'")
    for field in word.split(".")[1:]:
        if not field or field[0].upper() != field[0]:
            raise ConditionError(f"Unable to access unexported field '{field}' in token '{word}'")
    return Token("ACCESSOR", word), end


def _string(text: str, start: int) -> tuple[Token, int]:
    characters: list[str] = []
    position = start + 1
    while position < len(text) and text[position] not in "'\"":
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
        characters.append(text[position])
        position += 1
    if position >= len(text):
        raise ConditionError("Unclosed string literal")
    value = "".join(characters)
    seconds = _date(value)
    if seconds is None:
        return Token("STRING", value), position + 1
    return Token("TIME", seconds), position + 1


def _date(text: str) -> float | None:
    if not DATE_SHAPE.fullmatch(text):
        return None
    whole = re.sub(r"\.\d+", "", text)
    for shape in DATES:
        try:
            moment = datetime.datetime.strptime(whole, shape)
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return float(int(moment.timestamp()))
    return None


def _symbol(text: str, start: int, previous: str) -> tuple[Token, int]:
    end = start
    while end < len(text) and not (
        text[end].isalnum() or text[end].isspace() or text[end] in "()[]'\""
    ):
        end += 1
    symbol = text[start:end]
    if symbol in PREFIXES and "PREFIX" in TRANSITIONS[previous]:
        return Token("PREFIX", symbol), end
    for kind, symbols in SYMBOLS.items():
        if symbol in symbols:
            return Token(kind, symbol), end
    raise ConditionError(f"Invalid token: '{symbol}'")


def _check(tokens: list[Token]) -> None:
    state = "UNKNOWN"
    last = "<nil>"
    for token in tokens:
        shown = display(token.value)
        if token.kind not in TRANSITIONS[state]:
            if state == "VARIABLE" and token.kind == "CLAUSE":
                raise ConditionError(f"Undefined function {last}")
            raise ConditionError(
                f"Cannot transition token types from {state} [{last}] to {token.kind} [{shown}]"
            )
        state = token.kind
        last = shown
    if state not in ENDS:
        raise ConditionError("Unexpected end of expression")


class _Evaluation:
    """Recursive descent over the tokens. Each method returns a function that computes its part, so
    that a side which `&&`, `||`, `?` or `??` does not need is parsed but never computed.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    def result(self) -> Any:
        value = self._separated()()
        if self.position < len(self.tokens):
            token = self.tokens[self.position]
            raise ConditionError(
                f"Unable to plan token kind: '{token.kind}', value: '{display(token.value)}'"
            )
        return value

    def _take(self, *symbols: str) -> str | None:
        if self.position < len(self.tokens):
            token = self.tokens[self.position]
            if token.kind not in ("STRING", "VARIABLE") and token.value in symbols:
                self.position += 1
                return str(token.value)
        return None

    def _separated(self) -> Callable[[], Any]:
        parts = [self._ternary()]
        while self._take(","):
            parts.append(self._ternary())
        if len(parts) == 1:
            return parts[0]
        return lambda: [part() for part in parts]

    def _ternary(self) -> Callable[[], Any]:
        condition = self._level(0)
        if self._take("??"):
            return _coalesced(condition, self._ternary())
        if not self._take("?"):
            return condition
        yes = self._ternary()
        no = None
        if self._take(":"):
            no = self._ternary()
        return _conditional(condition, yes, no)

    def _level(self, level: int) -> Callable[[], Any]:
        if level == len(LEVELS):
            return self._prefixed()
        left = self._level(level + 1)
        while symbol := self._take(*LEVELS[level]):
            left = _binary(symbol, left, self._level(level + 1))
        return left

    def _prefixed(self) -> Callable[[], Any]:
        if (symbol := self._take_prefix()) is None:
            return self._value()
        operand = self._prefixed()
        return lambda: _prefix(symbol, operand())

    def _take_prefix(self) -> str | None:
        if self.position < len(self.tokens) and self.tokens[self.position].kind == "PREFIX":
            self.position += 1
            return str(self.tokens[self.position - 1].value)
        return None

    def _value(self) -> Callable[[], Any]:
        if self.position >= len(self.tokens):
            raise ConditionError("Unexpected end of expression")
        token = self.tokens[self.position]
        self.position += 1
        if token.kind == "CLAUSE":
            after_in = self.position > 1 and self.tokens[self.position - 2] == Token(
                "COMPARATOR", "in"
            )
            inner = self._separated()
            # The closing parenthesis needs no check, because the tokens are balanced.
            self.position += 1
            if after_in:
                return _as_list(inner)
            return inner
        if token.kind == "ACCESSOR":
            raise ConditionError(f"No parameter '{token.value.split('.')[0]}' found.")
        return lambda: token.value


def _coalesced(value: Callable[[], Any], other: Callable[[], Any]) -> Callable[[], Any]:
    def evaluate() -> Any:
        found = value()
        if found is None:
            return other()
        return found

    return evaluate


def _conditional(
    condition: Callable[[], Any], yes: Callable[[], Any], no: Callable[[], Any] | None
) -> Callable[[], Any]:
    def evaluate() -> Any:
        if _boolean(condition(), "?", "ternary operator"):
            return yes()
        if no is None:
            return None
        return no()

    return evaluate


def _as_list(value: Callable[[], Any]) -> Callable[[], Any]:
    """What stands in parentheses after `in` is a list, even if it is one value."""

    def evaluate() -> Any:
        found = value()
        if isinstance(found, list):
            return found
        return [found]

    return evaluate


def _binary(symbol: str, left: Callable[[], Any], right: Callable[[], Any]) -> Callable[[], Any]:
    if symbol == "&&":
        return lambda: _boolean(left(), "&&") and _boolean(right(), "&&")
    if symbol == "||":
        return lambda: _boolean(left(), "||") or _boolean(right(), "||")
    return lambda: _operate(symbol, left(), right())


def _boolean(value: Any, symbol: str, role: str = "logical operator") -> bool:
    if not isinstance(value, bool):
        raise ConditionError(
            f"Value '{display(value)}' cannot be used with the {role} '{symbol}', it is not a bool"
        )
    return value


def _operate(symbol: str, left: Any, right: Any) -> Any:
    if symbol in ("==", "!="):
        return (type(left) is type(right) and left == right) == (symbol == "==")
    if symbol == "in":
        if not isinstance(right, list):
            raise ConditionError(
                f"Value '{display(right)}' cannot be used with the comparator 'in', it is not a number"
            )
        return any(type(left) is type(value) and left == value for value in right)
    if symbol in ("=~", "!~"):
        return _matches(left, right) == (symbol == "=~")
    if symbol in COMPARISONS:
        return COMPARISONS[symbol](*_comparable(symbol, left, right))
    if symbol == "+" and (isinstance(left, str) or isinstance(right, str)):
        return display(left) + display(right)
    return _arithmetic(symbol, _number_of(symbol, left), _number_of(symbol, right))


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _comparable(symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    if type(left) is not type(right) or not isinstance(left, float | str):
        raise ConditionError(
            f"Value '{display(left)}' cannot be used with the comparator '{symbol}', it is not a number"
        )
    return left, right


def _matches(left: Any, right: Any) -> bool:
    for value in (left, right):
        if not isinstance(value, str):
            raise ConditionError(
                f"Value '{display(value)}' cannot be used with the comparator '=~', it is not a number"
            )
    try:
        return re.search(right, left) is not None
    except re.error as error:
        raise ConditionError(f"Unable to compile regexp pattern '{right}': {error}") from None


def _number_of(symbol: str, value: Any) -> float:
    if not isinstance(value, float):
        raise ConditionError(
            f"Value '{display(value)}' cannot be used with the modifier '{symbol}', it is not a number"
        )
    return value


def _arithmetic(symbol: str, left: float, right: float) -> float:
    whole: dict[str, Callable[[int, int], int]] = {
        "&": operator.and_,
        "|": operator.or_,
        "^": operator.xor,
    }
    shifts: dict[str, Callable[[int, int], int]] = {"<<": operator.lshift, ">>": operator.rshift}
    try:
        if symbol in whole:
            return float(whole[symbol](int(left), int(right)))
        if symbol in shifts:
            # Go shifts a 64-bit integer; without a bound Python would make one of any size.
            return float(shifts[symbol](int(left), min(int(right), 64)))
        numbers: dict[str, Callable[[float, float], float]] = {
            "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": math.fmod, "**": math.pow,
        }  # fmt: skip
        return numbers[symbol](left, right)
    except ZeroDivisionError:
        return divided_by_zero(left)
    except (ValueError, OverflowError):
        return math.nan


def _prefix(symbol: str, value: Any) -> Any:
    if symbol == "!" and isinstance(value, bool):
        return not value
    if symbol == "-" and isinstance(value, float):
        return -value
    if symbol == "~" and isinstance(value, float):
        return float(~int(value))
    raise ConditionError(f"Value '{display(value)}' cannot be used with the prefix '{symbol}'")
