"""The group of a run's learners over real sockets, in threads and in processes that die."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.distributed.joint_learning import gathered, of_the_first
from agents.distributed.protocol import PeersLost
from agents.transport.group import Group, Meeting, Place, take_part
from config.errors import BadInput
from tests.outside import ROOT, outside
from tests.peers_in_threads import at_once

HERE, LONGEST_S = "127.0.0.1", 60.0
OTHER = """
import sys, time, torch
from agents.transport.group import Place, take_part
torch.set_num_threads(1)
host, port, secret, end = sys.argv[1:]
place = Place(host=host, port=int(port), secret=secret, generation=1)
group = take_part(place, 1, 2, host=host, longest_s=60, wait=lambda: None)
print("there", flush=True)
values = torch.ones(3)
group.sum(values)
print(values.tolist(), flush=True)
time.sleep(600)
"""


class Ended(Exception):
    pass


def never() -> None:
    """Wait as long as it takes."""


def after(seconds: float) -> Callable[[], None]:
    end = time.monotonic() + seconds

    def wait() -> None:
        if time.monotonic() > end:
            raise Ended

    return wait


def groups(meeting: Meeting, count: int) -> list[Group]:
    def further(number: int) -> Callable[[], Group | None]:
        return lambda: take_part(
            meeting.place, number, count, host=HERE, longest_s=LONGEST_S, wait=after(30)
        )

    return at_once(
        [
            lambda: meeting.gather(count, LONGEST_S, after(30)),
            *(further(number) for number in range(1, count)),
        ]
    )


def test_three_learners_add_up_and_hand_over() -> None:
    made = groups(Meeting(HERE, 1), 3)
    values = [torch.full((1000,), 10.0**one.number) for one in made]
    at_once([lambda one=one: one.sum(values[one.number]) for one in made])
    assert all(one.tolist() == [111.0] * 1000 for one in values)
    rows = at_once([lambda one=one: gathered(one, [one.number]) for one in made])
    assert all(found.tolist() == [[0], [1], [2]] for found in rows)
    states = at_once([lambda one=one: of_the_first(one, {"a": 0.1 + one.number}) for one in made])
    assert states == [{"a": 0.1}] * 3
    for one in made:
        one.close()


def listeners(port: int) -> list[str]:
    """Hexadecimal addresses that listen at this port."""
    files = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    rows = [line.split() for file in files for line in file.read_text().splitlines()[1:]]
    ports = [(row[1].partition(":"), row[3]) for row in rows]
    return [host for (host, _, at), state in ports if state == "0A" and int(at, 16) == port]


def test_the_store_listens_at_one_address_alone() -> None:
    meeting = Meeting(HERE, 1)
    assert listeners(meeting.place.port) == ["0100007F"]
    assert meeting.place.secret not in repr(meeting.place)


def test_who_waits_for_others_can_end() -> None:
    meeting = Meeting(HERE, 1)
    with pytest.raises(Ended):
        meeting.gather(2, LONGEST_S, after(0.2))
    with pytest.raises(Ended):
        take_part(meeting.place, 1, 2, host=HERE, longest_s=LONGEST_S, wait=after(0.2))


def test_a_meeting_of_somebody_else_or_of_the_past_is_none() -> None:
    meeting = Meeting(HERE, 1)
    other = dataclasses.replace(meeting.place, secret="another")
    with pytest.raises(Ended):  # nobody comes there
        take_part(other, 1, 2, host=HERE, longest_s=LONGEST_S, wait=after(0.2))
    place = meeting.place
    del meeting
    assert take_part(place, 1, 2, host=HERE, longest_s=LONGEST_S, wait=never) is None


def test_who_comes_when_the_group_is_made_is_not_in_it_and_ends_it() -> None:
    meeting = Meeting(HERE, 1)
    first, _ = groups(meeting, 2)
    late = take_part(meeting.place, 1, 2, host=HERE, longest_s=LONGEST_S, wait=never)
    assert late is None
    with pytest.raises(PeersLost, match="learner 1 was started again"):
        first.sum(torch.ones(3))  # to which the other one will bring nothing
    first.close()


def test_who_waits_for_one_that_hangs_can_leave_without_waiting() -> None:
    first, _ = groups(Meeting(HERE, 1), 2)
    first.wait = after(0.1)
    with pytest.raises(Ended):
        first.sum(torch.ones(3))
    started = time.monotonic()
    first.close()
    assert time.monotonic() - started < 5


def other_learner(place: Place) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, place.host, str(place.port), place.secret, "x"],
        cwd=ROOT, env=outside(PYTHONPATH=str(ROOT)), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def pair() -> Any:
    """This learner's group, and the process of the other."""
    meeting = Meeting(HERE, 1)
    process = other_learner(meeting.place)
    group = meeting.gather(2, LONGEST_S, after(60))
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    values = torch.tensor([1.0, 2.0, 3.0])
    group.sum(values)
    assert values.tolist() == [2, 3, 4]
    assert process.stdout.readline() == "[2.0, 3.0, 4.0]\n"
    yield group, process
    process.kill()
    process.communicate()


def test_a_killed_learner_is_noticed_at_once(pair: Any) -> None:
    group, process = pair
    os.kill(process.pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(PeersLost, match=r"the learners have lost each other: .* by peer"):
        group.sum(torch.ones(3))
    assert time.monotonic() - started < 20
    group.close()


@pytest.mark.slow
def test_a_learner_that_hangs_is_waited_for_as_long_as_is_said(pair: Any) -> None:
    group, process = pair
    os.kill(process.pid, signal.SIGSTOP)
    group._options.timeout = type(group._options.timeout)(seconds=1)
    with pytest.raises(PeersLost, match=r"the learners have lost each other: .*[Tt]imed out"):
        group.sum(torch.ones(3))
    os.kill(process.pid, signal.SIGCONT)
    group.close()


@pytest.mark.parametrize("port", [0, -1, 70_000])
def test_a_place_that_is_none(port: int) -> None:
    with pytest.raises(BadInput, match=f"port {port}"):
        Place(host=HERE, port=port, secret="s", generation=1)
