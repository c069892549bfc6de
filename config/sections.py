"""Reads a file of settings into dataclasses whose fields declare help, type and allowed values.

A field is a parameter (`config.parameters.parameter`), another dataclass, a list of one, or is read by
a function of its own (`setting`). Each refusal names the setting by its dotted path.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from config.errors import BadInput, shown, unknown
from config.parameters import of_field, refuse_hostile, to_text

KIND = "cluster setting"
READ = "read"


@dataclass(frozen=True)
class Row:
    """A setting as a table of the documentation shows it."""

    name: str
    default: str
    allowed: str
    help: str


def setting(
    read: Callable[[Any, str], Any], *, help: str, form: str, default: Any = MISSING
) -> Any:
    """Declare a field that `read(value, path)` reads. form: the allowed values in words. default: the
    value of a setting that the file does not name, as the file would have it.
    """
    if default is MISSING:
        return dataclasses.field(metadata={READ: read, "help": help, "form": form})
    made = read(default, "")
    metadata = {READ: read, "help": help, "form": form}
    return dataclasses.field(default_factory=lambda: made, metadata=metadata)


def section(kind: type[Any], value: Any, path: str) -> Any:
    """Build a dataclass from a mapping. path: the dotted path of the mapping, for messages. Raises
    `BadInput`.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(value, dict):
        raise BadInput(
            f"{path!r} cannot be {shown(value)}; allowed: a mapping with {', '.join(fields)}"
        )
    for name in value:
        if name not in fields:
            known = [below(path, one) for one in fields]
            raise unknown(KIND, below(path, str(name)), known)
    hints = typing.get_type_hints(kind)
    return kind(
        **{
            name: _field(field, hints[name], value.get(name, ...), below(path, name))
            for name, field in fields.items()
        }
    )


def _field(field: dataclasses.Field[Any], hint: Any, value: Any, path: str) -> Any:
    is_given = value is not ...
    if READ in field.metadata:
        if not is_given and field.default_factory is not MISSING:
            return field.default_factory()
        return field.metadata[READ](value if is_given else None, path)
    if not is_given:
        value = None if field.default is MISSING else field.default
    if field.metadata:
        return dataclasses.replace(of_field(field, hint), name=path).parse(value)
    inner = _dataclass_of(hint)
    if inner is not hint and value is None:
        return None
    return section(inner, value, path)


def _dataclass_of(hint: Any) -> type[Any]:
    """The dataclass of a field that is one, or that may be empty."""
    parts: list[type[Any]] = [hint, *typing.get_args(hint)]
    return next(part for part in parts if dataclasses.is_dataclass(part))


def rows(kind: type[Any], path: str = "") -> Iterator[Row]:
    """Each setting of a dataclass, and those of the dataclasses in it, in order."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name = below(path, field.name)
        if READ in field.metadata:
            yield Row(name, "", field.metadata["form"], field.metadata["help"])
        elif field.metadata:
            parameter = of_field(field, hints[field.name])
            default = "" if parameter.default is MISSING else to_text(parameter.default)
            unit = f" ({parameter.unit})" if parameter.unit else ""
            yield Row(name, default, parameter.allowed + unit, parameter.help)
        else:
            yield from rows(_dataclass_of(hints[field.name]), name)


def below(path: str, name: str) -> str:
    """The path of a setting inside another one."""
    return f"{path}.{name}" if path else name


def list_of(
    read: Callable[[Any, str], Any], form: str = "a list"
) -> Callable[[Any, str], tuple[Any, ...]]:
    """A function that reads a list, each item by another function."""

    def read_list(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise BadInput(f"{path!r} cannot be {shown(value)}; allowed: {form}")
        return tuple(read(one, f"{path}[{index}]") for index, one in enumerate(value))

    return read_list


def list_of_sections(kind: type[Any]) -> Callable[[Any, str], tuple[Any, ...]]:
    """A function that reads a list of mappings, each into this dataclass."""
    return list_of(lambda value, path: section(kind, value, path))


def mapping_of_texts(
    value: Any,
    path: str,
    check: Callable[[str, str, str], None] | None = None,
) -> Mapping[str, str]:
    """Read a mapping of text to text. check: is called with each path, name and text."""
    if not isinstance(value, dict):
        raise BadInput(f"{path!r} cannot be {shown(value)}; allowed: a mapping")
    for name, text in value.items():
        refuse_hostile(path, name)
        if not isinstance(text, str):
            raise BadInput(f"{path}.{name} cannot be {shown(text)}; allowed: text, quote it")
        refuse_hostile(f"{path}.{name}", text)
        if check is not None:
            check(f"{path}.{name}", name, text)
    return value
