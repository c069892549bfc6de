"""REINFORCE whose rollouts come from actors: the whole of an algorithm with the topology
`actor-learner` that a person brings, `python -m workflows.submit my_lab.crowd:ALGORITHM`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from agents.distributed.protocol import (
    Ack,
    Join,
    Joined,
    Link,
    Refused,
    Rejoin,
    Spec,
    Unrolls,
    Version,
)
from agents.distributed.weights import Packer
from agents.environments.training import TrainingEnvironments
from agents.experience.rollouts import Episodes
from agents.interfaces import Progress, State
from agents.states import to_arrays, to_tensors
from config.resolved import Resolved
from config.seeds import integer_seed
from my_lab import reinforce

ALGORITHM = replace(
    reinforce.ALGORITHM,
    name="crowd",
    trainer="my_lab.crowd:Learner",
    actor="my_lab.crowd:Actor",
    topology="actor-learner",
)


class Inbox:
    """What an actor sends is one epoch's batch; two of them wait at most."""

    def __init__(self, resolved: Resolved, generation: int, observation_size: int) -> None:
        length = resolved.hyperparameters.rollout_length
        self.specs = {
            "observation": Spec("float32", (length, observation_size)),
            "action": Spec("int64", (length,)),
            "reward": Spec("float32", (length,)),
            "ended": Spec("bool", (length,)),
        }
        self.identity, self.generation = resolved.identity_hash, generation
        self.packer = Packer()
        self.queue = queue.Queue[Unrolls](maxsize=2)
        self.newest, self.packed = Version(generation, 0), memoryview(b"")
        self.last = dict[int, int]()
        self.closed = self.ended = False  # ended: nothing is left to train
        self.lock = threading.Lock()

    def join(self, request: Join) -> Joined:
        if request.identity != self.identity:
            raise Refused("another experiment", 2)
        with self.lock:
            self.last.setdefault(request.incarnation, 0)
            number = list(self.last).index(request.incarnation)
        return Joined(
            generation=self.generation, number=number, credits=2, specs=self.specs,
            stop=self.ended,
        )  # fmt: skip

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        newest, packed = self.newest, self.packed
        return None if have == newest else (newest, packed)

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        with self.lock:
            known = sequence <= self.last.get(incarnation, 0)
            self.last[incarnation] = max(sequence, self.last.get(incarnation, 0))
        while not known and not self.closed:
            try:
                self.queue.put(unrolls, timeout=0.1)
                break
            except queue.Full:
                continue
        state = "duplicate" if known else "queued"
        return Ack(sequence=sequence, state=state, newest=self.newest, stop=self.ended)

    def left(self, incarnation: int) -> None:
        pass


class Learner:
    learn = reinforce.Trainer.learn

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        self.resolved, self.hyper = resolved, resolved.hyperparameters
        self.epoch = self.step = 0
        torch.manual_seed(integer_seed(resolved.experiment.seed, run, "weights"))
        environments = TrainingEnvironments(resolved, run)
        self.interface = environments.interface
        environments.close()
        self.network = reinforce.make_network(self.interface, self.hyper.hidden_size)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=self.hyper.learning_rate)
        self.inbox: Inbox | None = None

    def receiver(self, generation: int) -> Inbox:
        self.inbox = Inbox(self.resolved, generation, self.interface.observation_size)
        self.publish(self.inbox)
        return self.inbox

    def publish(self, inbox: Inbox) -> None:
        inbox.packed = inbox.packer.pack(to_arrays(self.network.state_dict()))
        inbox.newest = Version(inbox.generation, self.epoch)

    def train(self) -> Iterator[Progress | None]:
        inbox = self.inbox
        assert inbox is not None
        while self.epoch < self.resolved.epochs:
            try:
                unrolls = inbox.queue.get(timeout=1.0)
            except queue.Empty:
                yield None
                continue
            columns = (np.swapaxes(unrolls.columns[name], 0, 1) for name in inbox.specs)
            loss = self.learn(*columns)
            self.epoch += 1
            self.step += unrolls.columns["reward"].size
            self.publish(inbox)
            yield Progress(
                epoch=self.epoch, step=self.step, frame=self.step, returns=unrolls.returns,
                lengths=unrolls.lengths, metrics={"policy_loss": loss},
            )  # fmt: skip
        inbox.ended = True

    def state_dict(self) -> State:
        return {
            "epoch": self.epoch, "step": self.step, "interface": self.interface.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "optimiser": to_arrays(self.optimiser.state_dict()),
        }  # fmt: skip

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        self.epoch, self.step = state["epoch"], state["step"]
        self.network.load_state_dict(to_tensors(state["network"]))
        self.optimiser.load_state_dict(to_tensors(state["optimiser"]))

    def close(self) -> None:
        if self.inbox is not None:
            self.inbox.closed = True


class Actor:
    rollout = reinforce.Trainer.rollout

    def __init__(self, resolved: Resolved, *, run: int, member: int, link: Link) -> None:
        self.resolved, self.hyper, self.link = resolved, resolved.hyperparameters, link
        self.run, self.member, self.steps = run, member, 0
        self.request = Join(
            incarnation=int(np.random.SeedSequence().entropy % 2**63),  # type: ignore[operator]
            actor=member, environments=resolved.environment.envs_per_actor,
            identity=resolved.identity_hash,
        )  # fmt: skip
        self.environments: Any = None

    def act(self) -> Iterator[int]:
        while True:
            try:
                yield from self.until_another_learner()
                return
            except Rejoin:
                continue

    def until_another_learner(self) -> Iterator[int]:
        joined = self.link.join(self.request)
        self.close()
        own = (self.run << 16) + joined.number  # no two actors see the same episodes
        self.generator = torch.Generator().manual_seed(own)
        self.environments = TrainingEnvironments(self.resolved, own)
        self.episodes = Episodes(self.environments.count)
        self.network = reinforce.make_network(self.environments.interface, self.hyper.hidden_size)
        version, stop = None, joined.stop
        yield self.steps
        while not stop:
            if (weights := self.link.weights(version)) is not None:
                self.network.load_state_dict(to_tensors(weights.arrays))
                version = weights.version
            columns = self.rollout()
            names = ("observation", "action", "reward", "ended")
            returns, lengths = self.episodes.finish(columns[2], columns[3])
            assert version is not None
            unrolls = Unrolls(
                columns={n: np.swapaxes(c, 0, 1) for n, c in zip(names, columns, strict=True)},
                oldest=version, newest=version, returns=returns, lengths=lengths,
            )  # fmt: skip
            unrolls.columns["reward"] = unrolls.columns["reward"].astype(np.float32)
            stop = any(ack.stop for ack in self.link.send(unrolls))
            self.steps += columns[2].size
            yield self.steps

    def close(self) -> None:
        if self.environments is not None:
            self.environments.close()
            self.environments = None
