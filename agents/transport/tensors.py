"""Numpy arrays as raw bytes. Reading them copies nothing, and allocates nothing for what a message
only claims to hold.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from agents.distributed.interfaces import Columns, Spec, Specs
from agents.transport import learner_pb2 as wire

Reason = Literal["malformed", "columns", "type", "shape", "size", "value"]


class BadMessage(Exception):
    """What arrived is not what was agreed on. reason: what is counted; the message names details."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


def pack(columns: Columns) -> list[wire.Tensor]:
    """Any shapes; the bytes are in row-major order."""
    return [
        wire.Tensor(name=name, dtype=_name(array.dtype), shape=array.shape, data=array.tobytes())
        for name, array in columns.items()
    ]


def unpack(tensors: Iterable[wire.Tensor], specs: Specs, most: int) -> Columns:
    """Read-only arrays [B, *spec.shape] of exactly the columns of `specs`, with one B of 1 to `most`
    for all of them.

    Raises `BadMessage`.
    """
    columns: Columns = {}
    count = 0
    for tensor in tensors:
        if tensor.name not in specs or tensor.name in columns:
            raise BadMessage("columns", f"column {tensor.name[:80]!r} is unknown or comes twice")
        columns[tensor.name] = array = unpack_one(tensor, specs[tensor.name], most)
        count = count or len(array)
        if len(array) != count:
            raise BadMessage("shape", f"{tensor.name}: {len(array)} rows where others have {count}")
    if len(columns) < len(specs):
        missing = ", ".join(sorted(specs.keys() - columns.keys()))
        raise BadMessage("columns", f"columns are missing: {missing}")
    return columns


def unpack_one(tensor: wire.Tensor, spec: Spec, most: int) -> np.ndarray:
    """A read-only array [B, *spec.shape], with B from 1 to `most`; raises `BadMessage`."""
    name = tensor.name
    if tensor.dtype != spec.dtype:
        raise BadMessage("type", f"{name} is {tensor.dtype[:20]!r}, not {spec.dtype!r}")
    shape = tuple(tensor.shape[: len(spec.shape) + 2])
    if shape[1:] != spec.shape or not shape or not 1 <= shape[0] <= most:
        expected = (f"1 to {most}", *spec.shape)
        raise BadMessage("shape", f"{name} is {list(shape)}, not [{', '.join(map(str, expected))}]")
    data: Any = tensor.data
    expected_bytes = shape[0] * size_bytes(spec)
    if len(data) != expected_bytes:
        raise BadMessage("size", f"{name} has {len(data)} bytes, not {expected_bytes}")
    array: np.ndarray = np.ndarray(shape, spec.dtype, buffer=data)
    if spec.dtype == "bool" and data.translate(None, b"\0\1"):
        raise BadMessage("value", f"{name} has a byte that is no boolean: undefined in numpy")
    return array


@functools.cache  # a learner has few, and asks for them with every message
def size_bytes(spec: Spec) -> int:
    """Of one unroll's part."""
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


@functools.cache  # numpy makes it up anew: half of the time that it takes to pack a small array
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name
