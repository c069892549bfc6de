"""When central inference answers."""

from __future__ import annotations

import threading

import pytest

from agents.distributed.central import SHORTEST_WAIT_S, Batcher


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made(**rows: int) -> tuple[Batcher[str], Clock]:
    clock = Clock()
    one = Batcher[str](clock)
    for stream, count in rows.items():
        one.enter(stream, count)
    return one, clock


def test_half_of_the_live_rows_are_enough() -> None:
    one, _ = made(a=8, b=8, c=8, d=8)
    for stream in "abc":
        one.add(stream, 4, stream)
        assert not one._is_due()
    one.add("a", 4, "a again")
    assert one._is_due() and one.take() == ["a", "b", "c", "a again"]
    assert not one._is_due()


def test_all_live_streams_are_enough() -> None:
    one, _ = made(a=100, b=3)
    one.add("a", 10, "a")
    assert not one._is_due()
    one.add("b", 1, "b")
    assert one._is_due()


@pytest.mark.parametrize(("took_s", "patience_s"), [(0.0, SHORTEST_WAIT_S), (0.5, 0.25)])
def test_the_oldest_waits_for_half_an_inference(took_s: float, patience_s: float) -> None:
    one, clock = made(a=8, b=8, c=8)
    one.took(took_s)
    one.add("a", 1, "a")
    clock.now_s += 0.6 * patience_s
    one.add("b", 1, "b")
    assert not one._is_due()
    clock.now_s += 0.6 * patience_s  # the oldest's time, not the newest's
    assert one._is_due() and one.take() == ["a", "b"]
    clock.now_s += 100
    one.add("a", 1, "a")
    assert not one._is_due()


@pytest.mark.parametrize("end", ["leave", "hold"])
def test_nobody_waits_for_a_stream_that_has_ended_or_is_held_back(end: str) -> None:
    one, _ = made(a=4, b=40)
    one.add("a", 2, "a")
    assert not one._is_due()
    getattr(one, end)("b")
    assert one._is_due() and one.take() == ["a"]


def test_a_stream_that_was_held_back_is_waited_for_again_once_it_is_heard() -> None:
    one, clock = made(a=4, b=40)
    one.hold("b")
    one.add("b", 1, "b")
    clock.now_s += 1
    assert one.take() == ["b"]
    one.add("a", 1, "a")
    assert not one._is_due()


def test_a_stream_that_has_ended_is_not_answered_and_does_not_come_back() -> None:
    one, _ = made(a=4, b=4)
    one.add("a", 1, "a")
    one.leave("a")
    one.add("a", 4, "late, from a thread that stood in the queue's door")
    one.hold("a")
    one.add("b", 2, "b")
    assert one.take() == ["b"]
    assert not one._rows.keys() - {"b"} and not one._held


def test_whoever_takes_is_woken_by_the_last_that_is_needed_by_time_and_by_the_end() -> None:
    one = Batcher[str]()
    one.enter("a", 2)
    one.enter("b", 2)
    taken = list[list[str]]()

    def answer() -> None:
        while batch := one.take():
            taken.append(batch)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    one.add("a", 1, "timed")
    while not taken:
        assert thread.is_alive()
    one.took(10**6)
    one.leave("b")
    one.add("a", 1, "all")
    while len(taken) < 2:
        assert thread.is_alive()
    one.close()
    thread.join(20)
    assert taken == [["timed"], ["all"]] and not thread.is_alive()
