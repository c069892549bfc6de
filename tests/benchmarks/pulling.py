"""Pulling 40 MB of weights against what carries as many bytes without a protocol: over a local socket
against a plain socket, and over TLS against a socket with TLS, which makes less than half of a plain
one itself. Beside them gRPC alone: a stream of one chunk again and again, which is thrown away.

The learner is a process of its own, and so are the other ends. All ways take turns within every round,
and a ratio is the median over the rounds of the ratios within one round.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np

from agents.transport.address import NAME, Address, Certificate, make_certificate
from agents.transport.client import Client
from agents.transport.service import Server
from agents.transport.tensors import CHUNK_BYTES
from tests.plain_receiver import PlainReceiver, join_request, unpack_bytes

PARAMETERS = 10_000_000
SIZE = 4 * PARAMETERS


class Ways(NamedTuple):
    """From a process with weights to others: addresses, and then what is connected to them.
    bare: gRPC alone.
    """

    plain: Any
    plain_tls: Any
    local: Any
    tls: Any
    bare_local: Any
    bare_tls: Any


def pulling(rounds: int) -> dict[str, list[float]]:
    """The rate over a local socket by that of a plain socket, and the rate over TLS by that of a
    socket with TLS, in every round.
    """
    with ends() as found:
        taken = pulls(found, 10 * rounds)
    for name, times in taken.items():
        rate = SIZE / statistics.median(times) / 1e9
        of_plain = statistics.median(ratios(taken["a plain socket"], times))
        print(f"{SIZE / 1e6:.0f} MB, {name}: {rate:.2f} GB/s, {of_plain:.2f} of a plain socket")
    return {
        "over a local socket / a plain socket": ratios(taken["a plain socket"], taken["local"]),
        "over TLS / a socket with TLS": ratios(taken["a socket with TLS"], taken["TLS"]),
    }


def ratios(reference: list[float], times: list[float]) -> list[float]:
    """Of rates."""
    return [of_reference / one for of_reference, one in zip(reference, times, strict=True)]


def pulls(found: Ways, rounds: int) -> dict[str, list[float]]:
    """Seconds, in every round."""
    into = np.empty(SIZE, np.uint8)

    def pull_plainly(connection: socket.socket) -> None:
        connection.sendall(b"x")
        filled = 0
        while filled < SIZE:
            filled += connection.recv_into(into[filled:].data)

    def pull_bare(channel: grpc.Channel) -> None:
        assert sum(map(len, channel.unary_stream("/bare/Weights")(b""))) >= SIZE

    ways: dict[str, Callable[[], None]] = {
        "a plain socket": lambda: pull_plainly(found.plain),
        "a socket with TLS": lambda: pull_plainly(found.plain_tls),
        "local": lambda: pull(found.local),
        "TLS": lambda: pull(found.tls),
        "gRPC alone, local": lambda: pull_bare(found.bare_local),
        "gRPC alone, TLS": lambda: pull_bare(found.bare_tls),
    }
    for work in ways.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(seconds(work))
    return taken


def seconds(work: Callable[[], object]) -> float:
    """That it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def pull(client: Client) -> None:
    """All weights, whatever the client has."""
    weights = client.weights(None)
    assert weights is not None and weights.arrays["all"].nbytes == SIZE


def joined(address: Address, incarnation: int) -> Client:
    """To a `PlainReceiver`."""
    client = Client(lambda: address, unpack=unpack_bytes, reconnect_timeout_s=30)
    client.join(join_request(incarnation))
    return client


@contextlib.contextmanager
def ends() -> Iterator[Ways]:
    """Connected ones: two sockets, two clients and two channels of gRPC."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        learner = context.Process(target=serve, args=(folder, theirs), daemon=True)
        learner.start()
        found: Ways = ours.recv()
        used = [joined(found.local, 1), joined(found.tls, 2), *bare_channels(found)]
        trusting = ssl.create_default_context(cadata=found.tls.certificate)
        with (
            socket.create_connection(found.plain) as plain,
            trusting.wrap_socket(
                socket.create_connection(found.plain_tls), server_hostname=NAME
            ) as plain_tls,
        ):
            yield Ways(plain, plain_tls, *used)
        for one in used:
            one.close()
        learner.join()


def bare_channels(found: Ways) -> Iterator[grpc.Channel]:
    """Over the local socket, and over TLS."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.ssl_target_name_override", NAME)]
    trusted = grpc.ssl_channel_credentials(found.tls.certificate.encode())
    yield grpc.insecure_channel(found.bare_local, options)
    yield grpc.secure_channel(found.bare_tls, trusted, options)


# What the process with the weights does.


def serve(folder: str, pipe: Pipe) -> None:
    """In all ways at once, until its sockets are closed."""
    receiver, content, certificate = PlainReceiver(), os.urandom(SIZE), make_certificate()
    receiver.publish(1, content)
    given = {"token": "t", "generation": 1, "environments": 2}
    tls = Server(receiver, host="127.0.0.1", certificate=certificate, **given)
    local = Server(receiver, socket=f"{folder}/socket", **given)
    bare, port = bare_server(f"{folder}/bare", certificate, content[:CHUNK_BYTES])
    context = ssl_context(folder, certificate)
    with tls, local, socket.create_server(("127.0.0.1", 0)) as plain, \
            socket.create_server(("127.0.0.1", 0)) as plain_tls:  # fmt: skip
        pipe.send(
            Ways(
                plain.getsockname(), plain_tls.getsockname(), local.address, tls.address,
                f"unix:{folder}/bare", f"127.0.0.1:{port}",
            )
        )  # fmt: skip
        accepted = plain.accept()[0], context.wrap_socket(plain_tls.accept()[0], server_side=True)
        senders = [threading.Thread(target=send, args=(one, content)) for one in accepted]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    bare.stop(0).wait()


def send(connection: socket.socket, content: bytes) -> None:
    """As often as it is asked for."""
    with connection:
        while connection.recv(1):
            connection.sendall(content)


def ssl_context(folder: str, certificate: Certificate) -> ssl.SSLContext:
    """Python reads certificates from files only."""
    path = Path(folder) / "certificate.pem"
    path.write_text(certificate.key + certificate.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def bare_server(path: str, certificate: Certificate, chunk: bytes) -> tuple[grpc.Server, int]:
    """At this local socket, and over TLS at the port."""

    def chunks(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from itertools.repeat(chunk, -(-SIZE // len(chunk)))

    handler = grpc.unary_stream_rpc_method_handler(chunks)
    handlers = [grpc.method_handlers_generic_handler("bare", {"Weights": handler})]
    server = grpc.server(ThreadPoolExecutor(2), handlers=handlers)
    pair = (certificate.key.encode(), certificate.certificate.encode())
    server.add_insecure_port(f"unix:{path}")
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    return server, port
