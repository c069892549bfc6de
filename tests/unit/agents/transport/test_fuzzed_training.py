"""Random and mutated messages against a learner that learns and acts for an actor, over TLS on
loopback: all four calls are refused or answered, memory stays flat, and the training goes on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings

from agents.distributed.local import LocalLink
from agents.distributed.observations import Observations
from agents.distributed.protocol import Join, Unrolls, Version
from agents.distributed.stepping import Stepping
from agents.environments.training import TrainingEnvironments
from agents.transport import calls, messages
from agents.transport.address import make_certificate
from agents.transport.connection import Connection
from agents.transport.messages import pack_observations
from agents.transport.service import Server
from tests.hostile import ANSWERS, Hostile, hostile_calls
from tests.local_actors import actors_of, impala, learner
from tests.waiting import soon

RESOLVED = impala(
    "cartpole", envs_per_actor=3, unroll_length=5, batch_size=6, epochs=10**6, epoch_updates=2,
    inference="learner",
)  # fmt: skip
STRANGER = 99
LARGEST_GROWTH_BYTES = 20_000_000


class Training:
    """A learner that learns on a thread of its own, an actor on another, and a stranger who knows the
    token.
    """

    def __init__(self) -> None:
        self.trainer = learner(RESOLVED)
        self.trainer.wait_s = 0.1
        receiver = self.trainer.receiver(1)
        self.server = Server(
            receiver, token="right", generation=1, environments=3, host="127.0.0.1",
            certificate=make_certificate(),
        )  # fmt: skip
        self.ended: BaseException | None = None
        self.leaves = threading.Event()
        self.actor = actors_of(RESOLVED, receiver, 1, LocalLink)[0]  # type: ignore[arg-type]
        self.threads = [
            threading.Thread(target=self._go, args=(work,), daemon=True)
            for work in (self.trainer.train(), self.actor.act())
        ]
        for thread in self.threads:
            thread.start()
        request = Join(
            incarnation=STRANGER, actor=1, environments=3, identity=RESOLVED.identity_hash
        )
        self.stranger = Connection(self.server.address, request, 20)
        self.sound = sound_messages(request, self.trainer.specs)

    def _go(self, work: Iterator[Any]) -> None:
        try:
            for _ in work:
                if self.leaves.is_set():
                    return
        except Exception as error:
            self.ended = error

    def call(self, name: str, sent: list[bytes], metadata: list[tuple[str, str]]) -> Any:
        """How it ended."""
        if name in ("Send", "Act"):
            self.stranger.join()
        call = self.stranger._channel.stream_stream(calls.method(name))
        answers = call(iter(sent), timeout=20, metadata=[*self.stranger._metadata, *metadata])
        with contextlib.suppress(grpc.RpcError):
            for _ in answers:
                pass
        return answers.code()

    def refused(self) -> int:
        return sum(self.server.traffic().refused.values())

    def check_that_learning_goes_on(self) -> None:
        before = self.trainer.updates
        soon(lambda: self.trainer.updates > before + 3 or self.ended is not None)
        assert self.ended is None and all(thread.is_alive() for thread in self.threads)
        assert all(np.isfinite(p.detach().numpy()).all() for p in self.trainer.network.parameters())

    def close(self) -> None:
        self.leaves.set()
        self.stranger.close()
        self.trainer.exchange.end()
        for thread in self.threads:
            thread.join(20)
        self.trainer.close()
        self.actor.close()
        self.server.close()


def sound_messages(request: Join, specs: Any) -> dict[str, bytes]:
    """One of each call, which a learner takes."""
    with contextlib.closing(TrainingEnvironments(RESOLVED, 0, 7, in_halves=True)) as environments:
        shown: Observations = Stepping(environments).show(0)
    columns = {name: np.zeros((1, *spec.shape), spec.dtype) for name, spec in specs.items()}
    unrolls = Unrolls(columns=columns, oldest=Version(1, 0), newest=Version(1, 0))
    return {
        "Join": messages.pack_join(request),
        "Weights": messages.pack_have(1, None),
        "Send": messages.pack_unrolls(1, unrolls),
        "Act": pack_observations(shown),
    }


@pytest.fixture(scope="module")
def training() -> Iterator[Training]:
    with contextlib.closing(Training()) as one:
        yield one


def fuzz(training: Training, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(hostile_calls(training.sound, STRANGER))
    def run(hostile: Hostile) -> None:
        before = training.refused()
        code = training.call(*hostile)
        assert code is grpc.StatusCode.OK or code in ANSWERS, code
        said = (grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED)  # the latter by gRPC itself
        assert training.refused() - before >= (code not in said)

    run()


def check_fuzz(training: Training, examples: int) -> None:
    """Half of them warm up what is made once and kept."""
    training.check_that_learning_goes_on()
    fuzz(training, examples // 2)
    before = psutil.Process().memory_info().rss
    fuzz(training, examples // 2)
    assert psutil.Process().memory_info().rss - before < LARGEST_GROWTH_BYTES
    training.check_that_learning_goes_on()
    refused = training.server.traffic().refused
    assert {"malformed", "not joined"} <= refused.keys() and len(refused) < 20


def test_the_messages_that_are_mutated_are_sound(training: Training) -> None:
    """Else nothing that is nearly sound would be tried."""
    named, before = [(calls.INCARNATION, str(STRANGER))], training.refused()
    for name, message in training.sound.items():
        sent = [message] if name in ("Join", "Weights", "Send") else [message, b"nonsense"]
        assert training.call(name, sent, named) is grpc.StatusCode.OK, name
    assert training.refused() - before == 1  # the nonsense, after an answer


def test_a_training_goes_on_while_it_gets_hostile_messages(training: Training) -> None:
    check_fuzz(training, 160)


@pytest.mark.slow
@pytest.mark.soak
def test_a_training_goes_on_while_it_gets_many_hostile_messages(training: Training) -> None:
    check_fuzz(training, 6_000)
