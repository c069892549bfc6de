"""IMPALA on shared cores: the processor time that a step takes in each of its parts, alone and in this
process, and what the cores could do at best with it.

    emulator      one actor's environments stepped, nothing else
    inference     its policy on what they show
    transport     its messages of unrolls through gRPC, to a learner that only receives them, and
                  the weights that are newer when an actor sends again: both ends
    learning      updates from the batch of such unrolls, and their publication
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from agents.algorithms.impala import IMPALATrainer
from agents.algorithms.impala_acting import ActorCriticActing
from agents.distributed.protocol import Unrolls, Version, Weights
from agents.distributed.queues import Batch
from agents.distributed.stepping import Play
from agents.distributed.weights import Packer, unpack, weights_of
from agents.environments.training import TrainingEnvironments
from agents.transport.client import Client
from agents.transport.service import Server
from config.resolved import Resolved
from steps.training.serving import local_socket
from tests.benchmarks.alone import counted
from tests.benchmarks.together import Rate
from tests.plain_receiver import PlainReceiver, join_request


def parts(resolved: Resolved, actors: int, seconds: float) -> dict[str, Rate]:
    """Each for so long; actors: of the learner."""
    environments = TrainingEnvironments(resolved, 0, 1)
    trainer = IMPALATrainer(resolved, run=0, device="cpu", precision="fp32")
    acting = ActorCriticActing(resolved, environments, run=0, number=0)
    arrays = weights_of(trainer.network, trainer.observation_normaliser)
    acting.load(Weights(version=Version(1, 0), arrays=arrays))
    play = Play(environments, acting, resolved.hyperparameters.unroll_length)
    unrolls = next(one for one in iter(lambda: _played(play), 0) if one is not None)
    found = {
        "emulator": counted(_emulator(environments), seconds),
        "inference": counted(_inference(acting, environments), seconds),
        "transport": _transport(trainer, unrolls, actors, seconds),
        "learning": counted(_learning(trainer, unrolls), seconds),
    }
    environments.close()
    trainer.close()
    return found


def limit(found: dict[str, Rate]) -> float:
    """Steps a second that all cores make at best."""
    return len(os.sched_getaffinity(0)) / sum(rate.busy_a_step_s for rate in found.values())


def _played(play: Play) -> Unrolls | None:
    play.step()
    return play.take(1, least=play.environments.count)


def _emulator(environments: TrainingEnvironments) -> Callable[[], int]:
    drawn, count = np.random.default_rng(0), environments.count

    def step() -> int:
        environments.step(drawn.integers(0, environments.interface.actions, count))
        return count

    return step


def _inference(acting: ActorCriticActing, environments: TrainingEnvironments) -> Callable[[], int]:
    seen, begins = environments.observation.copy(), np.zeros(environments.count, np.bool_)

    def act() -> int:
        acting.act(slice(0, len(seen)), seen, begins, environments.masks)
        return len(seen)

    return act


def _transport(trainer: IMPALATrainer, unrolls: Unrolls, actors: int, seconds: float) -> Rate:
    """Nothing is kept of what arrives."""
    receiver = PlainReceiver(specs=trainer.specs)
    receiver.learnt = Nothing()
    packed = Packer().pack(weights_of(trainer.network, trainer.observation_normaliser))
    count = len(unrolls.columns["reward"])
    updates = actors * count / trainer.hyper.batch_size
    environments = trainer.resolved.environment.count
    with local_socket() as socket, Server(
        receiver, token="t", generation=1, environments=environments, socket=socket
    ) as server:  # fmt: skip
        client = Client(lambda: server.address, unpack=unpack, reconnect_timeout_s=10)
        client.join(join_request(1, environments=environments))
        steps = count * trainer.hyper.unroll_length
        sent, have = itertools.count(1), Version(1, 0)

        def send() -> int:
            nonlocal have
            receiver.publish(int(next(sent) * updates), packed)
            client.send(replace(unrolls, have=have))
            newer = client.newer()
            have = have if newer is None else newer.version
            return steps

        rate = counted(send, seconds)
        client.close()
    return rate


class Nothing(list[tuple[int, int, Unrolls]]):
    """Keeps nothing."""

    def append(self, _: object) -> None:
        """It is gone."""


def _learning(trainer: IMPALATrainer, unrolls: Unrolls) -> Callable[[], int]:
    size = trainer.hyper.batch_size
    chosen = np.arange(size) % len(unrolls.columns["reward"])
    batch = Batch(
        {name: column[chosen] for name, column in unrolls.columns.items()}, np.zeros(size, np.int64)
    )
    trainer.exchange.begin(1)

    def learn() -> int:
        trainer._learn(batch)
        return size * trainer.hyper.unroll_length

    return learn
