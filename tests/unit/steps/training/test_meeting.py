"""Where a learner and its actors meet, and how an actor learns that nothing is left to do."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.transport.address import Address, address_to_text
from config.algorithms import ppo
from config.errors import BadInput, Preempted, WrongDirectory
from config.resolve import resolve
from steps.command.context import StepContext
from steps.command.stop import StopRequest
from steps.directory import checkpoints
from steps.directory.experiment import ExperimentRecord, write_experiment
from steps.directory.layout import ExperimentDirectory
from steps.training import actor
from steps.training.meeting import Ended, Search, outcome, published
from tests import synthetic

WITH_ACTORS = replace(ppo.ALGORITHM, topology="actor-learner", actor="nowhere:make_actor")
LEARNER = Address(token="secret", host="10.0.0.7", port=4711, certificate="PEM", generation=3)
OURS = {"workflow": "wf-1"}
GIVEN_UP = {"state": "failed", "exit_code": 3, "reason": "non-finite loss"}


def context_of(root: Path, *, uid: str | None = "wf-1", member: str = "actor-0") -> StepContext:
    """An actor, or with an empty member the learner, of the first run; it waits for a second."""
    resolved = resolve(f"{__name__}:WITH_ACTORS", {"outdir": str(root), "reconnect_timeout": "1"})
    directory = ExperimentDirectory(root)
    record = ExperimentRecord(
        resolved=resolved, identity=resolved.identity(), identity_hash=resolved.identity_hash,
        versions={}, source={}, image=None, started="", workflow=None,
    )  # fmt: skip
    write_experiment(directory, record)
    made = StepContext(
        task="train", directory=directory, run_index=0, owner_uid=uid,
        arguments=argparse.Namespace(learner=None, member=0), stop=StopRequest(), member=member,
        inputs={"identity": resolved.identity_hash},
    )  # fmt: skip
    made.run.status.mkdir(parents=True, exist_ok=True)
    made.fence.claim()
    vars(made)["require_ours"] = made.fence.check  # nobody has claimed the whole directory
    return made


def train_status(context: StepContext, **fields: Any) -> None:
    synthetic.status(context.run.status / "train.json", **fields)


def trained(context: StepContext, **fields: Any) -> None:
    packed = checkpoints.pack(step=128, state={}, identity={}, record={})
    checkpoints.write(context.run, 128, packed)
    context.run.train_csv.write_text("step\n128\n")
    fields = {"inputs": context.inputs, "details": {"step": 128}} | fields
    train_status(context, state="succeeded", **fields)


def test_a_learner_is_found_while_it_is_there_and_for_its_owner_alone(tmp_path: Path) -> None:
    learner, one = context_of(tmp_path, member=""), context_of(tmp_path)
    search = Search(one)
    assert search.find() is None
    with published(learner, LEARNER):
        assert learner.run.learner_json.stat().st_mode & 0o777 == 0o600
        assert search.find() == LEARNER
        with published(learner, replace(LEARNER, port=4712)):
            assert search.find() == replace(LEARNER, port=4712), "read again"
        assert search.find() is None
    assert not learner.run.learner_json.exists()


def test_the_address_of_the_next_learner_stays_when_the_one_before_ends(tmp_path: Path) -> None:
    learner, following = context_of(tmp_path, member=""), replace(LEARNER, generation=4)
    with published(learner, LEARNER):
        learner.run.learner_json.write_text(address_to_text(following))
    assert Search(context_of(tmp_path)).find() == following


def test_a_learner_that_was_replaced_does_not_take_the_place_of_its_successor(
    tmp_path: Path,
) -> None:
    old, new = context_of(tmp_path, member=""), context_of(tmp_path, member="")
    with published(new, LEARNER):
        with pytest.raises(WrongDirectory), published(old, replace(LEARNER, generation=2)):
            pass
        assert Search(context_of(tmp_path)).find() == LEARNER


def test_an_address_by_hand_replaces_host_and_port_alone(tmp_path: Path) -> None:
    with published(context_of(tmp_path, member=""), LEARNER):
        found = Search(context_of(tmp_path), "[::1]:5000").find()
    assert found == replace(LEARNER, host="::1", port=5000)


@pytest.mark.parametrize(
    "text", ["learner", ":5000", "learner:", "learner:0", "learner:x", "a:70000"]
)
def test_an_address_by_hand_that_is_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--learner cannot be .*; allowed: host:port"):
        Search(context_of(tmp_path), text)


@pytest.mark.parametrize("content", [b"{}", b"secret", b"\xff", b"[1]", b"x" * 10**6])
def test_a_file_that_is_no_address_is_refused_without_showing_it(
    content: bytes, tmp_path: Path
) -> None:
    context = context_of(tmp_path)
    context.run.learner_json.write_bytes(content)
    with pytest.raises(BadInput) as refusal:
        Search(context).find()
    assert "learner.json" in str(refusal.value) and "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "ended"),
    [
        ({}, "the run is trained"),
        ({"inputs": {"identity": "another"}}, ""),
        ({"details": {"step": 256}}, ""),
    ],
)
def test_the_end_of_a_training_needs_its_checkpoint(
    fields: dict[str, Any], ended: str, tmp_path: Path
) -> None:
    context = context_of(tmp_path)
    trained(context, **fields)
    assert outcome(context) == ended


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        (GIVEN_UP | {"details": OURS}, True),
        (GIVEN_UP | {"details": OURS, "exit_code": 4}, True),
        (GIVEN_UP | {"details": OURS, "exit_code": 1}, False),
        (GIVEN_UP | {"details": OURS, "state": "preempted", "exit_code": 75}, False),
        (GIVEN_UP | {"details": {"workflow": "wf-0"}}, False),
        (GIVEN_UP, False),
        ({"state": "running", "details": OURS}, False),
    ],
)
def test_only_a_failure_for_good_of_this_workflow_ends_its_actors(
    fields: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    context = context_of(tmp_path)
    train_status(context, **fields)
    search = Search(context)
    if ends:
        with pytest.raises(Ended, match="the training has failed for good: non-finite loss"):
            search.find()
    else:
        assert search.find() is None


def test_by_hand_only_a_failure_since_the_actor_started_ends_it(tmp_path: Path) -> None:
    context = context_of(tmp_path, uid=None)
    train_status(context, **GIVEN_UP)
    search = Search(context)
    assert search.find() is None, "the learner of this start has not come yet"
    train_status(context, **GIVEN_UP, attempt=2)
    with pytest.raises(Ended):
        search.find()


def test_an_actor_without_a_learner_gives_its_room_back_after_a_while(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(Preempted, match=r"no learner for 1 s: there is no .*learner.json"):
        actor.act(context_of(tmp_path))
    assert time.monotonic() - started >= 1


def test_an_actor_of_a_trained_run_ends_well_at_once(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    trained(context)
    assert actor.act(context) == {"ended": "the run is trained"}


def later(call: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(0.2, call)
    timer.start()
    return timer


def test_an_actor_that_waits_ends_with_the_training_and_with_a_stop(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    timer = later(lambda: train_status(context, **GIVEN_UP, details=OURS))
    assert "failed for good" in actor.act(context)["ended"]
    timer.join()
    train_status(context, state="running")
    timer = later(lambda: setattr(context.stop, "requested_at", time.monotonic()))
    with pytest.raises(Preempted, match="preempted, joins again"):
        actor.act(context)
    timer.join()
