"""Each protection of the learner's side, and what would happen without it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agents.distributed.exchange import REMEMBERED, Exchange
from agents.distributed.protocol import PROTOCOL, Ack, Join, Refused, Spec, Unrolls, Version
from agents.distributed.queues import Batch, BatchQueue
from tests.waiting import soon

SPECS = {"row": Spec("float32", (3,)), "state": Spec("float32", ())}
BATCH = 4


def fresh(max_lag: int = 10) -> Exchange[Batch]:
    return Exchange(SPECS, identity="mine", queue=BatchQueue(SPECS, BATCH), max_lag=max_lag)


def exchange(max_lag: int = 10) -> Exchange[Batch]:
    made = fresh(max_lag)
    made.begin(1)
    made.publish(0, {"weight": np.zeros(2)})
    return made


def join(to: Exchange[Batch], incarnation: int = 7, **changed: Any) -> Any:
    request = Join(incarnation=incarnation, actor=0, environments=2, identity="mine")
    return to.join(replace(request, **changed))


def message(value: float = 0.0, count: int = 2, update: int = 0, **changed: Any) -> Unrolls:
    columns = {
        "row": np.full((count, 3), value, np.float32), "state": np.zeros(count, np.float32),
    }  # fmt: skip
    version = Version(1, update)
    made = Unrolls(columns=columns, oldest=version, newest=version, returns=[5.0], lengths=[9])
    return replace(made, **changed)


def taken(of: Exchange[Batch]) -> Batch:
    batch = of.take(5)
    assert batch is not None
    return batch


def learnt(of: Exchange[Batch]) -> list[float]:
    """What each unroll of the next batch holds; the batch is given back."""
    batch = taken(of)
    values = batch.columns["row"][:, 0].tolist()
    of.give_back(batch)
    return values


def apart(call: Callable[[], Ack]) -> tuple[threading.Thread, list[Ack]]:
    """In a thread of its own."""
    answers = list[Ack]()
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    return thread, answers


def test_what_is_sent_is_learnt_once_and_in_order() -> None:
    one = exchange()
    join(one)
    assert one.take(0) is None
    states = [one.receive(7, number, message(number)).state for number in (1, 2)]
    assert states == ["queued", "queued"] and one.counters()["waiting"] == 4
    assert learnt(one) == [1, 1, 2, 2]
    assert one.take(0) is None and one.counters()["queued"] == 4


def test_a_message_may_end_up_in_two_batches() -> None:
    one = exchange()
    join(one)
    for number in (1, 2):
        one.receive(7, number, message(number, count=3))
    assert learnt(one) == [1, 1, 1, 2]
    one.receive(7, 3, message(3))
    assert learnt(one) == [2, 2, 3, 3]


def test_a_batch_is_not_written_to_while_it_is_learnt_from() -> None:
    one = exchange()
    join(one)
    one.receive(7, 1, message(1, count=BATCH))
    batch = taken(one)
    one.receive(7, 2, message(2, count=BATCH))
    assert batch.columns["row"].max() == 1
    one.give_back(batch)
    one.receive(7, 3, message(3, count=BATCH))
    assert batch.columns["row"].max() == 3  # the same memory, used again


def test_a_full_queue_holds_whoever_sends_until_there_is_a_place() -> None:
    one = exchange()
    join(one)
    batches = 2
    for number in range(batches):
        one.receive(7, number, message(number, count=BATCH))
    thread, answers = apart(lambda: one.receive(7, 9, message(9)))
    thread.join(0.2)
    assert thread.is_alive() and not answers
    one.give_back(taken(one))
    thread.join(5)
    assert [answer.state for answer in answers] == ["queued"]
    assert one.counters()["actors_waited_s"] > 0.1


def test_the_same_message_is_learnt_once() -> None:
    one = exchange()
    join(one)
    states = [one.receive(7, number, message(1)).state for number in (1, 1, 2)]
    assert states == ["queued", "duplicate", "queued"]
    assert one.counters()["duplicates"] == 1
    assert len(learnt(one)) == BATCH and one.take(0) is None
    assert one.ended_episodes() == ([5.0, 5.0], [9, 9])


def test_a_message_that_is_sent_again_while_the_first_waits_is_learnt_once() -> None:
    one = exchange()
    join(one)
    for number in (1, 2):
        one.receive(7, number, message(0, count=BATCH))
    first = apart(lambda: one.receive(7, 3, message(3)))
    soon(lambda: one.state_dict()["sequences"]["7"] == 3)
    assert one.receive(7, 3, message(3)).state == "duplicate"
    one.give_back(taken(one))
    first[0].join(5)
    assert first[1][0].state == "queued"


def test_two_incarnations_count_by_themselves() -> None:
    one = exchange()
    assert (join(one, 7).number, join(one, 8).number, join(one, 7).number) == (0, 1, 0)
    assert [one.receive(n, 1, message(n)).state for n in (7, 8)] == ["queued", "queued"]
    assert one.counters()["joined"] == 2


def test_experience_that_is_too_old_is_stale_and_its_episodes_are_not_lost() -> None:
    one = exchange(max_lag=10)
    join(one)
    one.publish(11, {"weight": np.ones(2)})
    assert one.receive(7, 1, message(update=0)).state == "stale"
    assert one.receive(7, 2, message(update=1)).state == "queued"
    assert one.counters()["stale"] == 2 and one.counters()["queued"] == 2
    assert one.ended_episodes() == ([5.0, 5.0], [9, 9])
    assert one.receive(7, 1, message(update=0)).state == "duplicate"


def test_what_grows_too_old_in_the_door_is_stale() -> None:
    one = exchange(max_lag=10)
    join(one)
    for number in (1, 2):
        one.receive(7, number, message(count=BATCH))
    thread, answers = apart(lambda: one.receive(7, 3, message()))
    soon(lambda: one.state_dict()["sequences"]["7"] == 3)
    one.publish(11, {"weight": np.ones(2)})
    one.give_back(taken(one))
    thread.join(5)
    assert answers[0].state == "stale" and one.counters()["stale"] == 2


BAD: dict[str, Unrolls] = {
    "a NaN": message(float("nan")),
    "an infinity": message(float("inf")),
    "another shape": message(columns={"row": np.zeros((2, 4), "f"), "state": np.zeros(2, "f")}),
    "another type": message(columns={"row": np.zeros((2, 3)), "state": np.zeros(2, "f")}),
    "fewer rows": message(columns={"row": np.zeros((2, 3), "f"), "state": np.zeros(1, "f")}),
    "a missing column": message(columns={"row": np.zeros((2, 3), "f")}),
    "one too many": message(columns=message().columns | {"more": np.zeros(2)}),
    "no unrolls": message(count=0),
    "no arrays": message(columns={"row": 3, "state": None}),
    "weights of the future": message(update=1),
    "weights backwards": message(newest=Version(0, 0)),
    "a return that is not finite": message(returns=[float("nan")]),
    "more returns than lengths": message(returns=[1.0, 2.0]),
    "an episode without steps": message(lengths=[0]),
    "returns of another kind": message(returns=["much"]),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_learnt_from_is_refused_before_it_touches_anything(what: str) -> None:
    one = exchange()
    join(one)
    ack = one.receive(7, 1, BAD[what])
    assert ack.state == "refused" and ack.reason and "\n" not in ack.reason
    assert one.counters()["refused"] == 1 and one.counters()["queued"] == 0
    assert one.ended_episodes() == ([], [])
    assert one.receive(7, 1, message()).state == "queued"  # no sequence was used up


def test_actors_of_something_else_are_refused() -> None:
    one = exchange()
    for changed in ({"protocol": PROTOCOL + 1}, {"identity": "another"}):
        with pytest.raises(Refused) as refused:
            join(one, **changed)
        assert refused.value.exit_code == 2
    assert one.counters()["joined"] == one.counters()["actors"] == 0
    assert one.receive(7, 1, message()).state == "stale"  # it never joined


def test_weights_are_packed_once_and_only_newer_ones_are_sent() -> None:
    one = exchange()
    first, again = one.packed_weights(None), one.packed_weights(Version(0, 99))
    assert first is not None and again is not None and first[1] is again[1]
    assert one.packed_weights(first[0]) is None
    one.publish(1, {"weight": np.ones(2)})
    newer = one.packed_weights(first[0])
    assert newer is not None and newer[0] == Version(1, 1) > first[0]


def test_no_weights_are_given_before_there_are_some() -> None:
    one = fresh(max_lag=1)
    one.begin(4)
    assert one.packed_weights(None) is None


def test_the_end_is_told_to_everybody_and_nobody_waits_any_longer() -> None:
    one = exchange()
    join(one)
    for number in (1, 2):
        one.receive(7, number, message(count=BATCH))
    thread, answers = apart(lambda: one.receive(7, 3, message()))
    soon(lambda: one.state_dict()["sequences"]["7"] == 3)
    one.end()
    thread.join(5)
    assert answers[0].stop and join(one, 8).stop
    assert one.receive(7, 4, message()).stop


def test_a_learner_that_leaves_lets_go_of_those_who_wait_and_tells_none_to_stop() -> None:
    one = exchange()
    join(one)
    for number in (1, 2):
        one.receive(7, number, message(count=BATCH))
    thread, answers = apart(lambda: one.receive(7, 3, message()))
    thread.join(0.1)
    assert thread.is_alive()
    one.close()
    thread.join(5)
    assert answers[0].state == "stale" and not answers[0].stop


def test_versions_never_go_back_and_the_state_is_json() -> None:
    one = exchange()
    join(one)
    one.receive(7, 41, message())
    one.publish(30, {"weight": np.zeros(2)})
    state = json.loads(json.dumps(one.state_dict()))
    for given, expected in ((1, 2), (9, 9)):
        later = fresh()
        later.load_state_dict(state)
        later.begin(given)
        later.publish(5, {"weight": np.zeros(2)})  # the checkpoint was an old one
        packed = later.packed_weights(None)
        assert packed is not None and packed[0] == Version(expected, 5) > Version(1, 30)
        assert later.counters()["queued"] == 2 and later.ended_episodes() == ([5.0], [9])


def test_a_later_learner_knows_what_was_learnt_and_takes_nothing_of_old_weights() -> None:
    one = exchange()
    join(one)
    one.receive(7, 41, message())
    later = fresh()
    later.load_state_dict(one.state_dict())
    later.begin(2)
    later.publish(0, {"weight": np.zeros(2)})
    newest = Version(2, 0)
    assert later.receive(7, 42, message()).state == "stale"  # it has not joined this one
    assert join(later, 7).number == 1  # another number, so that it sees other episodes
    resent = message(oldest=newest, newest=newest)
    assert later.receive(7, 41, resent).state == "duplicate"
    assert later.receive(7, 42, message()).state == "stale"
    assert later.receive(7, 43, resent).state == "queued"


def test_the_memory_of_incarnations_is_bounded() -> None:
    one = exchange()
    join(one, 0)
    for incarnation in range(1, REMEMBERED + 10):
        join(one, incarnation)
        one.left(incarnation)
        if incarnation == REMEMBERED // 2:
            one.receive(0, 1, message())
    assert len(one.state_dict()["sequences"]) == REMEMBERED
    assert one.receive(0, 1, message()).state == "duplicate"  # it was heard since


def test_connections_are_counted() -> None:
    one = exchange()
    join(one, 7)
    join(one, 7)  # again, before the loss of the first connection was noticed
    join(one, 8)
    assert one.counters()["actors"] == 2
    one.left(7)
    one.left(8)
    one.left(9)
    assert one.counters()["actors"] == 1


def test_many_threads_lose_and_repeat_nothing() -> None:
    one = exchange(max_lag=10**6)
    sent, batches = 60, 4 * 60 * 2 // BATCH

    def act(incarnation: int) -> Ack:
        join(one, incarnation)
        for number in range(sent):
            ack = one.receive(incarnation, number, message(1000 * incarnation + number))
            assert ack.state == "queued"
        return ack

    threads = [apart(lambda incarnation=n: act(incarnation))[0] for n in range(4)]
    values = [value for _ in range(batches) for value in learnt(one)]
    for thread in threads:
        thread.join(5)
    expected = [1000.0 * n + number for n in range(4) for number in range(sent)] * 2
    assert sorted(values) == sorted(expected)


def test_a_further_learner_that_remembers_nothing_learns_nothing_twice() -> None:
    """What was sent to the learner before it is of an earlier generation, whoever learnt from it."""
    one = exchange()
    join(one)
    assert one.receive(7, 41, message()).state == "queued"
    later = fresh()  # it keeps no state, only the generation is handed on
    later.share(1, 2)
    later.begin(2)
    later.publish(0, {"weight": np.zeros(2)})
    assert later.receive(7, 41, message()).state == "stale"  # it has not joined this one
    join(later, 7)
    assert later.receive(7, 41, message()).state == "stale"
    newest = Version(2, 0)
    resent = message(oldest=newest, newest=newest)
    assert later.receive(7, 42, resent).state == "queued"
    assert later.receive(7, 42, resent).state == "duplicate"
    assert later.counters()["queued"] == 2


def test_actors_of_several_learners_are_numbered_in_turns() -> None:
    learners = [exchange(), exchange()]
    for number, one in enumerate(learners):
        one.share(number, 2)
    found = [join(learners[turn % 2], 20 + turn).number for turn in range(6)]
    assert found == [0, 1, 2, 3, 4, 5]
    learners[1].number_from(7)
    assert join(learners[1], 40).number == 15 and learners[1].number(20 + 1) == 1
    learners[1].number_from(2)
    assert join(learners[1], 41).number == 17, "never back"
