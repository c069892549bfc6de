"""Weights go into one buffer and come out of it, and nobody reads what is being written."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.distributed.protocol import Version
from agents.distributed.weights import LENGTH_BYTES, Packer, unpack

VERSION = Version(3, 17)
ARRAYS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "count": np.array(7.5),
    "empty": np.zeros((0, 4), np.float32),
    "pixels": np.arange(5, dtype=np.uint8),
    "flag": np.array([True, False]),
}


def test_what_is_packed_comes_out_again_as_views_that_cannot_be_written() -> None:
    packed = Packer().pack(ARRAYS)
    weights = unpack(VERSION, packed)
    assert weights.version == VERSION and list(weights.arrays) == list(ARRAYS)
    for name, array in weights.arrays.items():
        assert array.dtype == ARRAYS[name].dtype and array.tolist() == ARRAYS[name].tolist()
        assert not array.flags.writeable and not array.flags.owndata
        assert not array.size or array.ctypes.data % 64 == packed_address(packed) % 64


def test_each_has_the_places_of_its_own_header() -> None:
    one, other = {"a": np.arange(3), "b": np.arange(4.0)}, {"b": np.arange(3), "a": np.arange(4.0)}
    packer = Packer()
    packed = [(arrays, packer.pack(arrays)) for arrays in (one, other, one, ARRAYS)]
    for arrays, buffer in packed:
        found = unpack(VERSION, buffer).arrays
        assert {name: array.tolist() for name, array in found.items()} == {
            name: array.tolist() for name, array in arrays.items()
        }


def packed_address(packed: memoryview) -> int:
    return int(np.frombuffer(packed, np.uint8).ctypes.data)


def test_a_buffer_is_written_again_only_when_nobody_reads_it() -> None:
    packer, first = Packer(), {"weight": np.zeros(100)}
    kept = packer.pack(first)[64:]
    read, address = bytes(kept), packed_address(kept)
    for number in range(1, 4):
        later = packer.pack({"weight": np.full(100, float(number))})
        assert packed_address(later) != address - 64
        assert bytes(kept) == read
    del kept
    assert packed_address(packer.pack(first)) == address - 64


def test_arrays_that_were_unpacked_keep_their_buffer() -> None:
    packer = Packer()
    weights = unpack(VERSION, packer.pack({"weight": np.zeros(100)}))
    packer.pack({"weight": np.ones(100)})
    assert not weights.arrays["weight"].any()


def hostile(**described: object) -> memoryview:
    header = json.dumps(described).encode()
    return memoryview(len(header).to_bytes(LENGTH_BYTES, "little") + header + bytes(200))


@pytest.mark.parametrize(
    "packed",
    [
        memoryview(b""), memoryview(b"\xff" * 8), memoryview(b"\x02" + bytes(7) + b"[]"),
        memoryview(b"\x02" + bytes(7) + b"{]"), hostile(a=["<f4", [100], 0]),
        hostile(a=["<f4", [-1], 0]), hostile(a=["<f4", [2], -64]), hostile(a=["O", [1], 0]),
        hostile(a=["<f4", [2**62, 4], 0]), hostile(a=["nonsense", [1], 0]), hostile(a=7),
        hostile(a=["<f4", ["x"], 0]), hostile(a=["<f4"]), hostile(a=[None, [1], 0]),
    ],
)  # fmt: skip
def test_what_is_no_weights_is_refused_before_it_is_read(packed: memoryview) -> None:
    with pytest.raises(ValueError):
        unpack(VERSION, packed)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=20))
def test_damaged_weights_are_refused_or_are_other_numbers(place: int, damage: bytes) -> None:
    packed = bytearray(Packer().pack(ARRAYS))
    place %= len(packed)
    packed[place : place + len(damage)] = damage
    with contextlib.suppress(ValueError):
        unpack(VERSION, memoryview(packed))
