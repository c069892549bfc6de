"""What the call `Act` carries, between bytes and the dataclasses of `agents.distributed.observations`;
as `messages`, of the other calls.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from agents.distributed.interfaces import Spec, Specs
from agents.distributed.observations import Actions, Observations
from agents.transport import learner_pb2 as wire
from agents.transport.messages import parse
from agents.transport.tensors import BadMessage, pack, size_bytes, unpack, unpack_one

FINAL, ACTION, OBSERVATION = "final", "action", "observation"
LONGEST_REFUSAL = 1000
"""Characters."""


def pack_observations(observations: Observations) -> bytes:
    """An `Observations`."""
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
    """shown: of one environment; most: environments of a group. Raises `BadMessage`."""
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
    """Bytes of the largest message: of a group of so many, all of whose episodes were truncated."""
    one = sum(map(size_bytes, shown.values())) + size_bytes(shown[OBSERVATION]) + 20
    described = sum(len(name) + 11 * (len(spec.shape) + 8) for name, spec in shown.items())
    return environments * one + 2 * described + 200


def pack_actions(actions: Actions) -> bytes:
    """An `Actions`."""
    message = wire.Actions(
        tick=actions.tick, group=actions.group, stop=actions.stop, refused=actions.refused
    )
    if actions.actions is not None:
        message.actions.CopyFrom(pack({ACTION: actions.actions})[0])
    return cast(bytes, message.SerializeToString())


def unpack_actions(message: bytes, spec: Spec, most: int) -> Actions:
    """spec: of one environment's action. Raises `BadMessage`."""
    read = parse(wire.Actions, message)
    taken = unpack_one(read.actions, spec, most) if read.HasField("actions") else None
    if taken is None and not read.stop and not read.refused:
        raise BadMessage("value", "an answer without actions")
    return Actions(
        tick=read.tick, group=read.group, actions=taken, stop=read.stop,
        refused=read.refused[:LONGEST_REFUSAL],
    )  # fmt: skip
