"""The learner's end: a gRPC server around a `Receiver`."""

from __future__ import annotations

import socket as sockets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from agents.distributed.interfaces import Receiver
from agents.transport import calls
from agents.transport.address import Address
from agents.transport.credentials import Certificate
from agents.transport.messages import LARGEST_MESSAGE_BYTES
from agents.transport.service import Service, TokenCheck
from agents.transport.traffic import Traffic
from config.errors import BadInput, on_one_line

STOPPING_S = 0.5
"""For so long calls under way may take to end."""
MARGIN_BYTES = 2**20
"""gRPC ends a call whose message is larger than twice the largest and this, before it is stored; what
lies between is refused by the service, which can say why and count it.
"""
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
        self._server = self._build(token, actors, keepalive_s)
        if socket:
            _listen_at(self._server, socket)
        if certificate is not None and host:
            wanted = replace(wanted, port=_listen(self._server, wanted, certificate))
        self.address = wanted
        self._server.start()

    def traffic(self) -> Traffic:
        """What went through so far."""
        return self._service.counters.read(self._service.sessions.connected)

    def close(self) -> None:
        """End all calls, and wait for that."""
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
        threads = 2 * actors + 8  # a stream each, a pull of weights each, and those who are new
        return grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="transport"),
            handlers=[service.handlers()],
            interceptors=[TokenCheck(token, service.counters)],
            maximum_concurrent_rpcs=threads,
            options=[
                *calls.connection_options(keepalive_s),
                ("grpc.so_reuseport", 0),  # else two learners would share one port's actors
                ("grpc.max_receive_message_length", received),
                ("grpc.max_send_message_length", -1),
            ],
        )


def _listen(server: grpc.Server, wanted: Address, certificate: Certificate) -> int:
    """Over TLS; returns the port."""
    pair = (certificate.key.encode(), certificate.certificate.encode())
    try:
        return int(server.add_secure_port(str(wanted), grpc.ssl_server_credentials([pair])))
    except RuntimeError as error:
        raise BadInput(f"cannot listen at {wanted}: {on_one_line(error)}") from None


def _listen_at(server: grpc.Server, path: str) -> None:
    """At a local socket, which nobody but its owner may enter."""
    _check_socket(path)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise BadInput(f"cannot listen at unix:{path}: {on_one_line(error)}") from None
    Path(path).chmod(0o600)


def _check_socket(path: str) -> None:
    """Refuse a path on which somebody listens: gRPC would take it over without a word."""
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        raise BadInput(
            f"the path of a local socket has at most {LONGEST_SOCKET_PATH} bytes: {path}"
        )
    with sockets.socket(sockets.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return
    raise BadInput(f"cannot listen at unix:{path}: another process does")
