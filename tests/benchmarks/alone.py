"""The parts of central inference, each by itself: what this machine could do at best, as a `Rate` of
environment steps.

    emulators    E: as many actors as there are, in processes of their own, that only step
    inference    I: batched, of the first groups of all actors at once, without transport
    echo         T: a gRPC server that answers messages of the same bytes, with as many streams over a
                 local socket

Groups are those that so many actors have on the learner's machine. What has processes of its own can
be measured often: between two measurements they wait.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from typing import Any, Self

import grpc
import numpy as np
import torch

from agents.algorithms.impala_acting import ActorCriticPolicy
from agents.distributed.actors import is_crowd
from agents.distributed.central import Turn
from agents.distributed.observations import Actions, Observations
from agents.distributed.stepping import Stepping
from agents.environments.training import TrainingEnvironments
from agents.transport.messages import pack_actions, pack_observations
from config.resolved import Resolved
from steps.training.serving import local_socket
from tests.benchmarks.together import Rate

SETTLES_S = 1.0
"""Of each segment, before it is measured."""
ECHO = "/echo/Act"


def counted(work: Callable[[], int], seconds: float) -> Rate:
    """In this process; work does some and says how many steps it belongs to."""
    work()
    steps, began, busy_s = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        steps += work()
    return Rate(steps, time.perf_counter() - began, time.process_time() - busy_s)


class SideBySide:
    """Processes that do the same work, each what `target` makes of its own `given`; they end with the
    end of a `with`.
    """

    def __init__(
        self, target: Callable[..., Callable[[], int]], given: list[tuple[Any, ...]]
    ) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self._pipes, self._members = list[Any](), list[Any]()
        for arguments in given:
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            self._members.append(
                context.Process(target=_serve, args=(theirs, target, arguments), daemon=True)
            )
            self._members[-1].start()
        for pipe in self._pipes:
            pipe.recv()

    def measure(self, seconds: float) -> Rate:
        """All of them at once, for so long."""
        for pipe in self._pipes:
            pipe.send(seconds)
        rates = [pipe.recv() for pipe in self._pipes]
        longest_s = max(rate.seconds for rate in rates)
        busy_s = sum(rate.busy_s for rate in rates)
        return Rate(sum(rate.steps for rate in rates), longest_s, busy_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, member in zip(self._pipes, self._members, strict=True):
            pipe.send(None)
            member.join()


def _serve(pipe: Pipe, target: Callable[..., Callable[[], int]], given: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    work = target(*given)
    work()
    pipe.send("ready")
    while (seconds := pipe.recv()) is not None:
        counted(work, SETTLES_S)
        pipe.send(counted(work, seconds))


def emulators(resolved: Resolved, actors: int) -> SideBySide:
    """E."""
    in_halves = not is_crowd(actors)
    return SideBySide(emulator, [(resolved, actor, in_halves) for actor in range(actors)])


def emulator(resolved: Resolved, actor: int, in_halves: bool) -> Callable[[], int]:
    """One actor's environments."""
    environments = TrainingEnvironments(resolved, 0, actor, in_halves=in_halves)
    drawn = np.random.default_rng(actor)
    sizes = [rows.stop - rows.start for rows in environments.groups]

    def step() -> int:
        for group, size in enumerate(sizes):
            environments.send(group, drawn.integers(0, environments.interface.actions, size))
        for group in range(len(sizes)):
            environments.receive(group)
            environments.settle(group)
        return environments.count

    return step


def first_seen(
    resolved: Resolved, actors: int
) -> tuple[ActorCriticPolicy, list[Turn], Observations]:
    """A policy, what each group of one actor shows it, and the first group's message."""
    environments = TrainingEnvironments(resolved, 0, in_halves=not is_crowd(actors))
    policy = ActorCriticPolicy(resolved, environments, run=0)
    memory, stepping = policy.begin(environments.count, 0), Stepping(environments)
    shown = [stepping.show(group) for group in range(len(environments.groups))]
    turns = [
        Turn(memory, rows, one.columns["observation"], one.columns["begins"], one.columns.get("mask"))
        for rows, one in zip(environments.groups, shown, strict=True)
    ]  # fmt: skip
    environments.close()
    return policy, turns, shown[0]


def inference(resolved: Resolved, actors: int, seconds: float) -> Rate:
    """I: the first groups of all actors at once."""
    policy, turns, _ = first_seen(resolved, actors)
    waiting = [turns[0]] * actors
    rows = actors * len(turns[0].begins)

    def answer() -> int:
        policy.act(waiting)
        return rows

    return counted(answer, seconds)


@contextlib.contextmanager
def echo(resolved: Resolved, actors: int) -> Iterator[Callable[[float], Rate]]:
    """T, of both ends, for so many seconds: as many messages of each actor on their way as it has
    groups.
    """
    policy, turns, shown = first_seen(resolved, actors)
    count, sent = len(turns[0].begins), pack_observations(shown)
    acted = policy.act(turns[:1])[0].actions
    answer = pack_actions(Actions(tick=1, group=0, actions=acted))
    server = grpc.server(ThreadPoolExecutor(actors), handlers=[_echo_handlers(answer)])
    with local_socket() as path:
        server.add_insecure_port(f"unix:{path}")
        server.start()
        with SideBySide(echoing, [(path, sent, count, len(turns))] * actors) as clients:

            def measure(seconds: float) -> Rate:
                busy_s = time.process_time()
                rate = clients.measure(seconds)
                own_s = (time.process_time() - busy_s) * seconds / (seconds + SETTLES_S)
                return Rate(rate.steps, rate.seconds, rate.busy_s + own_s)

            yield measure
        server.stop(0).wait()


def _echo_handlers(answer: bytes) -> grpc.GenericRpcHandler:
    def act(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for _ in messages:
            yield answer

    handlers = {"Act": grpc.stream_stream_rpc_method_handler(act)}
    return grpc.method_handlers_generic_handler("echo", handlers)


def echoing(path: str, sent: bytes, count: int, groups: int) -> Callable[[], int]:
    """A message, and an answer to one of those that are on their way."""
    channel = grpc.insecure_channel(f"unix:{path}")
    outgoing = queue.SimpleQueue[bytes]()
    answers = channel.stream_stream(ECHO)(iter(outgoing.get, None))
    for _ in range(groups - 1):
        outgoing.put(sent)

    def turn() -> int:
        outgoing.put(sent)
        next(answers)
        return count

    return turn
