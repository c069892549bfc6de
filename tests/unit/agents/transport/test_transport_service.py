"""A learner's service and its actors over real connections on loopback."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from agents.distributed.protocol import (
    PROTOCOL,
    Refused,
    Rejoin,
    Spec,
    Unreachable,
    Version,
    Weights,
)
from agents.distributed.weights import Buffers
from agents.transport import client as lasting
from agents.transport import client as outage
from agents.transport import connection as connection_module
from agents.transport import messages, service, sessions
from agents.transport.address import Address, make_certificate
from agents.transport.client import Client, Outage
from agents.transport.connection import Denied, Lost
from agents.transport.service import Server
from agents.transport.tensors import CHUNK_BYTES, SMALL_BYTES
from config.errors import BadInput
from tests.plain_receiver import (
    ENVIRONMENTS,
    JOINED,
    SPECS,
    PlainReceiver,
    columns,
    join_request,
    some_unrolls,
    unpack_bytes,
)
from tests.tcp_proxy import Proxy
from tests.waiting import soon

CERTIFICATE = make_certificate()
Connect = Callable[..., Client]


def serve(receiver: PlainReceiver, **changed: object) -> Server:
    given = {
        "token": "right",
        "generation": receiver.generation,
        "environments": ENVIRONMENTS,
        "host": "127.0.0.1",
        "certificate": CERTIFICATE,
    }
    return Server(receiver, **(given | changed))


def moved(address: Address, **changed: object) -> Address:
    return Address(**(vars(address) | changed))


@pytest.fixture
def receiver() -> PlainReceiver:
    return PlainReceiver()


@pytest.fixture
def server(receiver: PlainReceiver) -> Iterator[Server]:
    with serve(receiver) as running:
        yield running


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """`connect(server.address)`, or with a function that finds the address; closed at the end."""
    monkeypatch.setattr(outage, "FIRST_PAUSE_S", 0.01)
    made: list[Client] = []

    def one(find: Address | Callable[[], Address | None], **changed: float) -> Client:
        given = {"reconnect_timeout_s": 20.0} | changed
        lookup = find if callable(find) else lambda: find
        made.append(Client(lookup, unpack=unpack_bytes, **given))
        return made[-1]

    yield one
    for client in made:
        client.close()


def test_unrolls_arrive_in_order_and_are_acknowledged(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    client = connect(server.address)
    joined = client.join(join_request())
    assert (joined.generation, joined.credits, joined.specs) == (1, 2, SPECS)
    acks = []
    for seed in range(6):
        acks += client.send(some_unrolls(seed=seed))
    soon(lambda: len(receiver.learnt) == 6)
    assert [ack.sequence for ack in acks][:4] == [1, 2, 3, 4]
    for seed, (incarnation, sequence, unrolls) in enumerate(receiver.learnt):
        assert (incarnation, sequence) == (11, seed + 1)
        for name, expected in columns(seed=seed).items():
            np.testing.assert_array_equal(unrolls.columns[name], expected)
    traffic = server.traffic()
    size = len(messages.pack_unrolls(1, some_unrolls()))
    assert (traffic.messages, traffic.received_bytes, traffic.actors) == (6, 6 * size, 1)
    assert traffic.handling_s > 0 and not traffic.refused


def test_no_more_than_the_credits_are_under_way(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    open_queue = threading.Event()
    receiver.before = lambda incarnation, sequence: open_queue.wait(20)
    client = connect(server.address)
    client.join(join_request())
    assert client.send(some_unrolls()) + client.send(some_unrolls()) == []
    sent = threading.Thread(target=lambda: acks.extend(client.send(some_unrolls())))
    acks: list[object] = []
    sent.start()
    sent.join(0.2)
    assert sent.is_alive() and not receiver.learnt
    open_queue.set()
    sent.join(20)
    assert len(acks) >= 1 and server.traffic().waiting_s > 0.1


def two_that_joined(server: Server, connect: Connect) -> tuple[Client, Client]:
    first, second = connect(server.address), connect(server.address)
    first.join(join_request(1))
    second.join(join_request(2))
    return first, second


def published(receiver: PlainReceiver, *sizes: int) -> Iterator[tuple[int, bytes]]:
    """Weights of so many bytes, one after the other: the update, and what they are."""
    for update, size in enumerate(sizes, start=1):
        content = np.random.default_rng(update).bytes(size)
        receiver.publish(update, content)
        yield update, content


def test_weights_are_sent_when_newer_and_from_the_one_buffer_that_there_is(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    client, other = two_that_joined(server, connect)
    assert client.weights(None) is None
    for update, content in published(receiver, 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5):
        for one in (client, other, other):
            got = one.weights(Version(1, update - 1))
            assert got is not None and got.version == (1, update)
            assert got.arrays["all"].tobytes() == content
        before = server.traffic().sent_bytes
        assert client.weights(got.version) is None
        assert server.traffic().sent_bytes == before


def test_newer_weights_come_with_acknowledgements_to_those_who_want_them(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    wants, asks = two_that_joined(server, connect)
    have = Version(1, 0)
    sizes = 1, SMALL_BYTES + 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5
    for update, content in published(receiver, *sizes):
        before = server.traffic().sent_bytes
        wants.send(some_unrolls(have=have))
        asks.send(some_unrolls())
        newer = arrived(wants)
        assert newer.version == (1, update) and newer.arrays["all"].tobytes() == content
        soon(lambda: len(receiver.learnt) == 2 * update)  # noqa: B023
        assert server.traffic().sent_bytes == before + len(content)
        have = newer.version
    before = server.traffic().sent_bytes
    acks = [ack for _ in range(3) for ack in wants.send(some_unrolls(have=have))]
    assert acks and wants.newer() is None and asks.newer() is None
    soon(lambda: len(receiver.learnt) == 11)
    assert server.traffic().sent_bytes == before


def arrived(client: Client) -> Weights:
    while (newer := client.newer()) is None:
        time.sleep(0.005)
    return newer


def test_of_several_weights_that_came_only_the_newest_are_taken(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    client = connect(server.address)
    client.join(join_request())
    for update in range(1, 5):
        receiver.publish(update, bytes(100))
        for _ in range(2):  # the second one before its actor has what the first one brought
            client.send(some_unrolls(have=Version(1, 0)))
        soon(lambda: len(receiver.learnt) == 2 * update)  # noqa: B023
    soon(lambda: client._learner.connected()._pushed[-1][0] == (1, 4))
    assert server.traffic().sent_bytes == 4 * 100, "each version once"
    newest = client.newer()
    assert newest is not None and newest.version == (1, 4) and client.newer() is None


def test_whatever_ends_the_reading_of_answers_is_raised_where_they_are_waited_for(
    receiver: PlainReceiver, server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(self: Buffers, size: int) -> None:
        raise MemoryError("for the weights")

    monkeypatch.setattr(Buffers, "take", too_much)
    receiver.publish(1, bytes(SMALL_BYTES + 1))
    client = connect(server.address)
    client.join(join_request())
    with pytest.raises(MemoryError, match="for the weights"):
        for _ in range(4):
            client.send(some_unrolls(have=Version(1, 0)))


def test_who_waited_for_an_acknowledgement_goes_on_with_the_weights_that_came_with_it(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    receiver.publish(1, bytes(20 * CHUNK_BYTES))
    client = connect(server.address)
    client.join(join_request())
    while not client.send(some_unrolls(have=Version(1, 0))):
        pass
    newer = client.newer()
    assert newer is not None and newer.version == (1, 1)


def test_a_lost_acknowledgement_is_asked_for_again_and_nothing_is_learnt_twice(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    with Proxy(server.address.port) as proxy:
        client = connect(moved(server.address, port=proxy.port))
        client.join(join_request())
        cuts = []

        def cut_once(incarnation: int, sequence: int) -> None:
            if sequence == 2 and not cuts:
                cuts.append(proxy.cut())

        receiver.before = cut_once
        acks = [ack for seed in range(8) for ack in client.send(some_unrolls(seed=seed))]
        soon(lambda: len(receiver.learnt) == 8)
        assert [sequence for _, sequence, _ in receiver.learnt] == list(range(1, 9))
        assert [ack.sequence for ack in acks] == list(range(1, len(acks) + 1))
        assert {ack.sequence: ack.state for ack in acks}[2] == "duplicate"
        assert len(receiver.joins) == 2 and receiver.gone.count(11) <= 1


def test_a_message_that_comes_again_waits_for_the_fate_of_the_first(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    """Two threads with one message in the receiver would both find it unknown."""
    inside: list[int] = []
    most: list[int] = []
    gate = threading.Event()

    def hold(incarnation: int, sequence: int) -> None:
        inside.append(sequence)
        most.append(len(inside))
        gate.wait(20)
        inside.pop()

    receiver.before = hold
    with Proxy(server.address.port) as proxy:
        client = connect(moved(server.address, port=proxy.port))
        client.join(join_request())
        client.send(some_unrolls())
        soon(lambda: inside)
        proxy.cut()
        sending = threading.Thread(target=lambda: [client.send(some_unrolls()) for _ in range(3)])
        sending.start()
        soon(lambda: len(receiver.joins) == 2)
        time.sleep(0.2)
        assert len(inside) == 1
        gate.set()
        sending.join(20)
        soon(lambda: len(receiver.learnt) == 4)
        assert max(most) == 1 and [s for _, s, _ in receiver.learnt] == [1, 2, 3, 4]


def test_an_actor_that_comes_back_leaves_as_often_as_it_joined(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    """Its old connection may end after its new one has begun, and does not take that along."""
    first, second = connect(server.address), connect(server.address)
    first.join(join_request())
    second.join(join_request())
    second.send(some_unrolls())
    soon(lambda: receiver.learnt and server.traffic().actors == 1)
    with pytest.raises(Lost):
        first._learner._connection.answer(None)
    soon(lambda: receiver.gone == [11])
    assert server.traffic().actors == 1
    second.send(some_unrolls())
    soon(lambda: len(receiver.learnt) == 2)
    second.close()
    soon(lambda: receiver.gone == [11, 11])
    assert server.traffic().actors == 0


def test_an_actor_that_joined_and_never_came_has_left(
    receiver: PlainReceiver, server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PENDING_S", 0.05)
    connection = connection_module.Connection(server.address, join_request(), 20)
    connection.join()
    assert server.traffic().actors == 0 and receiver.gone == []
    connection.join()
    assert receiver.gone == [11]
    time.sleep(0.06)
    assert server.traffic().actors == 0 and receiver.gone == [11, 11]
    connection.close()


def test_another_learner_at_the_same_address_is_joined_anew(
    receiver: PlainReceiver, connect: Connect
) -> None:
    addresses: list[Address] = []
    client = connect(lambda: addresses[-1])
    with serve(receiver) as old:
        addresses.append(old.address)
        client.join(join_request())
        client.send(some_unrolls())
        soon(lambda: receiver.learnt)
    successor = PlainReceiver(generation=2)
    with serve(successor, port=old.address.port) as new:
        assert new.address.port == old.address.port
        addresses.append(moved(new.address, generation=0))  # as one gives it by hand
        with pytest.raises(Rejoin):
            for _ in range(4):
                client.send(some_unrolls())
        assert client.join(join_request()).generation == 2
        client.send(some_unrolls())
        soon(lambda: successor.learnt)
        [(_, sequence, _)] = successor.learnt
        assert sequence > 1  # the counting goes on, so that a checkpoint's record stays true


def test_weights_of_another_learner_are_not_taken_without_joining_it(
    receiver: PlainReceiver, connect: Connect
) -> None:
    """Below a connection gRPC makes a new one by itself, to whoever listens there now."""
    with serve(receiver) as old:
        receiver.publish(1, b"old")
        client = connect(old.address)
        client.join(join_request())
        assert client.weights(None) is not None
    successor = PlainReceiver(generation=2)
    successor.publish(1, b"new")
    with serve(successor, port=old.address.port) as new:
        with pytest.raises(Lost, match="generation 2, not 1"):
            pull_as_if_of_generation_1(new.address)
        assert new.traffic().refused == {"generation": 1}
        with pytest.raises(Rejoin):
            client.weights(None)


def pull_as_if_of_generation_1(address: Address) -> None:
    connection = connection_module.Connection(address, join_request(12), 20)
    try:
        connection.weights(1, None, Buffers())
    finally:
        connection.close()


def test_the_highest_generation_is_followed_and_never_left_again(
    receiver: PlainReceiver, server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two learners of one run, both alive."""
    monkeypatch.setattr(lasting, "LOOK_S", 0.02)
    addresses = [server.address]
    client = connect(lambda: addresses[-1], reconnect_timeout_s=0.3)
    client.join(join_request())
    successor = PlainReceiver(generation=2)
    with serve(successor) as new:
        addresses.append(new.address)
        with pytest.raises(Rejoin):
            while True:
                client.send(some_unrolls())
        assert client.join(join_request()).generation == 2
    addresses.append(server.address)
    with pytest.raises(Unreachable, match="generation 1; 2 was here already"):
        client.weights(None)
    joins = len(receiver.joins)
    with pytest.raises(Unreachable, match="generation 1; 2 was here already"):
        client.join(join_request())
    addresses.append(moved(server.address, generation=0))
    with pytest.raises(Unreachable, match="generation 1; 2 was here already"):
        client.join(join_request())
    assert joins == 1


def test_what_one_learner_did_not_acknowledge_is_nothing_to_the_next(
    receiver: PlainReceiver, server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made with other weights, and its actor begins anew."""
    monkeypatch.setattr(lasting, "LOOK_S", 0.02)
    gate = threading.Event()
    receiver.before = lambda incarnation, sequence: gate.wait(20)
    addresses = [server.address]
    client = connect(lambda: addresses[-1])
    client.join(join_request())
    client.send(some_unrolls())
    client.send(some_unrolls())
    successor = PlainReceiver(generation=2)
    with serve(successor) as new:
        addresses.append(new.address)
        with pytest.raises(Rejoin):
            client.send(some_unrolls())
        client.join(join_request())
        for _ in range(3):
            client.send(some_unrolls())
        soon(lambda: len(successor.learnt) == 3)
        assert [sequence for _, sequence, _ in successor.learnt] == [3, 4, 5]
    gate.set()


def test_no_learner_in_time_is_unreachable(connect: Connect) -> None:
    client = connect(lambda: None, reconnect_timeout_s=0.2)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="no learner has written its address down yet"):
        client.join(join_request())
    assert 0.2 <= time.monotonic() - began < 5


def test_a_closed_client_waits_no_longer(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    gate = threading.Event()
    receiver.before = lambda incarnation, sequence: gate.wait(20)
    sending, finding = connect(server.address), connect(lambda: None)
    sending.join(join_request())
    threading.Timer(0.2, lambda: (sending.close(), finding.close())).start()
    with pytest.raises(Unreachable, match="closed"):
        for _ in range(4):
            sending.send(some_unrolls())
    with pytest.raises(Unreachable, match="closed"):
        finding.join(join_request())
    gate.set()


def test_pauses_are_drawn_from_a_bound_that_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[float] = []
    monkeypatch.setattr(outage.random, "uniform", lambda low, high: bounds.append(high) or high)
    one = Outage(timeout_s=1000)
    for _ in range(9):
        one.pause_s(Lost("x"))
    assert bounds == [0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10, 10]
    monkeypatch.undo()
    drawn = [Outage(1000).pause_s(Lost("x")) for _ in range(50)]
    assert len(set(drawn)) > 40 and 0 <= min(drawn) < 0.1 and 0.3 < max(drawn) <= 0.4


def test_a_wrong_token_is_refused_once_it_has_stayed_wrong(
    receiver: PlainReceiver, server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "DENIED_S", 0.1)
    with pytest.raises(Refused, match="no token, or a wrong one") as refused:
        connect(moved(server.address, token="wrong")).join(join_request())
    assert refused.value.exit_code == 2 and "wrong " not in str(refused.value)[:20]
    count = server.traffic().refused["token"]
    assert count >= 2 and not receiver.joins
    addresses = iter([moved(server.address, token="of the learner before")])
    late = connect(lambda: next(addresses, server.address))
    assert late.join(join_request()).generation == 1


def test_a_denial_of_another_address_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "DENIED_S", 0.0)
    one = Outage(timeout_s=1000)
    for port in range(3):
        one.pause_s(Denied("no", Address(token="a", host="h", port=port, certificate="c")))
    with pytest.raises(Refused):
        one.pause_s(Denied("no", Address(token="a", host="h", port=2, certificate="c")))


def test_a_wrong_certificate_gets_no_token(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    address = moved(server.address, certificate=make_certificate().certificate)
    client = connect(address, reconnect_timeout_s=0.3)
    with pytest.raises(Unreachable, match=r"(?i)certificate.verify.failed"):
        client.join(join_request())
    assert not receiver.joins and server.traffic().refused == {}


@pytest.mark.parametrize(
    ("changed", "reason", "exit_code", "message"),
    [
        ({"protocol": PROTOCOL + 1}, "actor", 2, "or protocol"),
        ({"identity": "another"}, "actor", 2, "of another experiment"),
        ({"environments": 0}, "environments", 2, "1 to 4 environments here, not 0"),
        ({"environments": 5}, "environments", 2, "1 to 4 environments here, not 5"),
        ({"identity": "x" * 1000}, "size", 2, "1000 characters"),
    ],
)
def test_an_actor_that_does_not_belong_here_is_refused(
    receiver: PlainReceiver,
    server: Server,
    connect: Connect,
    changed: dict[str, object],
    reason: str,
    exit_code: int,
    message: str,
) -> None:
    with pytest.raises(Refused, match=message) as refused:
        connect(server.address).join(join_request(**changed))
    assert refused.value.exit_code == exit_code
    assert server.traffic().refused == {reason: 1}
    connect(server.address).join(join_request(12))
    assert receiver.gone == [] and len(receiver.joins) == 1


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("reward", np.full((2, 3), np.nan, np.float32), "unrolls"),
        ("reward", np.zeros((2, 4), np.float32), "shape"),
        ("reward", np.zeros((2, 3), np.float64), "type"),
        ("other", np.zeros((2, 3), np.float32), "columns"),
    ],
)
def test_bad_experience_is_refused_and_the_service_goes_on(
    receiver: PlainReceiver,
    server: Server,
    connect: Connect,
    name: str,
    column: np.ndarray,
    reason: str,
) -> None:
    good, bad = connect(server.address), connect(server.address)
    good.join(join_request(1))
    bad.join(join_request(2))
    with pytest.raises(Refused) as refused:
        bad.send(some_unrolls(columns=columns() | {name: column}))
        for _ in range(2):
            bad.send(some_unrolls())
    assert refused.value.exit_code == 3 and name in str(refused.value)
    good.send(some_unrolls())
    soon(lambda: (1, 1) in [(one, sequence) for one, sequence, _ in receiver.learnt])
    assert server.traffic().refused == {reason: 1}
    assert (2, 1) not in [(one, sequence) for one, sequence, _ in receiver.learnt]


def test_a_message_that_is_too_large_is_refused(
    receiver: PlainReceiver, server: Server, connect: Connect
) -> None:
    """By its own sender; by the service, if that does not; by gRPC, before it is stored."""
    client = connect(server.address)
    client.join(join_request())
    with pytest.raises(Refused, match="bytes; at most") as refused:
        client.send(some_unrolls(count=60))
    assert refused.value.exit_code == 3
    client._learner.largest = 10**9
    client.send(some_unrolls(count=60))
    with pytest.raises(Refused, match=r"a message of .* bytes; at most"):
        client.send(some_unrolls())
        client.send(some_unrolls())
    assert server.traffic().refused == {"size": 1}
    connection = connection_module.Connection(server.address, join_request(12), 20)
    connection.join()
    connection.open(JOINED)
    connection.send(bytes(2**20 + 10_000))
    with pytest.raises(Lost, match=r"RESOURCE_EXHAUSTED.*larger than max"):
        connection.answer(None)
    connection.close()
    assert {sequence for one, sequence, _ in receiver.learnt if one == 11} <= {2, 3}


def test_more_actors_than_there_are_threads_for_are_turned_away(connect: Connect) -> None:
    receiver = PlainReceiver()
    with serve(receiver, actors=2) as server:
        first = connect(server.address)
        first.join(join_request(1))
        connect(server.address).join(join_request(2))
        third = connect(server.address, reconnect_timeout_s=0.2)
        with pytest.raises(Unreachable, match="too many actors"):
            third.join(join_request(3))
        assert server.traffic().refused["actors"] >= 1
        first.close()
        soon(lambda: server.traffic().actors == 1)
        connect(server.address).join(join_request(4))


@pytest.mark.slow
def test_strangers_take_neither_the_learner_s_files_nor_its_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STRANGERS", 8)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        # In this time nothing is closed for its silence.
        monkeypatch.setattr(service, "HANDSHAKE_S", 600.0)
        server = opened.enter_context(serve(PlainReceiver(), actors=2))
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        honest = connect(server.address)
        honest.join(join_request(1))
        strangers = [opened.enter_context(stranger_of(server)) for _ in range(100)]
        soon(lambda: sum(map(is_closed, strangers)) >= 100 - 2 - 8)
        honest.send(some_unrolls(1))


def test_a_stranger_that_says_nothing_is_closed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STRANGERS", 8)
    monkeypatch.setattr(service, "HANDSHAKE_S", 1.0)
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(serve(PlainReceiver(), actors=2))
        strangers = [opened.enter_context(stranger_of(server)) for _ in range(8)]
        soon(lambda: all(map(is_closed, strangers)))
        connect(server.address).join(join_request(2))


def stranger_of(server: Server) -> socket.socket:
    """A connection without a word."""
    connection = socket.create_connection((server.address.host, server.address.port))
    connection.setblocking(False)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it."""
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_call_without_a_deadline_is_refused(server: Server) -> None:
    connection = connection_module.Connection(server.address, join_request(), 20)
    for name in ("Weights", "Send"):
        call = connection._channel.stream_stream(f"/rl_training_dag.Learner/{name}")
        for timeout_s in (None, 100_000):
            with pytest.raises(connection_module.grpc.RpcError, match="a deadline within"):
                next(call(iter([b""]), timeout=timeout_s, metadata=connection._metadata))
    assert server.traffic().refused == {"deadline": 4}
    connection.close()


def test_a_stream_of_an_actor_that_did_not_join_is_refused(
    receiver: PlainReceiver, server: Server
) -> None:
    connection = connection_module.Connection(server.address, join_request(), 20)
    connection.open(JOINED)
    connection.send(messages.pack_unrolls(1, some_unrolls()))
    with pytest.raises(Lost, match="join first"):
        connection.answer(None)
    assert server.traffic().refused == {"not joined": 1} and not receiver.learnt
    connection.close()


def test_a_taken_port_is_refused_in_one_line(server: Server) -> None:
    with pytest.raises(BadInput, match=f"127.0.0.1:{server.address.port}") as refused:
        serve(PlainReceiver(), port=server.address.port)
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match=r"cannot listen at 203\.0\.113\.1:1"):
        serve(PlainReceiver(), host="203.0.113.1", port=1)


def test_a_local_socket_serves_without_tls_and_is_not_taken_over(
    tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # its own path may be longer than a socket's
    path = Path("learner")
    local = {"host": "", "certificate": None, "socket": str(path)}
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))  # of a learner that was killed
    receiver = PlainReceiver()
    with serve(receiver, **local) as server:
        client = connect(server.address)
        client.join(join_request())
        client.send(some_unrolls())
        soon(lambda: receiver.learnt)
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(BadInput, match="another process does"):
            serve(PlainReceiver(), **local)
        client.send(some_unrolls())
        soon(lambda: len(receiver.learnt) == 2)
    with pytest.raises(BadInput, match="at most 100 bytes"):
        serve(PlainReceiver(), **(local | {"socket": f"/{'x' * 150}"}))


def test_who_is_near_takes_the_socket_and_who_is_not_tls(
    tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve(PlainReceiver(), socket="learner") as server:
        both = server.address
        assert both.host and both.port and both.socket == "learner"
        assert connect(both).join(join_request()).near
        assert not connect(moved(both, socket="elsewhere")).join(join_request(2)).near
        Path("a file").touch()
        assert not connect(moved(both, socket="a file")).join(join_request(3)).near


def test_a_server_without_tls_is_refused() -> None:
    with pytest.raises(BadInput, match="only over TLS or a local socket"):
        serve(PlainReceiver(), certificate=None)


def test_unrolls_that_no_message_can_hold_are_refused_at_the_start() -> None:
    receiver = PlainReceiver(specs={"observation": Spec("uint8", (100, 1000, 1000))})
    with pytest.raises(BadInput, match="fewer environments an actor, or shorter unrolls"):
        serve(receiver, environments=16)
