"""Learners and actors that die, stop, or lose the network between them, as real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.distributed.protocol import Rejoin, Unreachable, Version
from agents.transport import calls, messages
from agents.transport.address import Address
from agents.transport.client import Client
from agents.transport.connection import Connection, Lost
from tests.learner_process import LearnerProcess
from tests.outside import ROOT
from tests.plain_receiver import join_request, read_address, some_unrolls, unpack_bytes
from tests.tcp_proxy import Proxy
from tests.waiting import soon, until

pytestmark = pytest.mark.slow
ACTOR = """
import sys, time
from pathlib import Path
from agents.transport.client import Client
from tests.plain_receiver import join_request, read_address, some_unrolls, unpack_bytes
client = Client(lambda: read_address(Path(sys.argv[1])), unpack=unpack_bytes, reconnect_timeout_s=20)
client.join(join_request(77))
while True:
    client.send(some_unrolls())
    time.sleep(0.01)
"""


def actor(find: Callable[[], Address | None], **changed: float) -> Client:
    return Client(find, unpack=unpack_bytes, **({"reconnect_timeout_s": 30.0} | changed))


def send_until(client: Client, error: type[Exception]) -> None:
    with pytest.raises(error):
        while True:
            client.send(some_unrolls())
            time.sleep(0.001)


def test_a_killed_learner_s_successor_is_joined(tmp_path: Path) -> None:
    client = actor(lambda: read_address(tmp_path))
    with LearnerProcess(tmp_path, 1) as first:
        assert client.join(join_request()).generation == 1
        weights = client.weights(None)
        assert weights is not None and weights.version == Version(1, 1)
        client.send(some_unrolls())
        soon(lambda: first.seen()["learnt"])
        first.process.kill()
        first.process.wait()
        with LearnerProcess(tmp_path, 2) as second:
            send_until(client, Rejoin)
            assert client.join(join_request()).generation == 2
            newer = client.weights(weights.version)
            assert newer is not None and newer.version == Version(2, 1)
            assert set(newer.arrays["all"]) == {2}
            client.send(some_unrolls())
            soon(lambda: second.seen()["learnt"])
    client.close()


def test_without_a_successor_the_actor_gives_up_in_time(tmp_path: Path) -> None:
    client = actor(lambda: read_address(tmp_path), reconnect_timeout_s=1)
    with LearnerProcess(tmp_path) as learner:
        client.join(join_request())
        began = time.monotonic()
        learner.process.kill()
        send_until(client, Unreachable)
        # the milliseconds before the learner was joined count as time without one
        assert 0.9 <= time.monotonic() - began < 10
    client.close()


def test_a_stopped_learner_is_noticed_by_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of its node: nothing closes the connection, and another one can be begun
    and is not answered.
    """
    monkeypatch.setattr(calls, "JOIN_S", 1.0)
    client = actor(lambda: read_address(tmp_path), reconnect_timeout_s=0.1, keepalive_s=0.5)
    with LearnerProcess(tmp_path) as learner:
        client.join(join_request())
        learner.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        send_until(client, Unreachable)
        assert time.monotonic() - began < 15
    client.close()


def test_a_half_open_connection_is_noticed_by_both_ends(tmp_path: Path) -> None:
    with LearnerProcess(tmp_path) as learner, Proxy(learner.address.port) as proxy:
        direct = learner.address
        through = Address(**{**vars(direct), "port": proxy.port})
        addresses = [through]
        client = actor(lambda: addresses[-1], keepalive_s=0.5)
        client.join(join_request())
        client.send(some_unrolls())
        soon(lambda: len(learner.seen()["learnt"]) == 1)
        proxy.freeze()
        soon(lambda: learner.seen()["actors"] == 0)
        addresses.append(direct)
        for _ in range(4):
            client.send(some_unrolls())
        soon(lambda: len(learner.seen()["learnt"]) == 5)
        sequences = [sequence for _, sequence in learner.seen()["learnt"]]
        assert sequences == [1, 2, 3, 4, 5]
        client.close()


def test_what_is_sent_again_after_a_lost_acknowledgement_is_learnt_once(tmp_path: Path) -> None:
    """The connection is lost while the learner holds what has arrived."""
    with LearnerProcess(tmp_path) as learner, Proxy(learner.address.port) as proxy:
        through = Address(**{**vars(learner.address), "port": proxy.port})
        client = actor(lambda: through)
        client.join(join_request())
        learner.seen("hold")
        acks = client.send(some_unrolls())
        soon(lambda: learner.seen()["arrived"] == [[11, 1]])
        proxy.cut()
        learner.seen("go")
        for _ in range(5):
            acks += client.send(some_unrolls())
        soon(lambda: len(learner.seen()["learnt"]) >= 6)
        assert learner.seen()["learnt"] == [[11, sequence] for sequence in range(1, 7)]
        assert {ack.sequence: ack.state for ack in acks}[1] == "duplicate"
        client.close()


def test_a_killed_actor_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    with LearnerProcess(tmp_path) as learner:
        other = actor(lambda: learner.address)
        other.join(join_request())
        killed = subprocess.Popen([sys.executable, "-c", ACTOR, str(tmp_path)], cwd=ROOT)
        until(lambda: [77, 3] in learner.seen()["learnt"])
        assert learner.seen()["actors"] == 2
        killed.kill()
        killed.wait()
        soon(lambda: learner.seen()["actors"] == 1)
        other.send(some_unrolls())
        soon(lambda: [11, 1] in learner.seen()["learnt"])
        other.close()


def test_a_message_that_is_far_too_large_is_never_stored(tmp_path: Path) -> None:
    with LearnerProcess(tmp_path) as learner:
        connection = Connection(learner.address, join_request(), 20)
        connection.open(connection.join().joined)
        before = learner.seen()["resident_bytes"]
        connection.send(bytes(300_000_000))
        highest = 0
        with pytest.raises(Lost, match="RESOURCE_EXHAUSTED"):
            while connection.answer(0) is None:
                highest = max(highest, learner.seen()["resident_bytes"])
        connection.close()
        assert highest - before < 60_000_000


def test_an_actor_that_ignores_its_credits_fills_no_memory(tmp_path: Path) -> None:
    """The learner reads the next message when it has taken the last one."""
    with LearnerProcess(tmp_path) as learner:
        client = Connection(learner.address, join_request(), 20)
        joined, largest = client.join()
        client.open(joined)
        before = learner.seen("hold")["resident_bytes"]
        client.send(messages.pack_unrolls(1, some_unrolls()))
        for _ in range(100_000_000 // largest):
            client.send(bytes(largest))
        time.sleep(1)
        assert learner.seen()["resident_bytes"] - before < 30_000_000
        learner.seen("go")
        client.close()
