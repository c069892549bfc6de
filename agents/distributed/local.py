"""An actor's `Link` to a learner in the same process: nothing travels, everything else holds."""

from __future__ import annotations

import queue
from typing import Any

from agents.distributed.observations import Actions, Observations
from agents.distributed.protocol import (
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
    """`agents.distributed.protocol.Link`, and `agents.distributed.observations.ObservingLink` to a
    learner that acts; for one actor.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._incarnation = self._generation = self._sequence = 0
        self._stream: Any = None
        self._answers = queue.SimpleQueue[Actions]()
        self._newer: Weights | None = None

    def join(self, request: Join) -> Joined:
        """Raises `Refused`."""
        joined = self._receiver.join(request)
        self._incarnation = request.incarnation
        self._generation = joined.generation
        return joined

    def weights(self, have: Version | None) -> Weights | None:
        """Newer weights, or None. Raises `Rejoin`."""
        packed = self._receiver.packed_weights(have)
        if packed is None:
            return None
        self._follow(packed[0])
        return unpack(*packed)

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """Waits until it is acknowledged; raises `Rejoin`."""
        self._sequence += 1
        # Arrays that came in a message are read-only: a learner in one process must not get away
        # with writing to them.
        for column in unrolls.columns.values():
            column.setflags(write=False)
        ack = self._receiver.receive(self._incarnation, self._sequence, unrolls)
        self._follow(ack.newest)
        if unrolls.have is not None:
            self._newer = self.weights(unrolls.have)
        return [ack]

    def newer(self) -> Weights | None:
        """The weights that were newest after the last message was sent."""
        newer = self._newer
        self._newer = None
        return newer

    def close(self) -> None:
        """The learner is told."""
        if self._stream is not None:
            receiver: Any = self._receiver
            receiver.leave(self._stream)
        self._receiver.left(self._incarnation)

    def observe(self, observations: Observations) -> None:
        """To a learner that acts; raises `Refused`."""
        receiver: Any = self._receiver
        if self._stream is None:
            self._stream = receiver.open(self._incarnation, self._answers.put)
        receiver.observe(self._stream, observations)

    def actions(self) -> Actions:
        """Waits for the next."""
        return self._answers.get()

    def _follow(self, newest: Version) -> None:
        if newest.generation > self._generation:
            raise Rejoin
