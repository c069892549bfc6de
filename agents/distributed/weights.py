"""Network weights as one buffer that is packed once per version, however many actors ask for it.

8 bytes      the header's length, little-endian
header       JSON: type, shape and offset of every array
arrays       little-endian, in C order, each at a multiple of 64 bytes
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from agents.devices import arrays as arrays_of
from agents.devices import copy_into
from agents.distributed.protocol import Columns, Version, Weights
from agents.environments.normalisation import ObservationNormaliser
from agents.states import to_tensors

ALIGNMENT = 64
LENGTH_BYTES = 8
TYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
"""The types that may be sent, by numpy's names."""


class _Place(NamedTuple):
    """The place of one array: its bytes, counted from the first array's."""

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    first: int
    end: int


class Packer:
    """Writes the arrays of weights; one thread at a time."""

    def __init__(self) -> None:
        self._buffers = Buffers()

    def pack(self, arrays: Columns) -> memoryview:
        """All of it, read-only; it stays as it is for as long as this view, or a part of it, is
        held.
        """
        described = dict[str, Any]()
        end = 0
        for name, array in arrays.items():
            described[name] = [array.dtype.newbyteorder("<").str, list(array.shape), end]
            end = _aligned(end + array.nbytes)
        # The header is known only now, but offsets count from the first array, so they do not
        # depend on it.
        header = json.dumps(described).encode()
        begin = _aligned(LENGTH_BYTES + len(header))
        # A fresh buffer of 40 MB costs ten times a reused one, by page faults.
        buffer = self._buffers.take(begin + end)
        buffer[:LENGTH_BYTES] = np.frombuffer(
            len(header).to_bytes(LENGTH_BYTES, "little"), np.uint8
        )
        buffer[LENGTH_BYTES : LENGTH_BYTES + len(header)] = np.frombuffer(header, np.uint8)
        for name, array in arrays.items():
            _view(buffer, _place(described[name]), begin)[...] = array
        return buffer.data.toreadonly()


def unpack(version: Version, packed: memoryview) -> Weights:
    """Read what `Packer.pack` wrote. The arrays are read-only views of it. Raises `ValueError` with
    the reason.
    """
    seen = np.frombuffer(packed, np.uint8)
    length = int.from_bytes(seen[:LENGTH_BYTES].tobytes(), "little")
    if len(seen) < LENGTH_BYTES + length:
        raise ValueError(f"weights of {len(seen)} bytes have a header of {length}")
    places = _places(seen[LENGTH_BYTES : LENGTH_BYTES + length].tobytes())
    begin = _aligned(LENGTH_BYTES + length)
    arrays = {name: _view(seen, place, begin) for name, place in places.items()}
    return Weights(version=version, arrays=arrays)


def prefixed(arrays: Mapping[str, Any], prefix: str) -> Columns:
    """With names that begin so: of several that travel together."""
    return {prefix + name: np.asarray(array) for name, array in arrays.items()}


def named(arrays: Columns, prefix: str) -> Columns:
    """The arrays whose names have this prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


@functools.lru_cache(maxsize=2)
def _places(header: bytes) -> dict[str, _Place]:
    """Read once: it is the same for every version of a network's weights."""
    try:
        return {str(name): _place(described) for name, described in json.loads(header).items()}
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"weights have no such header: {error!r}") from error


def _place(described: list[Any]) -> _Place:
    """The place of an array, from the header."""
    name = described[0]
    shape = tuple(map(int, described[1]))
    first = int(described[2])
    if name not in TYPES or min((0, first, *shape)) < 0:
        raise ValueError(f"weights have an array of {name} {shape} at {first}")
    kind = np.dtype(name)
    return _Place(kind, shape, first, first + math.prod(shape) * kind.itemsize)


def _view(buffer: np.ndarray, place: _Place, begin: int) -> np.ndarray:
    """A view of one array in a buffer whose first array begins there."""
    first = begin + place.first
    end = begin + place.end
    if end > len(buffer):
        raise ValueError(f"weights of {len(buffer)} bytes have an array that ends at {end}")
    array: np.ndarray = buffer[first:end].view(place.kind).reshape(place.shape)
    return array


def _aligned(place: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-place // ALIGNMENT) * ALIGNMENT


NETWORK = "network."
STATISTICS = "observations."
"""With these the names of weights begin."""


def weights_of(network: nn.Module, normaliser: ObservationNormaliser | None) -> Columns:
    """The arrays that `PolicyWeights` loads: views of the network's own memory if that is the
    CPU's.
    """
    state = network.state_dict()
    arrays = dict(zip(state, arrays_of(list(state.values())), strict=True))
    statistics = {} if normaliser is None else normaliser.state_dict()
    return prefixed(arrays, NETWORK) | prefixed(statistics, STATISTICS)


class PolicyWeights:
    """A network that goes on with a learner's weights again and again: these are copied to where its
    own are, which takes a third of the time of `load_state_dict`.
    """

    def __init__(self, network: nn.Module, normaliser: ObservationNormaliser | None) -> None:
        """The network stays where it is."""
        self._network = network
        self._normaliser = normaliser
        own = itertools.chain(
            network.named_parameters(remove_duplicate=False),
            network.named_buffers(remove_duplicate=False),
        )
        names = network.state_dict().keys()
        self._own = {name: tensor.detach() for name, tensor in own if name in names}
        self._shapes = {name: tuple(tensor.shape) for name, tensor in self._own.items()}
        # With numpy's copies small weights load in two thirds of the time that torch's take.
        self._views = {
            name: tensor.numpy()
            for name, tensor in self._own.items()
            if tensor.device.type == "cpu"
        }

    def load(self, weights: Weights) -> None:
        """Load what `weights_of` gave. Raises `RuntimeError` for another network's weights."""
        arrays = named(weights.arrays, NETWORK)
        # `load_state_dict` explains what does not fit.
        if {name: array.shape for name, array in arrays.items()} != self._shapes:
            self._network.load_state_dict(to_tensors(arrays))
        elif self._views:
            for name, view in self._views.items():
                view[...] = arrays[name]
        else:
            for name, tensor in self._own.items():
                copy_into(tensor, torch.from_numpy(arrays[name].copy()))
        if self._normaliser is not None:
            self._normaliser.load_state_dict(named(weights.arrays, STATISTICS))


class Buffers:
    """Reusable buffers, as many as are read at the same time. For one thread."""

    def __init__(self) -> None:
        self._kept = list[tuple[np.ndarray, weakref.ref[np.ndarray]]]()

    def take(self, size_bytes: int) -> np.ndarray:
        """uint8 [size_bytes], uninitialised, the caller's for as long as it lives or a memoryview of
        it (`.data`), also a part of that; numpy's own views of it do not count.
        """
        self._kept = [
            (buffer, reader)
            for buffer, reader in self._kept
            if reader() is not None or len(buffer) >= size_bytes
        ]
        for number, (buffer, reader) in enumerate(self._kept):
            # Nobody holds a view of this buffer any more.
            if reader() is None:
                view = buffer[:size_bytes]
                self._kept[number] = buffer, weakref.ref(view)
                return view
        buffer = np.empty(size_bytes, np.uint8)
        view = buffer[:]
        self._kept.append((buffer, weakref.ref(view)))
        return view
