"""The replay ratio holds whoever is slow, each side waits for the other only to keep it, and what was
not taken over is nobody's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from agents.distributed.exchange import Exchange
from agents.distributed.protocol import Join, Spec, Unrolls, Version
from agents.distributed.queues import Arrived, ReplayQueue
from config.algorithms.replay_ratio import ReplayRatio
from config.errors import BadInput

RATIO = ReplayRatio(ratio=2.0, starts=20, batch=8, unroll=4, slack=32.0)
SPECS = {"row": Spec("float32", (5,))}
ACTORS = 3


def columns(count: int, value: float = 0.0) -> dict[str, np.ndarray]:
    return {"row": np.full((count, 5), value, np.float32)}


def queue_of_rows() -> ReplayQueue:
    """Every row is a step."""
    return ReplayQueue(RATIO, lambda unrolls: len(unrolls["row"]) * RATIO.unroll)


def put(queue: ReplayQueue, count: int = 1, value: float = 0.0) -> int:
    return queue.put(columns(count, value), 0, lambda: True).count


def update(queue: ReplayQueue) -> bool:
    """Whether one was due, which is then done."""
    queue.most_updates = 10**6
    taken = queue.take(0)
    if taken is None:
        return False
    queue.give_back(taken)
    return taken.may_update


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("slow", ["learner", "actors", "neither"])
def test_the_ratio_holds_whichever_side_is_ten_times_slower(slow: str) -> None:
    queue = queue_of_rows()
    exchange = Exchange[Arrived](SPECS, identity="", queue=queue)
    exchange.begin(1)
    pause_s = {"learner": (0.005, 0.0005), "actors": (0.0005, 0.005)}.get(slow, (0.0, 0.0))
    ended, seen = threading.Event(), list[float]()

    def wait_for_the_other_side() -> None:
        """The slow side gives the other one the time to go as far as it may, on a busy machine too."""
        end = time.monotonic() + 5
        while time.monotonic() < end and not ended.is_set():
            with queue._changed:
                has_started = queue._inserted >= RATIO.starts
                balance = RATIO.balance(queue.updates, queue._inserted)
            ahead = -balance if slow == "learner" else balance
            if not has_started or ahead > RATIO.slack / 2:
                return
            time.sleep(0.0005)

    def act(incarnation: int) -> None:
        exchange.join(Join(incarnation=incarnation, actor=0, environments=2, identity=""))
        number = 0
        while not ended.is_set():
            time.sleep(pause_s[1] * ACTORS)
            if slow == "actors":
                wait_for_the_other_side()
            version = Version(1, 0)
            number += 1
            sent = Unrolls(columns=columns(2), oldest=version, newest=version)
            exchange.receive(incarnation, number, sent)

    threads = [in_thread(lambda number=number: act(number)) for number in range(ACTORS)]
    queue.most_updates = 200
    while queue.updates < 200:
        taken = exchange.take(5)
        assert taken is not None
        with queue._changed:  # as it is between any two of their steps
            if queue._inserted >= RATIO.starts:
                seen.append(RATIO.balance(queue.updates, queue._inserted))
        if taken.may_update:
            time.sleep(pause_s[0])
            if slow == "learner":
                wait_for_the_other_side()
        exchange.give_back(taken)
        with queue._changed:
            if queue._inserted >= RATIO.starts:
                seen.append(RATIO.balance(queue.updates, queue._inserted))
    ended.set()
    exchange.close()
    for thread in threads:
        thread.join(5)
    assert -RATIO.slack <= min(seen) and max(seen) <= RATIO.slack
    counters = exchange.counters()
    assert queue._inserted == counters["queued"] * RATIO.unroll
    if slow == "learner":
        assert min(seen) < -RATIO.slack / 2
        assert counters["actors_waited_s"] > 5 * counters["learner_waited_s"]
    if slow == "actors":
        assert max(seen) > RATIO.slack / 2
        assert counters["learner_waited_s"] > 5 * counters["actors_waited_s"]


def test_nothing_is_learnt_before_the_start() -> None:
    queue = queue_of_rows()
    for _ in range(4):
        put(queue)
        assert not update(queue)
    put(queue)
    assert queue._inserted == RATIO.starts and update(queue)


def test_the_learner_stops_where_it_would_be_too_far_ahead() -> None:
    queue = queue_of_rows()
    put(queue, 5)
    assert [update(queue) for _ in range(6)] == [True] * 4 + [False] * 2
    assert RATIO.balance(queue.updates, queue._inserted) == RATIO.slack
    put(queue)  # 4 rows, for 8 more to learn from
    assert [update(queue) for _ in range(2)] == [True, False]


def test_actors_stop_where_they_would_be_too_far_ahead_and_go_on_after_an_update() -> None:
    queue = queue_of_rows()
    most = (RATIO.starts + int(RATIO.slack / RATIO.ratio)) // RATIO.unroll
    found = list[int]()
    thread = in_thread(lambda: found.append(put(queue, most + 2)))
    thread.join(0.2)
    assert thread.is_alive() and len(queue) == most  # the part that had a place is there already
    for _ in range(2):
        assert update(queue)
    thread.join(5)
    assert found == [most + 2]
    assert RATIO.balance(queue.updates, queue._inserted) == -RATIO.slack


def test_unrolls_keep_their_order_and_are_taken_over_once() -> None:
    queue = queue_of_rows()
    for value in range(3):
        put(queue, 2, value)
    taken = queue.take(0)
    assert taken is not None and len(queue) == 0 and queue.taken == 6 * RATIO.unroll
    assert [one["row"][:, 0].tolist() for one in taken.unrolls] == [[0, 0], [1, 1], [2, 2]]
    assert queue.take(0) is None


def test_no_update_is_done_beyond_those_of_the_epoch() -> None:
    queue = queue_of_rows()
    put(queue, 8)
    queue.most_updates = 1
    for expected in (True, None):
        taken = queue.take(0)
        assert (None if taken is None else taken.may_update) is expected
        if taken is not None:
            queue.give_back(taken)
    queue.most_updates = 2
    later = queue.take(0)
    assert later is not None and later.may_update


def test_what_waits_is_lost_with_its_learner_and_counts_no_more() -> None:
    queue = queue_of_rows()
    put(queue, 6)
    assert update(queue)
    put(queue, 2)
    later = queue_of_rows()
    later.load_state_dict(queue.state_dict())
    assert (later.taken, later.updates, len(later)) == (24, 1, 0)
    assert later._inserted == 24 and queue._inserted == 32


def test_who_waits_is_let_go_and_what_is_unwanted_stays_out() -> None:
    queue = queue_of_rows()
    placed = queue.put(columns(3), 0, lambda: False)
    assert (placed.count, placed.unwanted) == (0, 3) and len(queue) == 0
    found = list[int]()
    thread = in_thread(lambda: found.append(put(queue, 100)))
    thread.join(0.1)
    queue.close()
    thread.join(5)
    assert len(found) == 1 and 0 < found[0] < 100


def test_one_side_cannot_stop_the_other_for_ever() -> None:
    for environments in (1, 2, 3):
        RATIO.check(environments)
    with pytest.raises(
        BadInput, match=r"'max_ahead' cannot be 4; allowed: at least 5, .*envs_per_actor=4"
    ):
        RATIO.check(4)


def test_the_updates_that_steps_stand_for() -> None:
    assert [RATIO.updates_of(steps) for steps in (0, 20, 23, 24, 60)] == [0, 0, 0, 1, 10]
