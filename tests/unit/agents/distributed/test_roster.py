"""Who is there, and who is missing: a learner's roster in front of what receives experience."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest

from agents.distributed.observations import Actions, Observations
from agents.distributed.protocol import Ack, Join, Joined, Refused, Spec, Specs, Unrolls, Version
from steps.training.serving import Roster
from tests.waiting import soon

UNROLLS = Unrolls(
    columns={"reward": np.zeros((1, 3), np.float32)}, oldest=Version(1, 0), newest=Version(1, 2)
)


class Receiver:
    """Takes everything but actor 7."""

    specs: ClassVar[Specs] = {"reward": Spec("float32", (3,))}

    def __init__(self) -> None:
        self.gone = list[int]()

    def join(self, request: Join) -> Joined:
        if request.actor == 7:
            raise Refused("another experiment", 2)
        return Joined(generation=1, number=request.actor, credits=2, specs=self.specs)

    def packed_weights(self, have: Version | None) -> tuple[Version, memoryview] | None:
        return None if have else (Version(1, 2), memoryview(b"weights"))

    def receive(self, incarnation: int, sequence: int, unrolls: Unrolls) -> Ack:
        return Ack(sequence=sequence, state="queued", newest=unrolls.newest)

    def left(self, incarnation: int) -> None:
        self.gone.append(incarnation)


def join(actor: int, incarnation: int) -> Join:
    return Join(incarnation=incarnation, actor=actor, environments=1, identity="x")


def test_what_passes_through_is_what_the_receiver_says() -> None:
    receiver = Receiver()
    roster = Roster(receiver, range(2))
    assert roster.specs is receiver.specs
    assert roster.join(join(1, 11)) == receiver.join(join(1, 11))
    assert roster.packed_weights(None) == (Version(1, 2), memoryview(b"weights"))
    assert roster.packed_weights(Version(1, 2)) is None
    assert roster.receive(11, 5, UNROLLS) == receiver.receive(11, 5, UNROLLS)
    roster.left(11)
    assert receiver.gone == [11]


def test_an_actor_is_there_from_joining_to_leaving_and_a_new_process_is_another() -> None:
    roster = Roster(Receiver(), range(3))
    assert roster.missing() == [0, 1, 2] and roster.joined == 0
    roster.join(join(1, 11))
    roster.join(join(2, 22))
    assert roster.missing() == [0] and roster.joined == 2
    roster.left(11)
    assert roster.missing() == [0, 1]
    roster.join(join(1, 12))  # started again
    roster.left(22)
    roster.join(join(2, 22))  # only its connection was lost
    assert roster.missing() == [0] and roster.joined == 3
    with pytest.raises(Refused):
        roster.join(join(7, 77))
    assert roster.joined == 3


def test_a_new_process_that_comes_before_the_old_one_is_known_to_be_gone_stays() -> None:
    roster = Roster(Receiver(), range(1))
    roster.join(join(0, 1))
    roster.join(join(0, 2))
    roster.left(1)
    assert roster.missing() == []


def test_an_actor_that_comes_back_before_its_loss_is_noticed_stays() -> None:
    roster = Roster(Receiver(), range(1))
    roster.join(join(0, 1))
    roster.join(join(0, 1))
    roster.left(1)
    assert roster.missing() == [] and roster.joined == 1
    roster.left(1)
    assert roster.missing() == [0]


def test_only_experience_breaks_the_silence() -> None:
    roster = Roster(Receiver(), range(1))
    time.sleep(0.05)
    roster.join(join(0, 1))
    silent_s = roster.silent_s
    assert silent_s >= 0.05
    roster.receive(1, 1, UNROLLS)
    assert roster.silent_s < silent_s


def test_who_is_missing_for_a_while_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = list[str]()

    def lines() -> list[str]:
        said.extend(capsys.readouterr().out.splitlines())
        return said

    with Roster(Receiver(), range(2), say_after_s=0.05) as roster:
        soon(lambda: bool(lines()))
        roster.join(join(0, 1))
        soon(lambda: len(lines()) == 2)
        roster.join(join(1, 2))
        soon(lambda: len(lines()) == 3)
        time.sleep(0.3)
    assert lines() == [
        "0 of 2 actors are connected; missing: 0, 1",
        "1 of 2 actors are connected; missing: 1",
        "2 of 2 actors are connected",
    ]


def test_who_comes_back_soon_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Roster(Receiver(), range(1), say_after_s=30) as roster:
        roster.join(join(0, 1))
        roster.left(1)
        roster.join(join(0, 2))
    assert capsys.readouterr().out == ""


def test_of_many_the_first_twenty_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = list[str]()
    with Roster(Receiver(), range(512), say_after_s=0.01):
        soon(lambda: bool(said.extend(capsys.readouterr().out.splitlines()) or said))
    first = ", ".join(map(str, range(20)))
    assert said == [f"0 of 512 actors are connected; missing: {first} and 492 more"]


class Answering(Receiver):
    """One that acts."""

    shown: ClassVar[Specs] = {"observation": Spec("float32", (3,))}

    def __init__(self) -> None:
        super().__init__()
        self.seen = list[object]()

    def open(self, incarnation: int, answer: Callable[[Actions], object]) -> int:
        self.answer = answer
        return incarnation

    def observe(self, stream: int, observations: object) -> None:
        self.seen.append((stream, observations))

    def leave(self, stream: int) -> None:
        self.gone.append(stream)


def test_a_learner_that_acts_hears_of_its_actors_by_what_they_show() -> None:
    receiver = Answering()
    roster = Roster(receiver, range(1))
    assert roster.shown is receiver.shown and Roster(Receiver(), range(1)).shown == {}
    stream = roster.open(11, print)
    roster._heard_at -= 100
    shown = Observations(tick=1, group=0, columns={}, final=np.zeros(0))
    roster.observe(stream, shown)
    assert roster.silent_s < 50 and receiver.seen == [(11, shown)]
    roster.leave(stream)
    assert receiver.gone == [11]


def test_after_a_pause_every_answer_says_that_nothing_is_left_to_do() -> None:
    receiver = Answering()
    roster = Roster(receiver, range(2))
    heard = list[Actions]()
    roster.open(11, heard.append)
    acted = Actions(tick=1, group=0, actions=np.zeros(1))
    receiver.answer(acted)
    answers = [roster.join(join(1, 11)), roster.receive(11, 5, UNROLLS), *heard]
    assert [one.stop for one in answers] == [False] * 3 and heard == [acted]
    roster.pause()
    receiver.answer(acted)
    answers = [roster.join(join(1, 11)), roster.receive(11, 5, UNROLLS), heard[1]]
    assert [one.stop for one in answers] == [True] * 3
    assert heard[1].actions is None and heard[1].tick == 1
