"""What the transport costs: pulling 40 MB of weights against a plain socket, publishing them against
copying them, and small messages of unrolls per second. `python -m tests.benchmarks.transport
[--rounds 9]`

Learner and actor are two processes on loopback, as is the plain socket's other end. They take turns
within every round, and a ratio is the median over the rounds of the ratios within one round.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import numpy as np

from agents.distributed.interfaces import Version
from agents.transport.address import Address
from agents.transport.client import Client
from agents.transport.credentials import make_certificate
from agents.transport.messages import pack_chunks
from agents.transport.server import Server
from tests.plain_receiver import PlainReceiver, join_request, some_unrolls, unpack_bytes

SIZE = 40_000_000
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


def compare(plain: socket.socket, secure: Client, local: Client, rounds: int) -> None:
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
    sent: dict[str, list[float]] = {"TLS": [], "local": []}
    copy, packing = list[float](), list[float]()
    content, copied = memoryview(into), np.empty_like(into)
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(seconds(work))
        copy.append(seconds(lambda: np.copyto(copied, into)))
        packing.append(seconds(lambda: list(map(len, pack_chunks(Version(1, 1), content)))))
        sent["TLS"].append(small_messages(secure))
        sent["local"].append(small_messages(local))
    for name, times in taken.items():
        ratio = statistics.median(p / t for p, t in zip(taken["plain"], times, strict=True))
        rate = SIZE / statistics.median(times) / 1e9
        print(f"pulling {SIZE / 1e6:.0f} MB, {name}: {rate:.2f} GB/s, {ratio:.2f} x a plain socket")
    ratio = statistics.median(a / b for a, b in zip(packing, copy, strict=True))
    print(
        f"making the messages of one pull: {ratio:.2f} x a copy ({statistics.median(copy) * 1e3:.1f} ms)"
    )
    for name, rates in sent.items():
        print(f"small messages of unrolls, {name}: {statistics.median(rates):,.0f} a second")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        learner = context.Process(target=serve, args=(str(Path(folder)), theirs))
        learner.start()
        secure, local, plain = ours.recv()
        clients = joined(secure, 1), joined(local, 2)
        with socket.create_connection(plain) as connection:
            compare(connection, *clients, rounds)
        for client in clients:
            client.close()
        learner.join()


if __name__ == "__main__":
    main()
