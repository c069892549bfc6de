"""Encode and decode the messages of `learner.proto`.

The dataclasses are those of `agents.distributed.protocol` and `agents.distributed.observations`.
Decoding checks the form of a message (here and in `tensors`); whether its content makes sense is
checked by the `Receiver`, wherever the message came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

import numpy as np
from google.protobuf.message import DecodeError

from agents.distributed.observations import Actions, Observations
from agents.distributed.protocol import (
    Ack,
    AckState,
    Join,
    Joined,
    Refused,
    Spec,
    Specs,
    Unrolls,
    Version,
)
from agents.transport import learner_pb2 as wire
from agents.transport.tensors import (
    SMALL_BYTES,
    BadMessage,
    Parts,
    pack,
    size_bytes,
    unpack,
    unpack_one,
)

M = TypeVar("M")
LARGEST_MESSAGE_BYTES = 2**31 - 1
"""gRPC's own limit."""
LARGEST_IDENTITY = 200
"""The longest accepted identity hash, in characters."""


class Welcome(NamedTuple):
    """A decoded JoinReply: the learner's answer, and the largest message it accepts, in bytes."""

    joined: Joined
    largest_message: int


class Announced(NamedTuple):
    """Weights that come with an acknowledgement. size: bytes of the whole buffer; data: the whole
    buffer if it is small, otherwise empty, and its parts follow as further messages.
    """

    version: Version
    size: int
    data: memoryview


def parse(kind: type[M], message: bytes) -> M:
    """Decode bytes as a protobuf message of this kind; raises `BadMessage` if they are not one."""
    try:
        return cast(M, cast(Any, kind).FromString(message))
    except DecodeError:
        raise BadMessage("malformed", f"these bytes are no {kind.__name__}") from None


def pack_join(request: Join) -> bytes:
    """Encode a `JoinRequest`."""
    return cast(bytes, wire.JoinRequest(**vars(request)).SerializeToString())


def unpack_join(message: bytes) -> Join:
    """Raises `BadMessage`."""
    request = parse(wire.JoinRequest, message)
    if len(request.identity) > LARGEST_IDENTITY:
        raise BadMessage("size", f"an identity of {len(request.identity)} characters")
    return Join(
        incarnation=request.incarnation,
        actor=request.actor,
        environments=request.environments,
        identity=request.identity,
        protocol=request.protocol,
    )


def pack_welcome(joined: Joined, largest_message: int) -> bytes:
    """Encode a `JoinReply` that accepts the actor."""
    specs = [
        wire.Spec(name=name, dtype=spec.dtype, shape=spec.shape)
        for name, spec in joined.specs.items()
    ]
    reply = wire.JoinReply(
        generation=joined.generation,
        number=joined.number,
        credits=joined.credits,
        specs=specs,
        largest_message=largest_message,
        stop=joined.stop,
        answers=joined.answers,
    )
    return cast(bytes, reply.SerializeToString())


def pack_refusal(refused: Refused) -> bytes:
    """Encode a `JoinReply` that declines the actor."""
    reply = wire.JoinReply(refused=str(refused), exit_code=refused.exit_code)
    return cast(bytes, reply.SerializeToString())


def unpack_welcome(message: bytes) -> Welcome:
    """Decode a `JoinReply`. Raises `Refused` if the learner declined, `BadMessage` if it is malformed."""
    reply = parse(wire.JoinReply, message)
    if reply.refused:
        exit_code: Literal[2, 3] = 3 if reply.exit_code == 3 else 2
        raise Refused(reply.refused, exit_code)
    if reply.credits < 1:
        raise BadMessage("value", "a learner that lets nobody send")
    joined = Joined(
        generation=reply.generation,
        number=reply.number,
        credits=reply.credits,
        specs={spec.name: Spec(spec.dtype, tuple(spec.shape)) for spec in reply.specs},
        stop=reply.stop,
        answers=reply.answers,
    )
    return Welcome(joined, reply.largest_message)


def pack_have(generation: int, have: Version | None) -> bytes:
    """Encode a `Have`: the version of the weights that an actor holds, None if it has none."""
    message = wire.Have(generation=generation, version=_wire_version(have))
    return cast(bytes, message.SerializeToString())


def unpack_have(message: bytes) -> tuple[int, Version | None]:
    """Raises `BadMessage`."""
    have = parse(wire.Have, message)
    version = _version(have.version) if have.HasField("version") else None
    return have.generation, version


def pack_unrolls(sequence: int, unrolls: Unrolls) -> bytes:
    """Encode an `Unrolls`."""
    message = wire.Unrolls(
        sequence=sequence,
        oldest=wire.Version(**unrolls.oldest._asdict()),
        newest=wire.Version(**unrolls.newest._asdict()),
        columns=pack(unrolls.columns),
        returns=unrolls.returns,
        lengths=unrolls.lengths,
        have=_wire_version(unrolls.have),
    )
    return cast(bytes, message.SerializeToString())


def parse_unrolls(message: bytes, largest: int) -> wire.Unrolls:
    """Raises `BadMessage`."""
    if len(message) > largest:
        raise BadMessage("size", f"a message of {len(message)} bytes; at most {largest}")
    return parse(wire.Unrolls, message)


def unpack_unrolls(message: wire.Unrolls, specs: Specs, most: int) -> Unrolls:
    """Decode the columns; `most` is the largest number of unrolls. Raises `BadMessage`."""
    return Unrolls(
        columns=unpack(message.columns, specs, most),
        oldest=_version(message.oldest),
        newest=_version(message.newest),
        returns=list(message.returns),
        lengths=list(message.lengths),
        have=_version(message.have) if message.HasField("have") else None,
    )


def pack_acks(ack: Ack, weights: Parts | None = None) -> Iterator[bytes]:
    """Encode an `Ack`, followed by the parts of the weights if these are large."""
    message = wire.Ack(
        sequence=ack.sequence,
        state=ack.state.upper(),
        newest=wire.Version(**ack.newest._asdict()),
        stop=ack.stop,
        reason=ack.reason,
    )
    if weights is None:
        yield message.SerializeToString()
        return
    message.weights.CopyFrom(wire.Version(**weights.version._asdict()))
    message.size = weights.size
    if weights.size <= SMALL_BYTES:
        message.data = bytes(weights.packed)
        yield message.SerializeToString()
        return
    yield message.SerializeToString()
    yield from weights


def unpack_ack(message: bytes) -> tuple[Ack, Announced | None]:
    """Decode an `Ack` and the weights announced with it, if any. Raises `BadMessage`."""
    ack = parse(wire.Ack, message)
    states: tuple[AckState, ...] = get_args(AckState)
    named = {wire.Ack.State.Value(state.upper()): state for state in states}
    if ack.state not in named:
        raise BadMessage("value", f"an acknowledgement that says {ack.state}")
    announced = None
    if ack.HasField("weights"):
        announced = Announced(_version(ack.weights), ack.size, memoryview(ack.data))
    unpacked = Ack(
        sequence=ack.sequence,
        state=named[ack.state],
        newest=_version(ack.newest),
        stop=ack.stop,
        reason=ack.reason,
    )
    return unpacked, announced


def largest_message(specs: Specs, environments: int) -> int:
    """Upper bound in bytes of a message with one unroll of each environment: the columns, one ended
    episode per row, and the columns' names and shapes.
    """
    rows = max((spec.shape[0] for spec in specs.values() if spec.shape), default=1)
    one = sum(map(size_bytes, specs.values())) + 20 * rows
    # 11 bytes hold the longest varint (10) and its tag.
    described = sum(len(name) + 11 * (len(spec.shape) + 8) for name, spec in specs.items())
    return environments * one + described + 200


def _version(version: wire.Version) -> Version:
    return Version(version.generation, version.update)


def _wire_version(version: Version | None) -> wire.Version | None:
    return None if version is None else wire.Version(**version._asdict())


FINAL = "final"
ACTION = "action"
OBSERVATION = "observation"
LONGEST_REFUSAL = 1000
"""The longest refusal that is kept, in characters."""


def pack_observations(observations: Observations) -> bytes:
    """Encode an `Observations`."""
    message = wire.Observations(
        tick=observations.tick,
        group=observations.group,
        columns=pack(observations.columns),
        returns=observations.returns,
        lengths=observations.lengths,
    )
    if len(observations.final):
        message.final.CopyFrom(pack({FINAL: observations.final})[0])
    return cast(bytes, message.SerializeToString())


def parse_observations(message: bytes, largest: int) -> wire.Observations:
    """Raises `BadMessage`."""
    if len(message) > largest:
        raise BadMessage("size", f"a message of {len(message)} bytes; at most {largest}")
    return parse(wire.Observations, message)


def unpack_observations(message: wire.Observations, shown: Specs, most: int) -> Observations:
    """Decode. shown: columns of one environment; most: environments in a group. Raises `BadMessage`."""
    seen = shown[OBSERVATION]
    final = np.zeros((0, *seen.shape), seen.dtype)
    if message.HasField(FINAL):
        final = unpack_one(message.final, seen, most)
    return Observations(
        tick=message.tick,
        group=message.group,
        columns=unpack(message.columns, shown, most),
        final=final,
        returns=list(message.returns),
        lengths=list(message.lengths),
    )


def largest_observations(shown: Specs, environments: int) -> int:
    """Upper bound in bytes of a group's message, reached when every episode was just truncated."""
    one = sum(map(size_bytes, shown.values())) + size_bytes(shown[OBSERVATION]) + 20
    described = sum(len(name) + 11 * (len(spec.shape) + 8) for name, spec in shown.items())
    return environments * one + 2 * described + 200


def pack_actions(actions: Actions) -> bytes:
    """Encode an `Actions`."""
    message = wire.Actions(
        tick=actions.tick, group=actions.group, stop=actions.stop, refused=actions.refused
    )
    if actions.actions is not None:
        message.actions.CopyFrom(pack({ACTION: actions.actions})[0])
    return cast(bytes, message.SerializeToString())


def unpack_actions(message: bytes, spec: Spec, most: int) -> Actions:
    """Decode. spec: one environment's action; most: environments in a group. Raises `BadMessage`."""
    read = parse(wire.Actions, message)
    taken = unpack_one(read.actions, spec, most) if read.HasField("actions") else None
    if taken is None and not read.stop and not read.refused:
        raise BadMessage("value", "an answer without actions")
    return Actions(
        tick=read.tick, group=read.group, actions=taken, stop=read.stop,
        refused=read.refused[:LONGEST_REFUSAL],
    )  # fmt: skip
