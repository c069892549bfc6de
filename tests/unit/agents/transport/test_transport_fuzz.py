"""Random and mutated calls from outside against a learner's running service: each is answered or
refused and counted, memory stays flat, and other actors notice nothing.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.distributed.protocol import Version
from agents.transport import calls, messages
from agents.transport.client import Client
from agents.transport.connection import Connection
from tests.hostile import ANSWERS, hostile_calls
from tests.learner_process import LearnerProcess
from tests.plain_receiver import join_request, some_unrolls, unpack_bytes

STRANGER = 99
SOUND = {
    "Join": messages.pack_join(join_request(STRANGER)),
    "Weights": messages.pack_have(1, Version(1, 0)),
    "Send": messages.pack_unrolls(1, some_unrolls(returns=[1.0], lengths=[5])),
    "Act": b"",
    "Nothing": b"",
}


class Target:
    """A learner, an actor of its own, and a stranger who knows the token."""

    def __init__(self, folder: Path) -> None:
        self.learner = LearnerProcess(folder)
        self.actor = Client(
            lambda: self.learner.address, unpack=unpack_bytes, reconnect_timeout_s=10
        )
        self.actor.join(join_request(1))
        self.sent = 0
        self.stranger = Connection(self.learner.address, join_request(STRANGER), 20)

    def call(
        self, name: str, sent: list[bytes], metadata: list[tuple[str, str]], joins: bool = True
    ) -> grpc.StatusCode:
        """How it ended."""
        if joins and name == "Send":
            self.stranger.join()
        call = self.stranger._channel.stream_stream(calls.method(name))
        answers = call(iter(sent), timeout=20, metadata=metadata)
        try:
            for _ in answers:
                pass
        except grpc.RpcError:
            pass
        return answers.code()

    def check_that_the_actor_notices_nothing(self) -> None:
        for _ in range(3):
            self.actor.send(some_unrolls())
            self.sent += 1
        while len(mine := [s for one, s in self.learner.seen()["learnt"] if one == 1]) < self.sent:
            pass
        assert mine == list(range(1, self.sent + 1)), "it reconnected or lost something"
        weights = self.actor.weights(None)
        assert weights is not None and len(weights.arrays["all"]) == 3_000_000

    def close(self) -> None:
        self.actor.close()
        self.stranger.close()
        self.learner.__exit__(None, None, None)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    one = Target(tmp_path_factory.mktemp("learner"))
    yield one
    one.close()


def fuzz(target: Target, examples: int) -> None:
    """Half of them warm up what is made once and kept: threads, pools of memory."""
    token = target.stranger._metadata[0]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(hostile_calls(SOUND, STRANGER), st.booleans())
    def run(hostile: tuple[str, list[bytes], list[tuple[str, str]]], knows_the_token: bool) -> None:
        name, sent, metadata = hostile
        before = sum(target.learner.seen()["refused"].values())
        code = target.call(name, sent, [token, *metadata] if knows_the_token else metadata)
        refused = sum(target.learner.seen()["refused"].values()) - before
        if knows_the_token:
            assert code is grpc.StatusCode.OK or code in ANSWERS, code
            assert refused >= (code not in (grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED))
        else:
            assert code is grpc.StatusCode.UNAUTHENTICATED and refused >= 1

    run()


def check_fuzz(target: Target, examples: int) -> None:
    fuzz(target, examples // 2)
    target.check_that_the_actor_notices_nothing()
    before = target.learner.seen()["resident_bytes"]
    fuzz(target, examples // 2)
    grown = target.learner.seen()["resident_bytes"] - before
    target.check_that_the_actor_notices_nothing()
    seen = target.learner.seen()
    assert grown < 10_000_000
    assert {"token", "malformed", "not joined"} <= seen["refused"].keys()
    assert len(seen["refused"]) < 20 and seen["actors"] == 1
    assert "Traceback" not in target.learner.errors


def test_hostile_calls_are_refused_and_counted_and_nobody_else_notices(target: Target) -> None:
    check_fuzz(target, 300)


@pytest.mark.slow
@pytest.mark.soak
def test_many_hostile_calls_are_refused_and_counted_and_nobody_else_notices(
    target: Target,
) -> None:
    check_fuzz(target, 6_000)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=5000), encrypted=st.booleans())
def test_what_is_no_call_at_all_ends_that_connection_only(
    target: Target, content: bytes, encrypted: bool
) -> None:
    """Bytes on the port, before and behind TLS."""
    address = target.learner.address
    context = ssl.create_default_context(cadata=address.certificate)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((address.host, address.port), timeout=20) as plain:
        try:
            if encrypted:
                wrapped = context.wrap_socket(plain, server_hostname="learner")
                wrapped.sendall(content)
                wrapped.close()
            else:
                plain.sendall(content)
        except (OSError, ssl.SSLError):
            pass  # it has hung up
    target.check_that_the_actor_notices_nothing()
