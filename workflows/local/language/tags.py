"""`{{tag}}` and `{{= expression }}`: textual replacement in the JSON of an object, as Argo does it.

Replaced values are scanned again by the next pass, never by the same one. Values are escaped with
Go's quoting, so that a control character makes invalid JSON, which is an error. Sources: Argo
`util/template` (4.1), github.com/valyala/fasttemplate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from workflows.local.errors import MissingTagError, TagError
from workflows.local.language.expression import evaluate, expand, unguarded_names
from workflows.local.language.expression_parser import ExpressionError
from workflows.local.language.functions import FUNCTIONS, PREDICATES
from workflows.local.language.go_values import quote, to_json

Values = Mapping[str, str | None]
"""The values of tags. None stands for an output without a default of a task that was skipped."""
LATE = (
    "item",
    "retries",
    "lastRetry.exitCode",
    "lastRetry.status",
    "lastRetry.duration",
    "lastRetry.message",
    "workflow.status",
    "workflow.failures",
)
"""An expression that names one of these before its value is known waits for a later pass."""
STRICT_TASKS = re.compile(r"(tasks|steps)(\.|$)")
STRICT_ALL = re.compile("")


def replace(document: Any, values: Values, *, strict: re.Pattern[str] | None = None) -> Any:
    """A copy of `document` (JSON values) with its tags replaced; tags that are unknown stay, unless
    `strict` matches their names.

    Raises `MissingTagError` for a strict tag without a value and `TagError` for everything else
    that cannot be replaced.
    """
    text = json.dumps(document, ensure_ascii=False)
    # Most documents hold no tag; they need no copy.
    if "{{" not in text:
        return document
    replaced = replace_text(text, values, strict=strict)
    try:
        return json.loads(replaced)
    except ValueError:
        raise TagError(
            "cannot finish template replacement because the result was invalid JSON"
        ) from None


def replace_text(text: str, values: Values, *, strict: re.Pattern[str] | None = None) -> str:
    """One pass over a JSON text; see `replace`."""
    nested: dict[str, Any] = {}
    if "{{=" in text:
        nested = expand(values)
    replaced: list[str] = []
    for literal, piece in _pieces(text):
        if literal:
            replaced.append(piece)
        elif piece.startswith("="):
            replaced.append(_expression(piece[1:], nested, strict))
        else:
            replaced.append(_simple(piece, values, strict))
    return "".join(replaced)


def tags(document: Any) -> list[str]:
    """The trimmed names of all simple tags in a document; raises `TagError` where a tag has no
    end.
    """
    pieces = _pieces(json.dumps(document, ensure_ascii=False))
    return [piece.strip() for literal, piece in pieces if not literal and not piece.startswith("=")]


def expressions(document: Any) -> list[str]:
    """The sources of all expression tags in a document; raises `TagError` for one that has no end or
    is no text.
    """
    pieces = _pieces(json.dumps(document, ensure_ascii=False))
    return [_source(piece[1:]) for literal, piece in pieces if not literal and piece[:1] == "="]


def _source(escaped: str) -> str:
    """An expression as it was before the document was made JSON."""
    try:
        return str(json.loads(f'"{escaped}"'))
    except ValueError:
        raise TagError(f"failed to unmarshall JSON expression: {escaped}") from None


def evaluate_condition(source: str, values: Values) -> bool:
    """An expression that must be a boolean (`retryStrategy.expression`); raises
    `ExpressionError`.
    """
    result = evaluate(source, expand(values))
    if not isinstance(result, bool):
        raise ExpressionError(f"expected boolean evaluation for '{source}'. Got {to_json(result)}")
    return result


def _pieces(text: str) -> list[tuple[bool, str]]:
    """The text as pairs (is literal, piece). The piece of a tag is what stands between the braces."""
    pieces: list[tuple[bool, str]] = []
    position = 0
    while (start := text.find("{{", position)) >= 0:
        end = text.find("}}", start + 2)
        if end < 0:
            raise TagError(
                f'Cannot find end tag="}}}}" in the template={text!r} starting from {text[start + 2 :]!r}'
            )
        pieces += [(True, text[position:start]), (False, text[start + 2 : end])]
        position = end + 2
    return [*pieces, (True, text[position:])]


def _simple(tag: str, values: Values, strict: re.Pattern[str] | None) -> str:
    name = tag.strip()
    if name in values:
        value = values[name]
        if value is None:
            raise TagError(
                f"unable to substitute {{{{{tag}}}}}: output is an absent optional (skipped/omitted node with no default)"
            )
        return quote(value)
    # In `{{a.{{b}}}}` the first `}}` ends the tag: only `b` is replaced by this pass, and the next
    # one finds the tag that this makes.
    outer, separator, inner = tag.rpartition("{{")
    if separator and outer and inner in values:
        value = values[inner]
        if value is None:
            raise TagError(
                f'unable to substitute nested tag {{{{{tag}}}}}: "{inner}" is an absent optional'
            )
        return "{{" + outer + quote(value)
    if strict is not None and strict.match(name):
        raise MissingTagError(tag)
    return "{{" + tag + "}}"


def _expression(escaped: str, variables: dict[str, Any], strict: re.Pattern[str] | None) -> str:
    unchanged = "{{=" + escaped + "}}"
    source = _source(escaped)
    missing = _missing(source, variables)
    for name in missing:
        if strict is not None and strict.match(name):
            raise MissingTagError(name, f"failed to evaluate expression: {name} is missing")
    lenient = bool(missing) or strict is None
    # A later pass knows the names in LATE, so until then not even a part is evaluated.
    if lenient and any(name in LATE for name in missing):
        return unchanged
    try:
        result = evaluate(source, variables)
    except ExpressionError as error:
        if lenient:
            return unchanged
        raise TagError(f"failed to evaluate expression: {error}") from None
    if result is None:
        if lenient:
            return unchanged
        raise TagError(f'failed to evaluate expression "{quote(source)}"')
    return _written(result)


def _written(result: Any) -> str:
    """The value as it is inserted: text as it is, everything else as JSON."""
    try:
        text = to_json(result)
    except ValueError as error:
        raise TagError(f"failed to marshal evaluated expression: {error}") from None
    # A text's JSON is escaped already, so it goes in without its quotes.
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    return quote(text)


def _missing(source: str, variables: dict[str, Any]) -> list[str]:
    try:
        names = unguarded_names(source)
    except (ExpressionError, RecursionError):
        return []
    return [
        name
        for name in names
        if name not in FUNCTIONS
        and name not in PREDICATES
        and name != "sprig"
        and not _has(variables, name)
    ]


def _has(variables: Mapping[str, Any], name: str) -> bool:
    level: Any = variables
    for part in name.split("."):
        if not isinstance(level, Mapping) or part not in level:
            return False
        level = level[part]
    return True
