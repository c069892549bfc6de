"""An actor's `Link` to a learner in the same process: nothing travels, everything else holds."""

from __future__ import annotations

from agents.distributed.interfaces import (
    Ack,
    Join,
    Joined,
    Receiver,
    Rejoin,
    Unrolls,
    Version,
    Weights,
)
from agents.distributed.weights import unpack


class LocalLink:
    """`agents.distributed.interfaces.Link`, for one actor."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._incarnation = self._generation = self._sequence = 0

    def join(self, request: Join) -> Joined:
        """Raises `Refused`."""
        joined = self._receiver.join(request)
        self._incarnation, self._generation = request.incarnation, joined.generation
        return joined

    def weights(self, have: Version | None) -> Weights | None:
        """None: there is nothing newer; raises `Rejoin`."""
        packed = self._receiver.packed_weights(have)
        if packed is None:
            return None
        self._follow(packed[0])
        return unpack(*packed)

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """Waits until it is acknowledged; raises `Rejoin`."""
        self._sequence += 1
        ack = self._receiver.receive(self._incarnation, self._sequence, unrolls)
        self._follow(ack.newest)
        return [ack]

    def close(self) -> None:
        """The learner is told."""
        self._receiver.left(self._incarnation)

    def _follow(self, newest: Version) -> None:
        if newest.generation > self._generation:
            raise Rejoin
