"""The learner's end of the connection: a gRPC server around a `Receiver`, and the calls of
`learner.proto` that it answers, each on a thread of the server's pool.
"""

from __future__ import annotations

import contextlib
import hmac
import resource
import socket as sockets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import grpc

from agents.distributed.observations import Answering
from agents.distributed.protocol import Ack, Receiver, Refused, Version
from agents.transport import calls, messages
from agents.transport.address import Address, Certificate
from agents.transport.messages import LARGEST_MESSAGE_BYTES
from agents.transport.sessions import Act, Counters, Session, Sessions, Traffic
from agents.transport.tensors import BadMessage, Packed, Parts, pack_chunks
from config.errors import BadInput, on_one_line

STOPPING_S = 0.5
"""Seconds that running calls may take to end."""
MARGIN_BYTES = 2**20
"""gRPC drops a message above twice the largest allowed plus this margin before it is stored. Sizes in
between reach the service, which refuses them with a reason and counts them.
"""
STRANGERS = 64
"""Connections beyond those that the actors need: of actors that come again, and of whoever has no
token. Whatever comes beside them is closed at once, so that the process keeps files to open.
"""
HANDSHAKE_S = 10.0
"""Seconds within which a connection must have shown that it speaks TLS."""
IDLE_S = 60.0
"""Seconds after which a connection without a call is closed; an actor has one all the time."""
LONGEST_SOCKET_PATH = 100
"""Bytes, below the system's limit of 108."""


class Server:
    """Answers actors from the moment it is made until `close` (or the end of its `with`).

    host, port: where to listen, and under which address actors find it; port 0 is any free one.
    And, or instead, socket: the path of a local socket, without TLS. generation: the learner's; environments: the
    most of one actor; actors: the most connected at once, each of which has a thread.

    Close the receiver first: a thread that waits in `Receiver.receive` cannot be ended from here.
    Raises `BadInput` for an address that is taken or cannot be had.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        token: str,
        generation: int,
        environments: int,
        host: str = "",
        port: int = 0,
        certificate: Certificate | None = None,
        socket: str = "",
        actors: int = 256,
        keepalive_s: float = calls.KEEPALIVE_S,
    ) -> None:
        wanted = Address(
            token=token, host=host, port=port, socket=socket, generation=generation,
            certificate=certificate.certificate if certificate else "",
        )  # fmt: skip
        self._service = Service(receiver, generation, environments, actors)
        _allow_many_files()
        self._server = self._build(token, actors, keepalive_s)
        if socket:
            _listen_at(self._server, socket)
        # The port may have been 0: the address that actors read has the real one.
        if certificate is not None and host:
            wanted = replace(wanted, port=_listen(self._server, wanted, certificate))
        self.address = wanted
        self._server.start()

    def traffic(self) -> Traffic:
        """Totals of what was received, sent and refused so far."""
        return self._service.counters.read(self._service.sessions.connected)

    def close(self) -> None:
        """End all calls and wait until they have ended."""
        self._server.stop(STOPPING_S).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _build(self, token: str, actors: int, keepalive_s: float) -> grpc.Server:
        service = self._service
        received = 2 * service.largest_message + MARGIN_BYTES
        if received > LARGEST_MESSAGE_BYTES:
            raise BadInput(
                f"the unrolls of one actor have {service.largest_message} bytes; at most "
                f"{(LARGEST_MESSAGE_BYTES - MARGIN_BYTES) // 2} fit into a message: fewer environments an actor, or "
                "shorter unrolls"
            )
        # gRPC has a thread for each running call: of each actor a stream and a pull of weights, and
        # some for actors that are joining.
        threads = 2 * actors + 8
        return grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="transport"),
            handlers=[service.handlers()],
            interceptors=[TokenCheck(token, service.counters)],
            maximum_concurrent_rpcs=threads,
            options=[
                *calls.connection_options(keepalive_s),
                # By default two servers may listen at one port, and the system would spread the
                # actors over two learners.
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", actors + STRANGERS),
                ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_S)),
                ("grpc.max_connection_idle_ms", int(1000 * IDLE_S)),
                ("grpc.max_receive_message_length", received),
                ("grpc.max_send_message_length", -1),
            ],
        )


def _allow_many_files() -> None:
    """Raise this process's limit of open files to what the system allows: a connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(server: grpc.Server, wanted: Address, certificate: Certificate) -> int:
    """Listen over TLS; returns the port."""
    pair = (certificate.key.encode(), certificate.certificate.encode())
    try:
        return int(server.add_secure_port(str(wanted), grpc.ssl_server_credentials([pair])))
    except RuntimeError as error:
        raise BadInput(f"cannot listen at {wanted}: {on_one_line(error)}") from None


def _listen_at(server: grpc.Server, path: str) -> None:
    """Listen at a local socket that only its owner may connect to (mode 600)."""
    _check_socket(path)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise BadInput(f"cannot listen at unix:{path}: {on_one_line(error)}") from None
    # The socket has no TLS, so nobody else may connect.
    Path(path).chmod(0o600)


def _check_socket(path: str) -> None:
    """Raise `BadInput` if a process already listens at this path: gRPC would silently replace its socket."""
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        raise BadInput(
            f"the path of a local socket has at most {LONGEST_SOCKET_PATH} bytes: {path}"
        )
    with sockets.socket(sockets.AF_UNIX) as probe:
        try:
            # A socket's file outlives its process; only a connection shows whether somebody
            # listens.
            probe.connect(path)
        except OSError:
            return
    raise BadInput(f"cannot listen at unix:{path}: another process does")


LONGEST_NUMBER = 20
"""The most digits of an incarnation in the metadata."""


class Service:
    """Checks each call, passes well-formed messages to the `Receiver`, and counts refusals.

    generation: the learner's; environments: the most of one actor, which bounds the messages.
    """

    def __init__(self, receiver: Receiver, generation: int, environments: int, actors: int) -> None:
        self._receiver = receiver
        self._generation = generation
        self._environments = environments
        self.largest_message = messages.largest_message(receiver.specs, environments)
        self.counters = Counters()
        self._act: Act | None = None
        if isinstance(receiver, Answering) and receiver.shown:
            self._act = Act(receiver, environments, self.counters)
        self.sessions = Sessions(actors, receiver.left)
        self._parts: Parts | None = None
        self._parts_lock = threading.Lock()

    def handlers(self) -> grpc.GenericRpcHandler:
        """The handlers for a server. Messages are bytes here, so that broken ones are counted, too."""
        answered = {
            "Join": grpc.unary_unary_rpc_method_handler(self.join),
            "Weights": grpc.unary_stream_rpc_method_handler(self.weights),
            "Send": grpc.stream_stream_rpc_method_handler(self.send),
        }
        if self._act is not None:
            answered["Act"] = grpc.stream_stream_rpc_method_handler(self.act)
        return grpc.method_handlers_generic_handler(calls.SERVICE, answered)

    def join(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        """`JoinRequest` -> `JoinReply`."""
        self._check_deadline(context)
        try:
            request = messages.unpack_join(message)
        except BadMessage as bad:
            self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, bad.reason, str(bad))
        if not 1 <= request.environments <= self._environments:
            self.counters.refused("environments")
            allowed = f"1 to {self._environments}"
            wrong = f"an actor has {allowed} environments here, not {request.environments}"
            return messages.pack_refusal(Refused(wrong, 2))
        session = self.sessions.join(request.incarnation)
        if session is None:
            self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "actors", "too many actors")
        try:
            joined = self._receiver.join(request)
        except Refused as refused:
            self.sessions.end(session)
            self.counters.refused("actor")
            return messages.pack_refusal(refused)
        session.accepted = True
        wanted = self._act if self._act is not None and joined.answers else self
        return messages.pack_welcome(joined, wanted.largest_message)

    def weights(self, message: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """`Have` -> `Chunk`s."""
        self._check_deadline(context)
        try:
            generation, have = messages.unpack_have(message)
        except BadMessage as bad:
            self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, bad.reason, str(bad))
        self._check_generation(generation, context)
        packed = self._receiver.packed_weights(have)
        if packed is not None:
            for chunk in pack_chunks(self._parts_of(packed)):
                # Bytes are counted before they are sent, because the total may be read as soon as
                # the actor has them.
                self.counters.sent(len(chunk))
                yield chunk

    def send(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """`Unrolls` -> `Ack`s, one each and in order, and the weights that they want."""
        session = self._opened(context)
        given = Version(0, 0)
        try:
            for message in requests:
                ack, have = self._receive(session, message)
                weights: Packed | None = None
                if have is not None:
                    weights = self._receiver.packed_weights(max(have, given))
                parts: Parts | None = None
                if weights is not None:
                    parts = self._parts_of(weights)
                    # The actor may have sent its next message before it has these weights. They
                    # must not be sent twice.
                    given = parts.version
                    self.counters.sent(parts.size)
                yield from messages.pack_acks(ack, parts)
        finally:
            self.sessions.end(session)

    def act(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """`Observations` -> `Actions`."""
        session = self._opened(context)
        try:
            if self._act is not None:
                yield from self._act.answers(session, requests, context)
        finally:
            self.sessions.end(session)

    def _parts_of(self, packed: Packed) -> Parts:
        """The encoded parts of these weights, shared by all actors that receive them."""
        with self._parts_lock:
            if self._parts is None or self._parts.version != packed[0]:
                self._parts = Parts(*packed)
            return self._parts

    def _opened(self, context: grpc.ServicerContext) -> Session:
        """The session of the actor whose stream begins; aborts the call if it has not joined."""
        self._check_deadline(context)
        session = self.sessions.open(_incarnation(context), context.cancel)
        if session is None:
            code = grpc.StatusCode.FAILED_PRECONDITION
            self._refuse(context, code, "not joined", "join first")
        return session

    def _receive(self, session: Session, raw: bytes) -> tuple[Ack, Version | None]:
        """Hand one message to the receiver. Returns its `Ack`, and the version of the weights that the actor
        holds (None: it does not want newer ones with the `Ack`).
        """
        began = time.perf_counter()
        sequence = 0
        try:
            message = messages.parse_unrolls(raw, self.largest_message)
            sequence = message.sequence
            unrolls = messages.unpack_unrolls(message, self._receiver.specs, self._environments)
        except BadMessage as bad:
            self.counters.refused(bad.reason)
            newest = Version(self._generation, 0)
            refused = Ack(sequence=sequence, state="refused", newest=newest, reason=str(bad))
            return refused, None
        checked = time.perf_counter()
        # The same message may arrive over a lost and over a new connection. The second one waits
        # here until the first was taken in, and is a duplicate then.
        with session.receiving:
            ack = self._receiver.receive(session.incarnation, sequence, unrolls)
        self.counters.received(len(raw), checked - began, time.perf_counter() - checked)
        if ack.state == "refused":
            self.counters.refused("unrolls")
        return ack, unrolls.have

    def _check_deadline(self, context: grpc.ServicerContext) -> None:
        remaining_s = context.time_remaining()
        if remaining_s is None or remaining_s > calls.LONGEST_CALL_S:
            code = grpc.StatusCode.INVALID_ARGUMENT
            self._refuse(context, code, "deadline", f"a deadline within {calls.LONGEST_CALL_S} s")

    def _check_generation(self, generation: int, context: grpc.ServicerContext) -> None:
        if generation != self._generation:
            code = grpc.StatusCode.FAILED_PRECONDITION
            message = f"this learner is of generation {self._generation}, not {generation}"
            self._refuse(context, code, "generation", message)

    def _refuse(
        self, context: grpc.ServicerContext, code: grpc.StatusCode, reason: str, message: str
    ) -> NoReturn:
        self.counters.refused(reason)
        context.abort(code, message)
        raise AssertionError("abort raises")


class TokenCheck(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Rejects every call without the token before any of its message is read."""

    def __init__(self, token: str, counters: Counters) -> None:
        self._expected = calls.bearer(token).encode()
        self._counters = counters
        self._denial = grpc.stream_stream_rpc_method_handler(self._deny)

    def intercept_service(self, continuation: Callable[..., Any], details: Any) -> Any:
        """Called by gRPC for every call. The comparison takes constant time, whatever the token."""
        shown = [value for key, value in details.invocation_metadata if key == calls.AUTHORIZATION]
        if len(shown) == 1 and hmac.compare_digest(_as_bytes(shown[0]), self._expected):
            return continuation(details)
        return self._denial

    def _deny(self, _: object, context: grpc.ServicerContext) -> NoReturn:
        self._counters.refused("token")
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token, or a wrong one")
        raise AssertionError("abort raises")


def _incarnation(context: grpc.ServicerContext) -> int:
    """The incarnation in the metadata; -1 if it is missing or malformed."""
    shown = [value for key, value in context.invocation_metadata() if key == calls.INCARNATION]
    text = shown[0] if len(shown) == 1 else ""
    # isdigit alone is true for digits of other scripts, too.
    if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER:
        return int(text)
    return -1


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
