"""Central inference over real connections on loopback: a learner that acts, and actors that only
step environments."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.algorithms.impala_acting import make_actor
from agents.distributed.actors import CROWD, ObservingActor
from agents.distributed.observations import Actions, Observations
from agents.distributed.protocol import Join, Refused, Rejoin, Spec, Unreachable
from agents.transport import client as lasting
from agents.transport import client as outage
from agents.transport.address import Address, make_certificate
from agents.transport.client import Client
from agents.transport.connection import Connection
from agents.transport.messages import (
    largest_observations,
    pack_actions,
    pack_observations,
    parse_observations,
    unpack_actions,
    unpack_observations,
)
from agents.transport.service import Server
from agents.transport.tensors import BadMessage
from config.resolved import Resolved
from steps.training.serving import Roster
from tests.local_actors import impala, learner
from tests.tcp_proxy import Proxy
from tests.unit.agents.transport.test_transport_service import moved
from tests.waiting import soon

CERTIFICATE = make_certificate()
SMALL = {
    "envs_per_actor": 3, "unroll_length": 5, "batch_size": 6, "epochs": 4, "epoch_updates": 2,
    "inference": "learner",
}  # fmt: skip
RESOLVED = impala("cartpole", **SMALL)
SHOWN = {
    "observation": Spec("float32", (4,)), "begins": Spec("bool", ()), "reward": Spec("float32", ()),
}  # fmt: skip


def shown(count: int = 2, finals: int = 0, **given: Any) -> Observations:
    columns = {name: np.ones((count, *spec.shape), spec.dtype) for name, spec in SHOWN.items()}
    final = np.full((finals, 4), 7, np.float32)
    return Observations(**({"tick": 3, "group": 1, "columns": columns, "final": final} | given))


@pytest.mark.parametrize("finals", [0, 2])
def test_observations_and_actions_arrive_as_they_were(finals: int) -> None:
    sent = shown(2, finals, returns=[1.5], lengths=[9])
    packed = pack_observations(sent)
    received = unpack_observations(parse_observations(packed, len(packed)), SHOWN, 2)
    assert (received.tick, received.group, received.returns, received.lengths) == (3, 1, [1.5], [9])
    np.testing.assert_array_equal(received.final, sent.final)
    for name, column in sent.columns.items():
        np.testing.assert_array_equal(received.columns[name], column)
    spec = Spec("int64", ())
    for actions in (
        Actions(tick=3, group=1, actions=np.array([4, 5])),
        Actions(tick=3, group=1, stop=True),
        Actions(tick=3, group=1, refused="no"),
    ):
        again = unpack_actions(pack_actions(actions), spec, 2)
        assert str(again) == str(actions)
    with pytest.raises(BadMessage, match="without actions"):
        unpack_actions(pack_actions(Actions(tick=3, group=1)), spec, 2)


@pytest.mark.parametrize("environments", [1, 4, 300])
def test_the_largest_message_has_room_for_the_largest_observations(environments: int) -> None:
    most = shown(
        environments, environments, tick=2**63, group=1, returns=[-1e300] * environments,
        lengths=[2**63] * environments,
    )  # fmt: skip
    size = len(pack_observations(most))
    assert size <= largest_observations(SHOWN, environments) <= 1.2 * size + 800
    with pytest.raises(BadMessage, match="at most"):
        parse_observations(pack_observations(most), size - 1)


class Learning:
    """A learner that acts and learns, on a thread of its own."""

    def __init__(self, generation: int = 1, socket: str = "") -> None:
        self.trainer = learner(RESOLVED)
        self.trainer.wait_s = 0.1
        self.receiver = self.trainer.receiver(generation)
        self.exchange = self.trainer.exchange
        self.server = Server(
            Roster(self.receiver, range(2)), token="right", generation=generation, environments=3,
            host="127.0.0.1", certificate=CERTIFICATE, socket=socket,
        )  # fmt: skip
        self.address = self.server.address

    def learn(self) -> list[Any]:
        return [one for one in self.trainer.train() if one is not None]

    def close(self) -> None:
        self.trainer.close()
        self.server.close()


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Learning]]:
    monkeypatch.setattr(outage, "FIRST_PAUSE_S", 0.01)
    with contextlib.ExitStack() as opened:

        def one(generation: int = 1, socket: str = "") -> Learning:
            return opened.enter_context(contextlib.closing(Learning(generation, socket)))

        yield one


class Acting:
    """An actor on a thread of its own, and how it ended."""

    def __init__(self, find: Callable[[], Address], resolved: Resolved = RESOLVED) -> None:
        self.link = Client(find, unpack=None, reconnect_timeout_s=20)  # type: ignore[arg-type]
        self.actor = make_actor(resolved, run=0, member=0, link=self.link)
        assert isinstance(self.actor, ObservingActor)
        self.ended: BaseException | None = None
        self.thread = threading.Thread(target=self._act, daemon=True)
        self.thread.start()

    def _act(self) -> None:
        try:
            for _ in self.actor.act():
                pass
        except Exception as error:
            self.ended = error

    def end(self) -> BaseException | None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.actor.close()
        self.link.close()
        return self.ended


def test_a_learner_acts_for_two_actors_until_the_training_ends(
    learning: Callable[..., Learning],
) -> None:
    one = learning()
    actors = [Acting(lambda: one.address) for _ in range(2)]
    progress = one.learn()
    assert [actor.end() for actor in actors] == [None, None]
    assert [row.step for row in progress] == [60, 120, 180, 240]
    counters, traffic = one.exchange.counters(), one.server.traffic()
    assert counters["queued"] >= 48 and not traffic.refused and traffic.messages > 80
    assert counters["refused"] == counters["duplicates"] == counters["stale"] == 0
    soon(lambda: one.server.traffic().actors == 0)


@pytest.mark.parametrize(
    ("actors", "near", "groups"), [(3 * CROWD, True, 1), (3 * CROWD - 1, True, 2), (6, False, 2)]
)
def test_a_crowd_on_the_learner_s_machine_steps_all_its_environments_at_once(
    learning: Callable[..., Learning],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    actors: int,
    near: bool,
    groups: int,
) -> None:
    monkeypatch.chdir(tmp_path)  # its own path may be longer than a socket's
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 5})
    one, made = learning(socket="learner" if near else ""), list[int]()
    settings = dataclasses.replace(RESOLVED.actors, actors=actors)
    actor = Acting(lambda: one.address, dataclasses.replace(RESOLVED, actor_settings=settings))
    for progress in one.learn():
        made.append(progress.step)
        environments = actor.actor._environments
        assert environments is not None and len(environments.groups) == groups
    assert actor.end() is None and made == [60, 120, 180, 240]


def test_an_actor_that_goes_is_not_waited_for(learning: Callable[..., Learning]) -> None:
    one = learning()
    living, dying = Acting(lambda: one.address), Acting(lambda: one.address)
    soon(lambda: one.server.traffic().actors == 2)
    dying.link.close()
    assert isinstance(dying.end(), Unreachable)
    soon(lambda: one.server.traffic().actors == 1)
    # The other one's connection is counted a moment before its stream begins.
    soon(lambda: len(one.trainer.central._batcher._rows) == 1)
    assert len(one.learn()) == 4 and living.end() is None


def test_what_was_not_answered_is_sent_again_over_another_connection(
    learning: Callable[..., Learning],
) -> None:
    one = learning()
    with Proxy(one.address.port) as proxy:
        actor = Acting(lambda: moved(one.address, port=proxy.port))
        soon(lambda: one.exchange.counters()["queued"] >= 6)  # and then it is held back
        proxy.cut()
        soon(lambda: one.trainer.central._streams[0] == 2)
        assert len(one.learn()) == 4 and actor.end() is None
    assert actor.actor._steps > 200


def test_another_learner_is_joined_anew(
    learning: Callable[..., Learning], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "LOOK_S", 0.05)  # the first one still answers
    first = learning()
    addresses = [first.address]
    actor = Acting(lambda: addresses[-1])
    soon(lambda: first.exchange.counters()["queued"] >= 6)
    second = learning(2)
    addresses.append(second.address)
    assert len(second.learn()) == 4 and actor.end() is None
    assert second.exchange.counters()["stale"] == 0


def test_a_nan_ends_the_actor_with_3_and_is_counted(learning: Callable[..., Learning]) -> None:
    one = learning()
    client = Client(lambda: one.address, unpack=None, reconnect_timeout_s=5)  # type: ignore[arg-type]
    request = Join(incarnation=5, actor=0, environments=3, identity=RESOLVED.identity_hash)
    assert client.join(request).answers
    columns = {
        name: np.zeros((2, *spec.shape), spec.dtype)
        for name, spec in one.trainer.central.shown.items()
    }
    good = Observations(tick=1, group=0, columns=columns, final=np.zeros((0, 4), np.float32))
    client.observe(good)
    assert len(client.actions().actions) == 2  # type: ignore[arg-type]
    columns = columns | {"observation": np.full((2, 4), np.nan, np.float32)}
    client.observe(Observations(tick=2, group=0, columns=columns, final=good.final))
    with pytest.raises(Refused, match="observation has numbers that are not finite") as refused:
        client.actions()
    assert refused.value.exit_code == 3
    assert one.server.traffic().refused == {"observations": 1}
    assert one.exchange.counters()["refused"] == 1
    client.close()


def test_an_answer_is_not_waited_for_when_the_link_is_closed(
    learning: Callable[..., Learning],
) -> None:
    one = learning()
    client = Client(lambda: one.address, unpack=None, reconnect_timeout_s=5)  # type: ignore[arg-type]
    client.join(Join(incarnation=5, actor=0, environments=3, identity=RESOLVED.identity_hash))
    threading.Timer(0.1, client.close).start()
    with pytest.raises((Unreachable, Rejoin)):
        client.actions()


def test_hostile_messages_end_their_own_stream_only(learning: Callable[..., Learning]) -> None:
    one = learning()
    request = Join(incarnation=9, actor=0, environments=3, identity=RESOLVED.identity_hash)
    sent = (b"\xff" * 9, b"", bytes(20_000), pack_observations(shown(2)), b"\x0a\x03abc")
    for number, message in enumerate(sent, start=1):
        connection = Connection(one.address, request, 20)
        connection.open(connection.join().joined)
        connection.send(message)
        assert connection.answer(20).refused
        assert sum(one.server.traffic().refused.values()) == number
        connection.close()
    assert {"malformed", "size", "columns"} <= one.server.traffic().refused.keys()
    actor = Acting(lambda: one.address)
    assert len(one.learn()) == 4 and actor.end() is None
