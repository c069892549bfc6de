"""The call `Act` as the learner answers it: one thread reads what an actor shows, the call's own sends
the actions, which come from a third.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

import grpc

from agents.distributed.interfaces import Refused
from agents.distributed.observations import Actions, Answering
from agents.transport.observation_messages import (
    largest_observations,
    pack_actions,
    parse_observations,
    unpack_observations,
)
from agents.transport.sessions import Session
from agents.transport.tensors import BadMessage
from agents.transport.traffic import Counters


class Act:
    """Passes to a receiver what is sound, and counts what is refused. environments: the most of one
    actor.
    """

    def __init__(self, receiver: Answering, environments: int, counters: Counters) -> None:
        self._receiver, self._environments, self._counters = receiver, environments, counters
        self.largest_message = largest_observations(receiver.shown, environments)

    def answers(
        self, session: Session, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """`Observations` -> `Actions`, one each, in the order in which they are there."""
        answers = queue.SimpleQueue[Actions | None]()
        stream = self._receiver.open(session.incarnation, answers.put)
        reader = threading.Thread(
            target=self._read, args=(session, stream, requests, answers), name="observations",
            daemon=True,
        )  # fmt: skip
        try:
            if context.add_callback(lambda: answers.put(None)):
                reader.start()
                yield from map(pack_actions, iter(answers.get, None))
        finally:
            self._receiver.leave(stream)

    def _read(
        self,
        session: Session,
        stream: object,
        requests: Iterator[bytes],
        answers: queue.SimpleQueue[Actions | None],
    ) -> None:
        """Until the stream ends, or shows what cannot be learnt from."""
        try:
            for raw in requests:
                refusal = self._observe(session, stream, raw)
                if refusal is not None:
                    answers.put(refusal)
                    break
        except grpc.RpcError:  # the actor has gone
            pass
        finally:
            answers.put(None)

    def _observe(self, session: Session, stream: object, raw: bytes) -> Actions | None:
        """What is refused of it."""
        began = time.perf_counter()
        tick = group = 0
        try:
            message = parse_observations(raw, self.largest_message)
            tick, group = message.tick, message.group
            observations = unpack_observations(message, self._receiver.shown, self._environments)
            checked = time.perf_counter()
            with session.receiving:
                self._receiver.observe(stream, observations)
        except BadMessage as bad:
            self._counters.refused(bad.reason)
            return Actions(tick=tick, group=group, refused=str(bad))
        except Refused as refused:
            self._counters.refused("observations")
            return Actions(tick=tick, group=group, refused=str(refused))
        self._counters.received(len(raw), checked - began, time.perf_counter() - checked)
        return None
