"""How the learners of a run come together, and part, without a game."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.distributed.protocol import PeersLost
from agents.transport.group import Group, Place, place_from_text, place_to_text
from config.errors import BadInput, Preempted
from config.resolve import resolve
from steps.command.context import StepContext
from steps.training import gathering
from steps.training import learner as learners
from steps.training.meeting import Ended, Finding
from tests.peers_in_threads import at_once
from tests.unit.steps.training.test_meeting import GIVEN_UP, OURS, context_of, train_status, trained

PLACE = Place(host="127.0.0.1", port=4711, secret="hidden", generation=3)
SETTINGS = {
    "actors": "2", "learners": "2", "no_data_timeout": "20", "reconnect_timeout": "20",
    "epochs": "5",
}  # fmt: skip


class Learner:
    """Has a group, and nothing to learn."""

    epoch = 0
    group: Group

    def learn_with(self, peers: Any) -> None:
        self.group = peers
        self.number = torch.tensor([10.0**peers.number])
        peers.sum(self.number)


def finding_of(context: StepContext) -> Finding[Place]:
    return Finding(context, context.run.learners_json, place_from_text)


def pair(tmp_path: Path, opened: contextlib.ExitStack, **more: str) -> list[Any]:
    """What gathering and joining return or raise; the learners."""
    resolved = resolve("impala", SETTINGS | more)
    contexts = [context_of(tmp_path, member=member) for member in ("", "learner-1")]
    learners: list[Any] = [Learner(), Learner()]
    ended = at_once(
        [
            lambda: gathering.gather(opened, contexts[0], resolved, learners[0], 3),
            lambda: gathering.join(opened, resolved, learners[1], finding_of(contexts[1]), 1),
        ]
    )
    return [ended, learners, contexts]


def test_two_learners_meet_at_a_place_that_only_their_owner_can_read(tmp_path: Path) -> None:
    with contextlib.ExitStack() as opened:
        ended, learners, contexts = pair(tmp_path, opened)
        generation, _ = ended[1]
        assert [ended[0], ended[1][1]] == [one.group for one in learners]
        assert generation == 3, "the generation is the first one's"
        assert [one.number.tolist() for one in learners] == [[11.0], [11.0]]
        path = contexts[0].run.learners_json
        assert path.stat().st_mode & 0o777 == 0o600
        found = finding_of(contexts[1]).find()
        assert found is not None and (found.host, found.generation) == ("127.0.0.1", 3)
    assert not path.exists()


def test_a_further_learner_lets_go_when_another_first_one_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LOOK_S", 0.0)
    with contextlib.ExitStack() as opened:
        _, learners, contexts = pair(tmp_path, opened)
        path = contexts[0].run.learners_json
        learners[1].group.wait()
        path.write_text(place_to_text(replace(PLACE, generation=4)))
        with pytest.raises(PeersLost, match="the first learner was started again"):
            learners[1].group.sum(torch.ones(1))  # to which the first one will bring nothing
        train_status(contexts[1], **GIVEN_UP, details=OURS)
        with pytest.raises(Ended):
            learners[1].group.wait()
    assert path.exists(), "it is the other one's now"


@pytest.mark.slow
def test_each_gives_its_room_back_where_the_other_does_not_come(tmp_path: Path) -> None:
    resolved = resolve("impala", SETTINGS | {"no_data_timeout": "1", "reconnect_timeout": "1"})
    first, further = (context_of(tmp_path, member=member) for member in ("", "learner-1"))
    learner: Any = Learner()
    with (
        contextlib.ExitStack() as opened,
        pytest.raises(Preempted, match="not all of the 2 learners have come for 1 s"),
    ):
        gathering.gather(opened, first, resolved, learner, 1)
    with contextlib.ExitStack() as opened:
        with pytest.raises(Preempted, match="the first learner was not to be met for 1 s"):
            gathering.join(opened, resolved, learner, finding_of(further), 1)
        first.run.learners_json.write_text(place_to_text(PLACE))  # of one that was killed
        started = time.monotonic()
        with pytest.raises(Preempted, match="the first learner was not to be met for 1 s"):
            gathering.join(opened, resolved, learner, finding_of(further), 1)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(("more", "epoch"), [({"learners": "1"}, 0), ({}, 5)])
def test_nobody_is_waited_for_where_nobody_is_needed(
    tmp_path: Path, more: dict[str, str], epoch: int
) -> None:
    learner: Any = Learner()
    learner.epoch = epoch
    context = context_of(tmp_path, member="")
    with contextlib.ExitStack() as opened:
        gathering.gather(opened, context, resolve("impala", SETTINGS | more), learner, 1)
    assert not hasattr(learner, "group") and not context.run.learners_json.exists()


def further(tmp_path: Path) -> StepContext:
    context = context_of(tmp_path, member="learner-1")
    context.arguments = argparse.Namespace(role="learner", member=1, port=0)
    return context


def test_a_further_learner_of_a_trained_run_ends_well_at_once(tmp_path: Path) -> None:
    context = further(tmp_path)
    trained(context)
    assert learners.learn(context) == {"ended": "the run is trained"}


def test_a_further_learner_outlives_the_last_update_until_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one may be killed before it has saved, and then needs this one again."""
    context = further(tmp_path)
    context.run.learners_json.write_text(place_to_text(PLACE))
    monkeypatch.setattr(learners, "_learn_beside_the_first", lambda context, finding: {"step": 64})
    with pytest.raises(Preempted, match="the first learner has not ended well for 1 s"):
        learners.learn(context)

    def saved(context: StepContext, finding: Finding[Place]) -> dict[str, int]:
        trained(context)
        return {"step": 64}

    monkeypatch.setattr(learners, "_learn_beside_the_first", saved)
    assert learners.learn(context) == {"ended": "the run is trained", "step": 64}


def test_a_lost_learner_means_75_and_a_failure_for_good_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = further(tmp_path)
    context.run.learners_json.write_text(place_to_text(PLACE))

    def lost(context: StepContext, finding: Finding[Place]) -> dict[str, int]:
        raise PeersLost("the learners have lost each other: gone")

    monkeypatch.setattr(learners, "_learn_beside_the_first", lost)
    with pytest.raises(Preempted, match="lost each other: gone; joins again when it is started"):
        learners.learn(context)
    train_status(context, **GIVEN_UP, details=OURS)
    assert "failed for good" in learners.learn(context)["ended"]


@pytest.mark.parametrize(
    "content",
    [
        "{}", "hidden", "[1]", "x" * 10**6,
        json.dumps({"host": "h", "port": 0, "secret": "hidden", "generation": 1}),
        json.dumps({"host": "h", "port": "1", "secret": "hidden", "generation": 1}),
    ],
)  # fmt: skip
def test_a_file_that_is_no_place_is_refused_without_showing_it(
    content: str, tmp_path: Path
) -> None:
    context = context_of(tmp_path)
    context.run.learners_json.write_text(content)
    with pytest.raises(BadInput) as refusal:
        finding_of(context).find()
    assert "learners.json" in str(refusal.value) and "hidden" not in str(refusal.value)
    assert place_from_text(place_to_text(PLACE)) == PLACE
