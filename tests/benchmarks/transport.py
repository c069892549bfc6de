"""What the transport costs: pulling 40 MB of weights against a plain socket, publishing them against
copying them, and small messages of unrolls per second. `python -m tests.benchmarks.transport
[--rounds 9]`

Learner and actor are two processes on loopback, as is the plain socket's other end. They take turns
within every round, and a ratio is the median over the rounds of the ratios within one round.
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
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import fmean

import numpy as np

from agents.distributed.batches import BatchQueue
from agents.distributed.exchange import Exchange
from agents.distributed.interfaces import Columns
from agents.transport.address import Address
from agents.transport.client import Client
from agents.transport.credentials import make_certificate
from agents.transport.server import Server
from tests.plain_receiver import PlainReceiver, join_request, some_unrolls, unpack_bytes

PARAMETERS = 10_000_000
SIZE = 4 * PARAMETERS
SMALL_S = 2.0
"""For so long small messages are sent in every round."""


def serve(folder: str, pipe: Pipe) -> None:
    """A learner over TLS, one over a local socket, and a plain socket that sends as much."""
    receiver, content = PlainReceiver(), os.urandom(SIZE)
    receiver.publish(1, content)
    given = {"token": "t", "generation": 1, "environments": 2}
    secure = Server(receiver, host="127.0.0.1", certificate=make_certificate(), **given)
    local = Server(receiver, socket=f"{folder}/socket", **given)
    with secure, local, socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send((secure.address, local.address, listener.getsockname()))
        connection, _ = listener.accept()
        with connection:
            while connection.recv(1):
                connection.sendall(content)


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
    with ends() as (plain, secure, local):
        taken = pulls(plain, secure, local, 3 * rounds)
    for name, times in taken.items():
        rate = SIZE / statistics.median(times) / 1e9
        print(f"pulling {SIZE / 1e6:.0f} MB, {name}: {rate:.2f} GB/s")
    return {
        name: [p / t for p, t in zip(taken["plain"], taken[name], strict=True)]
        for name in ("TLS", "local")
    }


def pulls(
    plain: socket.socket, secure: Client, local: Client, rounds: int
) -> dict[str, list[float]]:
    """Seconds, in every round."""
    into = np.empty(SIZE, np.uint8)

    def pull_plainly() -> None:
        plain.sendall(b"x")
        filled = 0
        while filled < SIZE:
            filled += plain.recv_into(into[filled:].data)

    ways = {"plain": pull_plainly, "TLS": lambda: pull(secure), "local": lambda: pull(local)}
    for work in ways.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(seconds(work))
    return taken


@contextlib.contextmanager
def ends() -> Iterator[tuple[socket.socket, Client, Client]]:
    """The plain socket's, and those over TLS and over a local socket."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        learner = context.Process(target=serve, args=(str(Path(folder)), theirs), daemon=True)
        learner.start()
        secure, local, plain = ours.recv()
        clients = joined(secure, 1), joined(local, 2)
        with socket.create_connection(plain) as connection:
            yield connection, *clients
        for client in clients:
            client.close()
        learner.join()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for name, ratios in pulling(rounds).items():
        print(f"{name}: {statistics.median(ratios):.2f} x a plain socket")
    print(f"a copy is {statistics.median(publishing(rounds)):.2f} x publishing")
    with ends() as (_, secure, local):
        for name, client in (("TLS", secure), ("local", local)):
            rates = [small_messages(client) for _ in range(rounds)]
            print(f"small messages of unrolls, {name}: {statistics.median(rates):,.0f} a second")


if __name__ == "__main__":
    main()
