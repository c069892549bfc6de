"""Expands `withItems`, `withParam` and `withSequence`: one task becomes many, each with its own
`{{item}}`.

Source: Argo `expandTask`, `processItem`, `expandSequence`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from workflows.local.errors import ConditionError, WorkflowError
from workflows.local.language.go_values import parameter_text, to_json
from workflows.local.language.govaluate import should_execute
from workflows.local.language.tags import STRICT_ALL, Values, replace

Task = dict[str, Any]
FORMAT = re.compile(r"%[-+# 0]*\d*(?:\.\d+)?[dxXob]")
GO_TYPES: list[tuple[type, str]] = [
    (bool, "bool"),
    (str, "string"),
    (int, "number"),
    (float, "number"),
    (dict, "object"),
]
MOST_ITEMS = 100_000


def is_loop(task: Mapping[str, Any]) -> bool:
    """Whether a task has one of the three loops."""
    return (
        bool(task.get("withItems"))
        or bool(task.get("withParam"))
        or task.get("withSequence") is not None
    )


def expand_task(task: Task, values: Values) -> list[Task]:
    """The tasks that a task expands to (itself without a loop), with all tags replaced. Raises
    `WorkflowError`.
    """
    if not is_loop(task):
        return [task]
    try:
        items = _items(task)
    except WorkflowError:
        # A task that does not run needs no list: its producer may have been skipped.
        if _decided(task.get("when")) is not False:
            raise
        items = []
    body = {
        key: value
        for key, value in task.items()
        if key not in ("withItems", "withParam", "withSequence")
    }
    return [_one(body, index, item, values) for index, item in enumerate(items)]


def _one(body: Task, index: int, item: Any, values: Values) -> Task:
    scope = {**values, **item_values(item)}
    if _decided(body.get("when")) is False:
        expanded = replace(
            body, {name: value for name, value in scope.items() if value is not None}
        )
    else:
        expanded = replace(body, scope, strict=STRICT_ALL)
    return dict(expanded) | {
        "name": node_name(body["name"], index, item),
        "template": body["template"],
    }


def item_values(item: Any) -> dict[str, str]:
    """The values of `item` and, for maps, `item.KEY`."""
    if isinstance(item, dict):
        return {"item": to_json(item)} | {
            f"item.{key}": _item_text(value) for key, value in item.items()
        }
    return {"item": _item_text(item)}


def node_name(task: str, index: int, item: Any) -> str:
    """`runs(0:x)`; for maps `runs(0:k1:v1,k2:v2)` with sorted keys. Parentheses are dropped from
    values.
    """
    if isinstance(item, dict):
        shown = ",".join(sorted(f"{key}:{_item_text(value)}" for key, value in item.items()))
    elif isinstance(item, list):
        shown = "[" + " ".join(map(_item_text, item)) + "]"
    else:
        shown = _item_text(item)
    return f"{task}({index}:{shown.replace('(', '').replace(')', '')})"


def _item_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, _Written):
        return value.text
    if isinstance(value, str | bool | int | float):
        return parameter_text(value)
    return to_json(value)


def _decided(when: str | None) -> bool | None:
    try:
        return should_execute(when or "")
    except ConditionError:
        # The condition still holds a tag of the item; it is evaluated for each item.
        return None


def _items(task: Task) -> list[Any]:
    if task.get("withItems"):
        return list(task["withItems"])
    if task.get("withParam"):
        return _from_text(str(task["withParam"]))
    return list(sequence(task["withSequence"]))


class _Written(float):
    """A number of a list in JSON. Argo's items keep the text in which it was written: 1.0, 1e3."""

    text: str

    def __new__(cls, text: str) -> _Written:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _from_text(text: str) -> list[Any]:
    problem = f"withParam value could not be parsed as a JSON list: {text.strip()}: "
    try:
        items = json.loads(text, parse_float=_Written, parse_constant=_refused)
    except ValueError as error:
        raise WorkflowError(f"{problem}{error}") from None
    if items is None:
        return []
    if not isinstance(items, list):
        kind = next(name for of, name in GO_TYPES if isinstance(items, of))
        raise WorkflowError(
            f"{problem}json: cannot unmarshal {kind} into Go value of type []v1alpha1.Item"
        )
    return items


def _refused(constant: str) -> None:
    raise ValueError(f"invalid character in {constant}: no JSON")


def sequence(fields: Mapping[str, Any]) -> list[str]:
    """The items of a `withSequence`: `end` wins over `count`, a negative count counts down, 0 is
    empty.
    """
    start = _integer(fields.get("start", 0))
    if fields.get("end") is not None:
        end = _integer(fields["end"])
    elif fields.get("count") is not None:
        count = _integer(fields["count"])
        if count == 0:
            return []
        # A count of -1 counts down to -2: the controller subtracts one in this case, too.
        end = start + count - 1
    else:
        raise WorkflowError("neither end nor count was specified in withSequence")
    if abs(end - start) >= MOST_ITEMS:
        raise WorkflowError(
            f"withSequence has {abs(end - start) + 1} items; at most {MOST_ITEMS} are supported"
        )
    form = str(fields.get("format") or "%d")
    if not FORMAT.search(form):
        raise WorkflowError(f"withSequence.format {form!r} has no integer verb such as %d or %02x")
    direction = 1 if end >= start else -1
    return [_formatted(form, number) for number in range(start, end + direction, direction)]


def _formatted(form: str, number: int) -> str:
    def replacement(verb: re.Match[str]) -> str:
        if verb[0].endswith("b"):
            return format(number, "b")  # Python's `%` has no binary verb
        return verb[0] % number

    return FORMAT.sub(replacement, form, count=1)


def _integer(value: Any) -> int:
    text = parameter_text(value)
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise WorkflowError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)
