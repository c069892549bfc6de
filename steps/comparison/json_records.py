"""Dataclasses as JSON and back, by the types of their fields.

Arrays and tuples become lists. A mapping whose keys are tuples becomes a list of pairs. A path below
the folder that is given becomes relative to it, so that the folder may be moved. A field that a
document lacks has its default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np


def to_document(value: Any, folder: Path) -> Any:
    """A value of a dataclass, or of one of its fields, as JSON can write it."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: to_document(getattr(value, field.name), folder)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value.relative_to(folder) if value.is_relative_to(folder) else value)
    if isinstance(value, Mapping):
        return _mapping_document(value, folder)
    if isinstance(value, tuple | list):
        return [to_document(one, folder) for one in value]
    return value


def _mapping_document(value: Mapping[Any, Any], folder: Path) -> Any:
    if all(isinstance(key, str) for key in value):
        return {key: to_document(one, folder) for key, one in value.items()}
    return [[list(key), to_document(one, folder)] for key, one in value.items()]


def from_document(kind: Any, document: Any, folder: Path) -> Any:
    """The value of a type that `to_document` has written. Raises `ValueError`, `TypeError` or
    `KeyError` for a document that has another form.
    """
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        unknown = document.keys() - hints.keys()
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}")
        return kind(
            **{name: from_document(hints[name], one, folder) for name, one in document.items()}  # type: ignore[operator]
        )
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (inner,) = (one for one in arguments if one is not NoneType)
        return None if document is None else from_document(inner, document, folder)
    if origin is np.ndarray:
        return np.array(document, get_args(arguments[1])[0])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(arguments, document, folder)
    if origin is tuple and Ellipsis not in arguments:
        return tuple(
            from_document(of_one, one, folder)
            for of_one, one in zip(arguments, document, strict=True)
        )
    if origin is not None and issubclass(origin, Sequence):
        return tuple(from_document(arguments[0], one, folder) for one in document)
    return folder / document if kind is Path else kind(document)


def _mapping(arguments: Sequence[Any], document: Any, folder: Path) -> dict[Any, Any]:
    of_key, of_value = arguments
    pairs = document.items() if isinstance(document, Mapping) else document
    return {
        from_document(of_key, key, folder): from_document(of_value, value, folder)
        for key, value in pairs
    }


def _hints(kind: Any) -> Mapping[str, Any]:
    return _HINTS.setdefault(kind, get_type_hints(kind))


_HINTS: dict[Any, Mapping[str, Any]] = {}
