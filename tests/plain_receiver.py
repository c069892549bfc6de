"""A small `Receiver` for the tests of the transport: it keeps what arrives. As a process it is a
learner that can be killed: `python -m tests.plain_receiver FOLDER GENERATION` listens on loopback
and writes its address. It answers every line of its input with what it has seen; `hold` keeps all
messages back, as a full queue does, until `go`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from agents.distributed.protocol import (
    PROTOCOL,
    Ack,
    Columns,
    Join,
    Joined,
    Refused,
    Spec,
    Specs,
    Unrolls,
    Version,
    Weights,
)
from agents.transport.address import (
    Address,
    address_from_text,
    address_to_text,
    make_certificate,
    make_token,
)
from agents.transport.service import Server

IDENTITY = "the-experiment"
SPECS = {
    "observation": Spec("uint8", (3, 4, 2)),
    "reward": Spec("float32", (3,)),
    "terminated": Spec("bool", (3,)),
    "state": Spec("float32", (5,)),
}
ENVIRONMENTS = 4
JOINED = Joined(generation=1, number=0, credits=2, specs=SPECS)


class PlainReceiver:
    """before: called with every message before it is decided on, so that a test can hold it back."""

    def __init__(self, generation: int = 1, specs: Specs = SPECS, credits: int = 2) -> None:
        self.specs, self.generation, self.credits = specs, generation, credits
        self.lock = threading.Lock()
        self.learnt: list[tuple[int, int, Unrolls]] = []
        self.known: dict[int, int] = {}
        self.joins: list[Join] = []
        self.gone: list[int] = []
        self.published: tuple[Version, memoryview] | None = None
        self.before: Callable[[int, int], object] = lambda incarnation, sequence: None

    def publish(self, update: int, packed: bytes | memoryview) -> None:
        self.published = Version(self.generation, update), memoryview(packed)

    def join(self, request: Join) -> Joined:
        if (request.protocol, request.identity) != (PROTOCOL, IDENTITY):
            raise Refused("this actor is of another experiment or protocol", 2)
        with self.lock:
            self.joins.append(request)
            number = len({one.incarnation for one in self.joins}) - 1
        return Joined(
            generation=self.generation, number=number, credits=self.credits, specs=self.specs
        )

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        newest = self.published
        return None if newest is None or (have and have >= newest[0]) else newest

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        self.before(incarnation, sequence)
        newest = Version(self.generation, 0)
        if not np.isfinite(unrolls.columns["reward"]).all():
            return Ack(sequence=sequence, state="refused", newest=newest, reason="reward: a NaN")
        with self.lock:
            if sequence <= self.known.get(incarnation, 0):
                return Ack(sequence=sequence, state="duplicate", newest=newest)
            self.known[incarnation] = sequence
            self.learnt.append((incarnation, sequence, unrolls))
        return Ack(sequence=sequence, state="queued", newest=newest)

    def left(self, incarnation: int) -> None:
        with self.lock:
            self.gone.append(incarnation)


def join_request(incarnation: int = 11, **changed: object) -> Join:
    one = Join(incarnation=incarnation, actor=0, environments=2, identity=IDENTITY)
    return dataclasses.replace(one, **changed)


def columns(count: int = 2, seed: int = 0, specs: Specs = SPECS) -> Columns:
    random = np.random.default_rng(seed)
    return {
        name: random.integers(0, 2, (count, *spec.shape)).astype(spec.dtype)
        for name, spec in specs.items()
    }


def some_unrolls(count: int = 2, seed: int = 0, **changed: object) -> Unrolls:
    one = Unrolls(columns=columns(count, seed), oldest=Version(1, 0), newest=Version(1, 0))
    return dataclasses.replace(one, **changed)


def unpack_bytes(version: Version, packed: memoryview) -> Weights:
    """Weights that are one array of bytes."""
    return Weights(version=version, arrays={"all": np.frombuffer(packed, np.uint8)})


def read_address(folder: Path) -> Address | None:
    file = folder / "address.json"
    return address_from_text(file.read_text()) if file.exists() else None


def write_address(folder: Path, address: Address) -> None:
    (folder / "new").write_text(address_to_text(address))
    (folder / "new").rename(folder / "address.json")


def main(folder: Path, generation: int) -> None:
    receiver = PlainReceiver(generation)
    receiver.publish(1, bytes([generation]) * 3_000_000)
    going = threading.Event()
    going.set()
    arrived: list[tuple[int, int]] = []

    def hold(incarnation: int, sequence: int) -> None:
        arrived.append((incarnation, sequence))
        going.wait()

    receiver.before = hold
    server = Server(
        receiver, token=make_token(), generation=generation, environments=ENVIRONMENTS,
        host="127.0.0.1", certificate=make_certificate(), keepalive_s=1,
    )  # fmt: skip
    with server:
        write_address(folder, server.address)
        for line in sys.stdin:
            {"hold": going.clear, "go": going.set}.get(line.strip(), lambda: None)()
            sequences = [(incarnation, sequence) for incarnation, sequence, _ in receiver.learnt]
            seen = {"learnt": sequences, "arrived": arrived}
            seen |= {"resident_bytes": psutil.Process().memory_info().rss}
            print(json.dumps(seen | dataclasses.asdict(server.traffic())), flush=True)
        going.set()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
