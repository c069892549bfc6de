"""What travels between a learner and its actors, and what of it is refused before it is used."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509

from agents.distributed.protocol import Ack, Joined, Refused, Spec, Version
from agents.distributed.weights import Buffers
from agents.transport import learner_pb2 as wire
from agents.transport import messages
from agents.transport import tensors as packed_weights
from agents.transport.address import (
    Address,
    address_from_text,
    address_to_text,
    make_certificate,
    make_token,
)
from agents.transport.tensors import BadMessage, Parts, pack, unpack
from config.errors import BadInput
from tests.plain_receiver import ENVIRONMENTS, SPECS, columns, join_request, some_unrolls

ROOT = Path(__file__).parents[4]
PROTO = Path("agents/transport/learner.proto")
GENERATED = ROOT / "agents/transport/learner_pb2.py"
DTYPES = (
    "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"
)  # fmt: skip


def parsed(unrolls: messages.Unrolls | None = None) -> wire.Unrolls:
    packed = messages.pack_unrolls(7, unrolls or some_unrolls())
    return messages.parse_unrolls(packed, len(packed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 4, 2)])
def test_arrays_of_every_type_arrive_as_they_were(dtype: str, shape: tuple[int, ...]) -> None:
    specs = {"it": Spec(dtype, shape)}
    sent = columns(5, specs=specs)["it"]
    tensors = [wire.Tensor.FromString(one.SerializeToString()) for one in pack({"it": sent})]
    received = unpack(tensors, specs, 5)["it"]
    assert received.dtype == sent.dtype and received.shape == (5, *shape)
    np.testing.assert_array_equal(received, sent)
    assert not received.flags.writeable and not received.flags.owndata


def test_an_array_that_is_not_contiguous_arrives_in_order() -> None:
    sent = np.arange(12, dtype=np.float32).reshape(3, 4).T
    received = unpack(pack({"it": sent}), {"it": Spec("float32", (3,))}, 4)["it"]
    np.testing.assert_array_equal(received, sent)


def test_unrolls_arrive_as_they_were() -> None:
    sent = some_unrolls(
        3, oldest=Version(2, 5), newest=Version(2, 7), returns=[1.5, -2.0], lengths=[9, 4]
    )
    message = parsed(sent)
    received = messages.unpack_unrolls(message, SPECS, 3)
    assert message.sequence == 7
    assert (received.oldest, received.newest) == (sent.oldest, sent.newest)
    assert (received.returns, received.lengths) == (sent.returns, sent.lengths)
    for name, column in sent.columns.items():
        np.testing.assert_array_equal(received.columns[name], column)


def tensor(message: wire.Unrolls, name: str = "reward") -> wire.Tensor:
    return next(one for one in message.columns if one.name == name)


def other_boolean(message: wire.Unrolls) -> None:
    tensor(message, "terminated").data = b"\x02" * 6


def drop_column(message: wire.Unrolls) -> None:
    del message.columns[0]


def claim_a_petabyte(message: wire.Unrolls) -> None:
    tensor(message).shape[0] = 2**50


def claim_another_count(message: wire.Unrolls) -> None:
    """Each for itself this column would be fine."""
    tensor(message).shape[0], tensor(message).data = 1, bytes(12)


def name_twice(message: wire.Unrolls) -> None:
    message.columns.append(tensor(message))


def other_shape_of_the_same_size(message: wire.Unrolls) -> None:
    del tensor(message, "observation").shape[:]
    tensor(message, "observation").shape.extend([2, 4, 3, 2])


BROKEN: dict[str, tuple[Callable[[wire.Unrolls], object], str]] = {
    "no boolean": (other_boolean, "value"),
    "a column less": (drop_column, "columns"),
    "a column twice": (name_twice, "columns"),
    "an unknown column": (lambda m: m.columns.add(name="x"), "columns"),
    "another type of the same size": (lambda m: setattr(tensor(m), "dtype", "int32"), "type"),
    "no type": (lambda m: setattr(tensor(m), "dtype", "O,O"), "type"),
    "no shape": (lambda m: tensor(m).ClearField("shape"), "shape"),
    "more unrolls than environments": (lambda m: tensor(m).shape.__setitem__(0, 5), "shape"),
    "no unroll": (lambda m: tensor(m).shape.__setitem__(0, 0), "shape"),
    "another shape": (other_shape_of_the_same_size, "shape"),
    "counts that differ": (claim_another_count, "shape"),
    "a petabyte": (claim_a_petabyte, "shape"),
    "too few bytes": (lambda m: setattr(tensor(m), "data", bytes(23)), "size"),
    "too many bytes": (lambda m: setattr(tensor(m), "data", bytes(25)), "size"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_experience_is_refused_with_its_reason(case: str) -> None:
    change, reason = BROKEN[case]
    message = parsed()
    messages.unpack_unrolls(message, SPECS, ENVIRONMENTS)
    change(message)
    with pytest.raises(BadMessage) as refused:
        messages.unpack_unrolls(message, SPECS, ENVIRONMENTS)
    assert refused.value.reason == reason
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(BadMessage, match="no Unrolls"):
        messages.parse_unrolls(b"\xff" * 20, 100)
    with pytest.raises(BadMessage, match="20 bytes; at most 19"):
        messages.parse_unrolls(b"\xff" * 20, 19)
    with pytest.raises(BadMessage, match="no JoinRequest"):
        messages.unpack_join(b"\xff")
    with pytest.raises(BadMessage, match="5000 characters"):
        messages.unpack_join(messages.pack_join(join_request(identity="x" * 5000)))


@pytest.mark.parametrize("environments", [1, 4, 300])
def test_the_largest_message_has_room_for_the_largest_unrolls_and_little_more(
    environments: int,
) -> None:
    rows = 5  # the longest first axis
    most = some_unrolls(
        environments,
        oldest=Version(2**63, 2**63),
        newest=Version(2**63, 2**63),
        returns=[-1e300] * environments * rows,
        lengths=[2**63] * environments * rows,
        have=Version(2**63, 2**63),
    )
    size = len(messages.pack_unrolls(2**63, most))
    assert size <= messages.largest_message(SPECS, environments) <= 1.1 * size + 600


def test_joining_and_acknowledgements_arrive_as_they_were() -> None:
    request = join_request(2**64 - 1, identity="é" * 64)
    assert messages.unpack_join(messages.pack_join(request)) == request
    joined = Joined(generation=3, number=4, credits=2, specs=SPECS, stop=True)
    assert messages.unpack_welcome(messages.pack_welcome(joined, 99)) == (joined, 99)
    ack = Ack(sequence=5, state="stale", newest=Version(3, 8), stop=True, reason="too old")
    assert [messages.unpack_ack(one) for one in messages.pack_acks(ack)] == [(ack, None)]
    for have in (None, Version(0, 0), Version(3, 7)):
        assert messages.unpack_have(messages.pack_have(3, have)) == (3, have)
    for exit_code in (2, 3):
        with pytest.raises(Refused, match="not you") as refused:
            messages.unpack_welcome(messages.pack_refusal(Refused("not you", exit_code)))
        assert refused.value.exit_code == exit_code


@pytest.mark.parametrize("size", [1, 127, 128, 16_384, 2**20 + 1, 2**21, 2**21 + 1, 3 * 2**21])
def test_weights_are_cut_into_messages_as_protobuf_would_make_them(size: int) -> None:
    packed = memoryview(np.random.default_rng(size).bytes(size))
    head, *parts = packed_weights.pack_chunks(Parts(Version(3, 4), packed))
    described = wire.Chunk(version=wire.Version(generation=3, update=4), size=size)
    assert wire.Chunk.FromString(head) == described
    assert b"".join(wire.Chunk.FromString(part).data for part in parts) == packed
    unpacked = [packed_weights.unpack_part(part) for part in parts]
    assert b"".join(unpacked) == packed
    cuts = [packed[start : start + 2**21] for start in range(0, size, 2**21)]
    assert parts == [wire.Chunk(data=bytes(cut)).SerializeToString() for cut in cuts]


@pytest.mark.parametrize("broken", [b"", b"\x42", b"\x42\x05four", b"\x42\x03four", b"\x12\x01x"])
def test_a_part_of_weights_that_is_none_is_refused(broken: bytes) -> None:
    with pytest.raises(BadMessage):
        packed_weights.unpack_part(broken)


@pytest.mark.parametrize("size", [0, 1, 2**16, 2**16 + 1, 2**20 + 1, 2**21 + 1])
def test_weights_come_with_an_acknowledgement_or_in_parts_after_it(size: int) -> None:
    packed = memoryview(np.random.default_rng(size).bytes(size))
    ack = Ack(sequence=5, state="queued", newest=Version(3, 8))
    first, *parts = messages.pack_acks(ack, Parts(Version(3, 8), packed))
    assert (size <= packed_weights.SMALL_BYTES) == (not parts)
    unpacked, weights = messages.unpack_ack(first)
    assert unpacked == ack and weights is not None and weights[:2] == (Version(3, 8), size)
    data = b"".join(packed_weights.unpack_part(part) for part in parts)
    assert bytes(weights.data) + data == packed
    assert data == b"".join(wire.Ack.FromString(part).data for part in parts)


def test_parts_of_weights_are_encoded_once_whoever_gets_them() -> None:
    size = 2 * 2**21 + 1
    parts = Parts(Version(3, 8), memoryview(np.random.default_rng(size).bytes(size)))
    ahead, behind = iter(parts), iter(parts)
    first, second = next(ahead), next(ahead)
    assert next(behind) is first and next(behind) is second
    assert next(behind) is next(ahead)
    assert not [*ahead, *behind]


def test_memory_is_used_again_only_when_nobody_reads_it() -> None:
    buffers = Buffers()
    first = buffers.take(100)
    reader = np.frombuffer(first.data.toreadonly(), np.uint8)[3:]
    first[:] = 1
    del first
    second = buffers.take(100)
    second[:] = 2
    assert set(reader) == {1}, "overwritten while it was read"
    place = second.ctypes.data
    del second
    assert buffers.take(100).ctypes.data == place
    assert len(buffers.take(101)) == 101


ADDRESS = Address(token="secret-1", host="10.0.0.7", port=50051, certificate="PEM", generation=2)


def test_an_address_is_read_as_it_was_written_and_keeps_its_token_to_itself() -> None:
    assert address_from_text(address_to_text(ADDRESS)) == ADDRESS
    local = Address(token="secret-1", socket="/run/a b")
    assert address_from_text(address_to_text(local)) == local
    assert str(local) == "unix:/run/a b"
    assert str(dataclasses.replace(ADDRESS, host="fd00::1")) == "[fd00::1]:50051"
    assert "secret-1" not in repr(ADDRESS) + str(ADDRESS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 20_000,
        " " * 30_000,
        address_to_text(ADDRESS).replace("50051", '"50051"'),
        address_to_text(ADDRESS).replace("50051", "70000"),
        address_to_text(ADDRESS).replace("50051", "true"),
        address_to_text(ADDRESS).replace('"PEM"', '""'),
        address_to_text(ADDRESS).replace('"host": "10.0.0.7"', '"host": ""'),
        address_to_text(ADDRESS).replace('"host"', '"hosts"'),
        address_to_text(ADDRESS).replace('"generation": 2', '"generation": -2'),
    ],
)
def test_a_damaged_address_is_one_line_without_the_token(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        address_from_text(text)
    assert "\n" not in str(refused.value) and "secret-1" not in str(refused.value)


def test_a_token_never_travels_in_clear_text() -> None:
    with pytest.raises(BadInput, match="only over TLS or a local socket"):
        Address(token="secret-1", host="10.0.0.7", port=1)


def test_certificates_and_tokens_are_new_every_time_and_know_no_clock() -> None:
    one, other = make_certificate(), make_certificate()
    assert one.key != other.key and one.certificate != other.certificate
    assert "PRIVATE" in one.key and "PRIVATE" not in repr(one) + one.certificate
    read = x509.load_pem_x509_certificate(one.certificate.encode())
    assert read.not_valid_before_utc.year == 2000 and read.not_valid_after_utc.year == 2100
    assert len({make_token() for _ in range(100)}) == 100 and len(make_token()) >= 43


def test_the_generated_messages_are_those_of_the_description(tmp_path: Path) -> None:
    found = re.search(r"^# sha256 (\w+)  (.+)$", GENERATED.read_text(), flags=re.MULTILINE)
    assert found, "make messages"
    digest = hashlib.sha256((ROOT / PROTO).read_bytes()).hexdigest()
    assert found.groups() == (digest, str(PROTO)), "make messages"
    if find_spec("grpc_tools") is None:
        return
    command = ("-m", "grpc_tools.protoc", "--proto_path=.", f"--python_out={tmp_path}", str(PROTO))
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, timeout=60)
    again = (tmp_path / PROTO.parent / GENERATED.name).read_text()
    assert [again] == [GENERATED.read_text().removesuffix(f"{found.group()}\n")], "make messages"
