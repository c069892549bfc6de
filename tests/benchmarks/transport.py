"""What the transport costs: pulling 40 MB of weights against a plain socket and against gRPC alone,
publishing them against copying them, and small messages of unrolls per second.
`python -m tests.benchmarks.transport [--rounds 9]`

Learner and actor are two processes on loopback, as are the ends of the plain socket and of gRPC alone:
a stream of one chunk again and again, which is thrown away. They take turns within every round, and a
ratio is the median over the rounds of the ratios within one round.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import grpc
import numpy as np

from agents.distributed.batches import BatchQueue
from agents.distributed.exchange import Exchange
from agents.distributed.interfaces import Columns
from agents.transport.address import Address
from agents.transport.client import Client
from agents.transport.credentials import NAME, Certificate, make_certificate
from agents.transport.packed_weights import CHUNK_BYTES
from agents.transport.server import Server
from tests.plain_receiver import PlainReceiver, join_request, some_unrolls, unpack_bytes

PARAMETERS = 10_000_000
SIZE = 4 * PARAMETERS
SMALL_S = 2.0
"""For so long small messages are sent in every round."""


class Ways(NamedTuple):
    """Of a process with weights to other ones. bare: gRPC alone."""

    plain: Any
    secure: Any
    local: Any
    bare_secure: Any
    bare_local: Any


def serve(folder: str, pipe: Pipe) -> None:
    """A learner over TLS, one over a local socket, and others that send as much in both ways."""
    receiver, content, certificate = PlainReceiver(), os.urandom(SIZE), make_certificate()
    receiver.publish(1, content)
    given = {"token": "t", "generation": 1, "environments": 2}
    secure = Server(receiver, host="127.0.0.1", certificate=certificate, **given)
    local = Server(receiver, socket=f"{folder}/socket", **given)
    bare, port = bare_server(f"{folder}/bare", certificate, content[:CHUNK_BYTES])
    with secure, local, socket.create_server(("127.0.0.1", 0)) as listener:
        trusted = (f"127.0.0.1:{port}", certificate.certificate.encode())
        pipe.send(
            Ways(
                listener.getsockname(), secure.address, local.address, trusted,
                f"unix:{folder}/bare",
            )
        )  # fmt: skip
        connection, _ = listener.accept()
        with connection:
            while connection.recv(1):
                connection.sendall(content)
    bare.stop(0).wait()


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


def bare_channels(found: Ways) -> Iterator[grpc.Channel]:
    """Over TLS, and over the local socket."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.ssl_target_name_override", NAME)]
    address, trusted = found.bare_secure
    yield grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), options)
    yield grpc.insecure_channel(found.bare_local, options)


def joined(address: Address, incarnation: int) -> Client:
    client = Client(lambda: address, unpack=unpack_bytes, reconnect_timeout_s=30)
    client.join(join_request(incarnation))
    return client


def pull(client: Client) -> None:
    weights = client.weights(None)
    assert weights is not None and weights.arrays["all"].nbytes == SIZE


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def small_messages(client: Client) -> float:
    """A second."""
    unrolls, count, began = some_unrolls(), 0, time.perf_counter()
    while time.perf_counter() - began < SMALL_S:
        client.send(unrolls)
        count += 1
    return count / (time.perf_counter() - began)


def publishing(rounds: int) -> list[float]:
    """How long a copy of 10M parameters takes, by how long it takes to publish them for all actors."""
    arrays: Columns = {"weights": np.ones(PARAMETERS, np.float32)}
    exchange = Exchange({}, identity="", queue=BatchQueue({}, 1))
    exchange.begin(1)
    copied, updates = np.empty_like(arrays["weights"]), itertools.count()

    def publish() -> float:
        return seconds(lambda: exchange.publish(next(updates), arrays))

    def copy() -> float:
        return seconds(lambda: np.copyto(copied, arrays["weights"]))

    for _ in range(3):  # into memory that was never touched
        publish()
        copy()
    return [
        fmean(copy() for _ in range(5)) / fmean(publish() for _ in range(5)) for _ in range(rounds)
    ]


def pulling(rounds: int) -> dict[str, list[float]]:
    """The rate over TLS and over a local socket, by that of a plain socket, in every round."""
    with ends() as found:
        taken = pulls(found, 3 * rounds)
    for name, times in taken.items():
        rate = SIZE / statistics.median(times) / 1e9
        print(f"pulling {SIZE / 1e6:.0f} MB, {name}: {rate:.2f} GB/s")
    ours = {name: ratios(taken["plain"], taken[name]) for name in ("TLS", "local")}
    for name in ours:
        of_bare = statistics.median(ratios(taken[f"gRPC alone, {name}"], taken[name]))
        print(f"{name}: {of_bare:.2f} x gRPC alone")
    return ours


def ratios(reference: list[float], times: list[float]) -> list[float]:
    """Of rates."""
    return [of_reference / one for of_reference, one in zip(reference, times, strict=True)]


def pulls(found: Ways, rounds: int) -> dict[str, list[float]]:
    """Seconds, in every round."""
    into = np.empty(SIZE, np.uint8)

    def pull_plainly() -> None:
        found.plain.sendall(b"x")
        filled = 0
        while filled < SIZE:
            filled += found.plain.recv_into(into[filled:].data)

    def pull_bare(channel: grpc.Channel) -> None:
        assert sum(map(len, channel.unary_stream("/bare/Weights")(b""))) >= SIZE

    ways = {
        "plain": pull_plainly,
        "TLS": lambda: pull(found.secure),
        "local": lambda: pull(found.local),
        "gRPC alone, TLS": lambda: pull_bare(found.bare_secure),
        "gRPC alone, local": lambda: pull_bare(found.bare_local),
    }
    for work in ways.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(seconds(work))
    return taken


@contextlib.contextmanager
def ends() -> Iterator[Ways]:
    """The plain socket, two clients and two channels of gRPC."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        learner = context.Process(target=serve, args=(str(Path(folder)), theirs), daemon=True)
        learner.start()
        found: Ways = ours.recv()
        used = [joined(found.secure, 1), joined(found.local, 2), *bare_channels(found)]
        with socket.create_connection(found.plain) as connection:
            yield Ways(connection, *used)
        for one in used:
            one.close()
        learner.join()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for name, found_ratios in pulling(rounds).items():
        print(f"{name}: {statistics.median(found_ratios):.2f} x a plain socket")
    print(f"a copy is {statistics.median(publishing(rounds)):.2f} x publishing")
    with ends() as found:
        for name, client in (("TLS", found.secure), ("local", found.local)):
            rates = [small_messages(client) for _ in range(rounds)]
            print(f"small messages of unrolls, {name}: {statistics.median(rates):,.0f} a second")


if __name__ == "__main__":
    main()
