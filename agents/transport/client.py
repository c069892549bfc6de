"""The actor's end: a `Link` that finds its learner, and finds it again."""

from __future__ import annotations

from collections.abc import Callable

from agents.distributed.buffers import Buffers
from agents.distributed.interfaces import Ack, Join, Joined, Refused, Unrolls, Version, Weights
from agents.distributed.observations import Actions, Observations
from agents.transport import calls
from agents.transport.address import Address
from agents.transport.connection import Lost
from agents.transport.lasting import LastingConnection
from agents.transport.messages import pack_unrolls
from agents.transport.observation_messages import pack_observations


class Client:
    """A `Link` and an `ObservingLink`, whichever the learner wants. Used by one thread; `close` may
    come from another.

    find: reads where the learner is, None if that is not known; called at every attempt. unpack:
    from `Receiver.packed_weights`' buffer. reconnect_timeout_s: for so long the actor waits for a
    learner before it raises `Unreachable`.
    """

    def __init__(
        self,
        find: Callable[[], Address | None],
        *,
        unpack: Callable[[Version, memoryview], Weights],
        reconnect_timeout_s: float,
        keepalive_s: float = calls.KEEPALIVE_S,
    ) -> None:
        self._learner = LastingConnection(find, reconnect_timeout_s, keepalive_s)
        self._unpack, self._buffers = unpack, Buffers()
        self._credits = self._sequence = 0

    def join(self, request: Join) -> Joined:
        """Raises `Refused` and `Unreachable`, as every method here does."""
        joined = self._learner.join(request)
        self._credits = joined.credits
        return joined

    def weights(self, have: Version | None) -> Weights | None:
        """None: there is nothing newer. Raises `Rejoin` after another learner took over."""
        learner = self._learner
        while True:
            try:
                packed = learner.connected().weights(learner.generation, have, self._buffers)
            except Lost as lost:
                learner.reconnect(lost)
            else:
                return None if packed is None else self._unpack(*packed)

    def newer(self) -> Weights | None:
        """Those that came with acknowledgements since this was last called, the newest of them. Raises
        `Unreachable` after `close`.
        """
        packed = self._learner.connected().newer()
        return None if packed is None else self._unpack(*packed)

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """Waits while all credits are out; returns what was acknowledged since the last call.

        What was not acknowledged when the connection was lost is sent again, under its old sequence
        number. Raises `Rejoin`, and `Refused` for experience that the learner refuses.
        """
        self._learner.connected()
        message = pack_unrolls(self._sequence + 1, unrolls)
        self._check_size(message)
        acks = list[Ack]()
        while len(self._learner.unanswered) >= self._credits:
            acks += self._acknowledgement(None)
        self._sequence += 1
        self._learner.send(self._sequence, message)
        while got := self._acknowledgement(0):
            acks += got
        return acks

    def observe(self, observations: Observations) -> None:
        """What was not answered when the connection was lost is sent again. Raises `Rejoin`."""
        message = pack_observations(observations)
        self._check_size(message)
        self._learner.send(observations.tick, message)

    def actions(self) -> Actions:
        """Waits for the next answer. Raises `Rejoin`, and `Refused` for what the learner refuses."""
        while True:
            actions: Actions | None = self._learner.answer(None)
            if actions is None:
                continue
            if actions.refused:
                raise Refused(actions.refused, 3)
            if self._learner.unanswered.pop(actions.tick, None) is not None:
                return actions

    def close(self) -> None:
        """End the connection; a call that waits raises `Unreachable`."""
        self._learner.close()

    def _acknowledgement(self, wait_s: float | None) -> list[Ack]:
        """The next one, if any."""
        ack: Ack | None = self._learner.answer(wait_s)
        if ack is None:
            return []
        self._learner.unanswered.pop(ack.sequence, None)
        if ack.state == "refused":
            raise Refused(ack.reason, 3)
        return [ack]

    def _check_size(self, message: bytes) -> None:
        if len(message) > self._learner.largest:
            raise Refused(f"a message of {len(message)} bytes; at most {self._learner.largest}", 3)
