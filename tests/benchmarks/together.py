"""A learner in this process and its actors in processes of their own, over gRPC on loopback: how many
environment steps they make together, and with how much processor time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
import torch

from agents.algorithms.impala import IMPALATrainer
from agents.algorithms.impala_acting import make_actor
from agents.distributed.protocol import Unreachable
from agents.distributed.weights import unpack
from agents.transport.address import Address, make_certificate
from agents.transport.client import Client
from agents.transport.service import Server
from config.resolve import resolve
from config.resolved import Resolved
from steps.training.actor import NICENESS
from steps.training.serving import local_socket

LONGEST_START_S = 120.0
LONGEST_END_S = 20.0
EPOCHS = 1_000_000
"""More than any measurement lasts."""


@dataclass(frozen=True)
class Rate:
    """steps: of the environments; busy_s: processor time of all processes."""

    steps: int
    seconds: float
    busy_s: float

    @property
    def a_second(self) -> float:
        return self.steps / self.seconds

    @property
    def busy_a_step_s(self) -> float:
        return self.busy_s / max(self.steps, 1)


def experiment(game: str, environments: int, **given: str) -> Resolved:
    """IMPALA's preset for this game, with so many environments an actor."""
    chosen = {
        "game": game, "outdir": "/x", "envs_per_actor": str(environments), "device": "cpu",
        "epochs": str(EPOCHS), **given,
    }  # fmt: skip
    if ":" in game:
        chosen["vectorisation"] = "sync"
    return resolve("impala", chosen)


def act(address: Address, resolved: Resolved, member: int) -> None:
    """An actor's process on its learner's machine, until that has gone; as `steps.training.actor`."""
    torch.set_num_threads(1)
    os.nice(NICENESS)
    link = Client(lambda: address, unpack=unpack, reconnect_timeout_s=1)
    actor = make_actor(resolved, run=0, member=member, link=link)
    try:
        for _ in actor.act():
            pass
    except Unreachable:
        actor.close()


class Together:
    """A learner and its actors."""

    def __init__(self, trainer: IMPALATrainer, server: Server, members: list[BaseProcess]) -> None:
        self.trainer, self.server, self.members = trainer, server, members
        self._progress = trainer.train()

    def start(self) -> None:
        """Until all actors act: to make Atari's environments takes seconds."""
        began = time.perf_counter()
        while self.server.traffic().messages < 30 * len(self.members):
            self.take(0.5)
            dead = any(not one.is_alive() for one in self.members)
            if dead or time.perf_counter() - began > LONGEST_START_S:
                raise SystemExit("an actor did not start")

    def take(self, seconds: float, pause_s: float = 0.0) -> Rate:
        """What comes through the queue while nobody learns; pause_s: after each batch."""
        hyper, steps, busy_s = self.trainer.hyper, 0, self.busy_s()
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            batch = self.trainer.exchange.take(1.0)
            if batch is not None:
                steps += hyper.batch_size * hyper.unroll_length
                time.sleep(pause_s)
                self.trainer.exchange.give_back(batch)
        return Rate(steps, time.perf_counter() - began, self.busy_s() - busy_s)

    def act(self, seconds: float) -> Rate:
        """What actors that only step show while nobody learns, each all its environments at once: counted
        by messages, because the unrolls of hundreds of environments come in bursts, seconds apart.
        """
        rows, before = self.trainer.resolved.environment.count, self.server.traffic().messages
        taken = self.take(seconds)
        shown = rows * (self.server.traffic().messages - before)
        return replace(taken, steps=shown)

    @contextlib.contextmanager
    def halted(self) -> Iterator[None]:
        """All actors stand still; shorter than keepalive allows."""
        processes = [psutil.Process(member.pid) for member in self.members]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def learn(self, seconds: float) -> Rate:
        """What is learnt from, in whole epochs."""
        steps, busy_s, began = self.trainer.step, self.busy_s(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            next(self._progress)
        return Rate(
            self.trainer.step - steps, time.perf_counter() - began, self.busy_s() - busy_s
        )  # fmt: skip

    def busy_s(self) -> float:
        """Of this process and of the actors that live."""
        return time.process_time() + sum(
            processor_s(member.pid) for member in self.members if member.is_alive()
        )


@contextlib.contextmanager
def together(resolved: Resolved, actors: int) -> Iterator[Together]:
    """All of them act, and meet their learner as a run's do."""
    with local_socket() as socket, _together(resolved, actors, socket) as one:
        yield one


@contextlib.contextmanager
def _together(resolved: Resolved, actors: int, socket: str) -> Iterator[Together]:
    context: Any = multiprocessing.get_context("spawn")
    trainer = IMPALATrainer(resolved, run=0, device="cpu", precision="fp32")
    server = Server(
        trainer.receiver(1), token="t", generation=1, environments=resolved.environment.count,
        host="127.0.0.1", certificate=make_certificate(), actors=2 * actors, socket=socket,
    )  # fmt: skip
    members = [
        context.Process(target=act, args=(server.address, resolved, member), daemon=True)
        for member in range(actors)
    ]
    for member in members:
        member.start()
    try:
        one = Together(trainer, server, members)
        one.start()
        yield one
    finally:
        trainer.close()
        server.close()
        end(members)


def end(members: list[BaseProcess]) -> None:
    """They end by themselves, soon after their learner."""
    latest = time.monotonic() + LONGEST_END_S
    for member in members:
        member.join(max(0.0, latest - time.monotonic()))
        member.kill()
        member.join()


def processor_s(pid: int | None) -> float:
    """That a process has used so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)
