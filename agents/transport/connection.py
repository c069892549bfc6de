"""One connection of an actor to a learner. It is never reused; `client` makes a new one when it is
lost.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

import grpc

from agents.distributed.observations import Actions
from agents.distributed.protocol import Ack, Join, Joined, Refused, Spec, Specs, Version
from agents.distributed.weights import Buffers
from agents.transport import calls, messages
from agents.transport import learner_pb2 as wire
from agents.transport.address import NAME, Address
from agents.transport.messages import ACTION, Welcome, unpack_actions
from agents.transport.tensors import CHUNK_BYTES, BadMessage, Packed, join_parts, unpack_part

T = TypeVar("T")
LOCAL_OPTIONS: calls.Options = [
    # Channels to one address share their connection by default, and a new attempt would begin with
    # the broken state of the old one.
    ("grpc.use_local_subchannel_pool", 1),
    # `client` tries again by itself, with its own pauses.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # The thread that asks for weights reads them itself, without one of gRPC's in between.
    ("SingleThreadedUnaryStream", 1),
    ("grpc.max_receive_message_length", 2 * CHUNK_BYTES),
    ("grpc.max_send_message_length", -1),
]


class Lost(Exception):
    """The connection was lost or could not be made; another attempt may succeed."""


class Denied(Lost):
    """The learner at this address rejected the token."""

    def __init__(self, message: str, address: Address) -> None:
        super().__init__(message)
        self.address = address


class Connection:
    """A gRPC channel and its calls; every method raises `Lost` and `Refused`.

    near: whether the learner is on this machine, at the other end of a local socket.
    """

    def __init__(self, address: Address, request: Join, keepalive_s: float) -> None:
        self.request = request
        address = address.from_here()
        self.near = bool(address.socket)
        options = [*calls.connection_options(keepalive_s), *LOCAL_OPTIONS]
        if self.near:
            self._channel = grpc.insecure_channel(str(address), options)
        else:
            trusted = grpc.ssl_channel_credentials(address.certificate.encode())
            # The certificate names no host, whatever the learner's host is called.
            options.append(("grpc.ssl_target_name_override", NAME))
            self._channel = grpc.secure_channel(str(address), trusted, options)
        self._address = address
        self._metadata = ((calls.AUTHORIZATION, calls.bearer(address.token)),)
        self._outgoing = queue.SimpleQueue[bytes | None]()
        self._incoming = queue.SimpleQueue[Any]()
        self._actions: Iterator[Actions] | None = None
        # Only the newest weights count: older ones that were not taken yet are dropped.
        self._pushed = deque[Packed](maxlen=1)

    def join(self) -> Welcome:
        """Send the `JoinRequest` and return the learner's answer."""
        call = self._channel.unary_unary(calls.method("Join"))
        try:
            packed = messages.pack_join(self.request)
            reply = call(packed, timeout=calls.JOIN_S, metadata=self._metadata)
            return messages.unpack_welcome(reply)
        except (grpc.RpcError, ValueError, BadMessage) as error:
            raise self._explained(error) from None

    def open(self, joined: Joined) -> None:
        """Open the stream after joining: of observations if the learner acts, else of unrolls.

        A thread reads acknowledgements, because the actor does not wait for them. Actions are read by
        the thread that waits for them, which takes a third less time than handing them over.
        """
        name = "Act" if joined.answers else "Send"
        call = self._channel.stream_stream(calls.method(name))
        answers = call(
            iter(self._outgoing.get, None),
            timeout=calls.STREAM_S,
            metadata=(*self._metadata, (calls.INCARNATION, str(self.request.incarnation))),
        )
        if joined.answers:
            spec = _of_one_row(joined.specs)
            most = self.request.environments
            self._actions = map(partial(unpack_actions, spec=spec, most=most), answers)
        else:
            threading.Thread(
                target=self._read, args=(answers,), name="answers", daemon=True
            ).start()

    def send(self, message: bytes) -> None:
        """Queue a message for the stream; only an answer confirms that it arrived."""
        self._outgoing.put(message)

    def answer(self, wait_s: float | None) -> Any:
        """The next `Actions` (blocks); on an unroll stream the next `Ack`, or None after `wait_s` seconds
        (None: no limit).
        """
        if self._actions is not None:
            return self._next(self._actions)
        try:
            got = self._incoming.get(block=wait_s != 0, timeout=wait_s)
        except queue.Empty:
            return None
        if isinstance(got, Exception):
            # The next call must raise it again: after this nothing comes any more.
            self._incoming.put(got)
            raise got
        return got

    def newer(self) -> Packed | None:
        """The newest weights received with an `Ack` since the last call, or None."""
        return self._pushed.pop() if self._pushed else None

    def weights(self, generation: int, have: Version | None, buffers: Buffers) -> Packed | None:
        """Request weights newer than `have`, packed into one of `buffers`; None if there are none."""
        call = self._channel.unary_stream(calls.method("Weights"))
        request = messages.pack_have(generation, have)
        try:
            chunks = call(request, timeout=calls.WEIGHTS_S, metadata=self._metadata)
            first = next(chunks, None)
            if first is None:
                return None
            head = messages.parse(wire.Chunk, first)
            parts = map(unpack_part, chunks)
            version = Version(head.version.generation, head.version.update)
            return version, join_parts(parts, head.size, buffers)
        except (grpc.RpcError, ValueError, BadMessage) as error:
            raise self._explained(error) from None

    def close(self) -> None:
        """End all calls; a thread that waits for one gets `Lost`."""
        self._outgoing.put(None)
        self._channel.close()

    def _read(self, answers: Iterator[bytes]) -> None:
        acks = self._acks(answers)
        try:
            while True:
                self._incoming.put(self._next(acks))
        except Exception as ended:
            # The error is handed to the actor's thread, in which `answer` raises it.
            self._incoming.put(ended)

    def _acks(self, answers: Iterator[bytes]) -> Iterator[Ack]:
        """Yield each `Ack` after the weights that came with it are stored, so that an actor that waited
        for a place in the queue acts with the new weights at once, not one message later.
        """
        buffers = Buffers()
        for message in answers:
            ack, weights = messages.unpack_ack(message)
            if weights is not None:
                packed = weights.data
                if len(packed) < weights.size:
                    parts = map(unpack_part, answers)
                    packed = join_parts(parts, weights.size, buffers)
                self._pushed.append((weights.version, packed))
            yield ack

    def _next(self, answers: Iterator[T]) -> T:
        """Wait for the next answer; the end of the stream raises `Lost` or `Refused`."""
        ended: Exception = Lost(f"the learner at {self._address} ended the connection")
        try:
            return next(answers)
        except StopIteration:
            pass
        except (grpc.RpcError, BadMessage) as error:
            ended = self._explained(error)
        # A thread of gRPC's waits for the next message to send: None ends it.
        self._outgoing.put(None)
        raise ended

    def _explained(self, error: Any) -> Exception:
        """Translate a failed call into `Refused`, `Denied` or `Lost`."""
        if isinstance(error, BadMessage):
            return Refused(f"the learner at {self._address} answers nonsense: {error}", 2)
        # gRPC raises ValueError for a call on a channel that was closed meanwhile.
        if isinstance(error, ValueError):
            return Lost(str(error))
        said = f"{self._address}: {error.code().name}: {error.details()}"
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return Denied(said, self._address)
        if error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
            return Refused(said, 2)
        return Lost(said)


def _of_one_row(specs: Specs) -> Spec:
    """The spec of one environment's action, from the columns of unrolls."""
    of_unrolls = specs.get(ACTION, Spec("int64", ()))
    return Spec(of_unrolls.dtype, of_unrolls.shape[1:])
