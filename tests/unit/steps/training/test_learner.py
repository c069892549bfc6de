"""What a learner counts on, and what the report says of its actors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agents.transport.sessions import Traffic
from config.actors import ActorSettings
from config.workers import WorkerSettings
from steps.directory.status import Status
from steps.page.facts import Task
from steps.page.training_members import said_of_members
from steps.training.learner import _generation, _pause
from steps.training.serving import Coupling


@pytest.mark.parametrize(
    ("attempt", "record", "generation"),
    [
        (1, {}, 1),
        (3, {}, 3),  # killed twice before the first checkpoint: versions never go back
        (3, {"generation": 2}, 3),
        (1, {"generation": 7}, 8),  # the status file was lost, the checkpoint was not
    ],
)
def test_the_generation_rises_at_every_start_and_is_kept(
    attempt: int, record: dict[str, Any], generation: int
) -> None:
    starting: Any = SimpleNamespace(
        context=SimpleNamespace(attempt=attempt), record=record, kept=dict[str, Any]()
    )
    assert _generation(starting) == generation
    assert starting.kept == {"generation": generation}


def test_at_a_pause_learners_part_together_and_then_send_their_actors_away() -> None:
    """One that ended before the others would look lost to them."""
    called: list[str] = []
    roster: Any = SimpleNamespace(pause=lambda: called.append("pause"))
    group: Any = SimpleNamespace(sum=lambda values: called.append("sum"))
    _pause(roster, None)
    _pause(roster, group)
    assert called == ["pause", "sum", "pause"]


def member(
    number: int, state: str, *, attempt: int = 1, joined: bool = True, role: str = "actor"
) -> Task:
    status: Any = Status(
        task=f"train-{role}-{number}", state=state, started="", attempt=attempt,
        details={"joined": joined},
    )  # type: ignore[arg-type]  # fmt: skip
    return Task(name=status.task, run=0, status=status, log="", tail="")


def said(
    *members: Task, expected: int = 3, learners: int = 1, details: dict[str, Any] | None = None
) -> str:
    status: Any = None if details is None else SimpleNamespace(details=details)
    train = Task(name="train", run=0, status=status, log="", tail="", members=members)
    run = SimpleNamespace(index=0, tasks={"train": train})
    resolved = SimpleNamespace(members=ActorSettings(actors=expected, learners=learners))
    facts: Any = SimpleNamespace(resolved=resolved, runs=[run])
    return said_of_members(facts)[0]


def test_one_sentence_says_what_became_of_the_actors() -> None:
    well = [member(number, "succeeded") for number in range(3)]
    assert said(*well) == "3 of 3 actors joined"
    assert said() == "0 of 3 actors joined"
    assert said(*well, member(3, "succeeded")) == "4 of 4 actors joined", "there were more before"
    again = member(1, "succeeded", attempt=2)
    assert said(well[0], again) == "2 of 3 actors joined; 1 was started again, once"
    thrice = member(2, "running", attempt=4)
    never = member(0, "failed", joined=False)
    assert said(never, again, thrice) == (
        "2 of 3 actors joined; 2 were started again, 4 times in all; 2 did not end well (0, 2)"
    )


def test_the_sentence_tells_further_learners_from_actors() -> None:
    actors = [member(number, "succeeded") for number in range(3)]
    again = member(1, "preempted", attempt=3, role="learner")
    assert said(*actors, again, learners=2) == (
        "3 of 3 actors joined; 1 of 1 further learner came; 1 of them was started again, 2 times in "
        "all; 1 of them did not end well (1)"
    )
    well = member(2, "succeeded", role="learner")
    assert said(actors[0], well, learners=3) == (
        "1 of 3 actors joined; 1 of 2 further learners came"
    )


def test_the_sentence_says_who_waited_for_whom() -> None:
    details = {"wall_s": 200.0, "learner_waited_s": 50.0, "actors_waited_s": 60.0}
    assert said(expected=3, details=details) == (
        "0 of 3 actors joined; the learner waited for experience 25 % of the time, "
        "an actor for the learner 10 %"
    )
    shared = said(expected=3, learners=3, details=details)
    assert shared.endswith("an actor for the learner 30 %"), "the first one has one of the three"
    assert said(details={"wall_s": 0.0, **details, "learner_waited_s": None}) == (
        "0 of 3 actors joined"
    )


def test_runs_without_actors_say_nothing_of_them() -> None:
    facts: Any = SimpleNamespace(resolved=SimpleNamespace(members=None), runs=[1])
    assert said_of_members(facts) == {}


def test_the_sentence_of_self_play_says_what_ratio_would_balance_both_sides() -> None:
    details = {
        "wall_s": 200.0, "trainer_waited_s": 50.0, "workers_waited_s": 30.0,
        "workers_played_s": 270.0, "balancing_ratio": 5.333, "refused_shards": {"cut": 2},
        "old_positions_of_workers": {"3": 120},
    }  # fmt: skip
    status: Any = SimpleNamespace(details=details)
    workers = (member(0, "succeeded", role="worker"), member(1, "failed", role="worker"))
    train = Task(name="train", run=0, status=status, log="", tail="", members=workers)
    run = SimpleNamespace(index=0, tasks={"train": train})
    resolved = SimpleNamespace(members=WorkerSettings(workers=2))
    facts: Any = SimpleNamespace(resolved=resolved, runs=[run])
    assert said_of_members(facts)[0] == (
        "2 of 2 workers joined; 1 did not end well (1); the trainer waited for games 25 % of the "
        "time, a worker for the trainer 10 %; neither would at replay_ratio=5.3; positions by "
        "networks that had been replaced: 120 of worker 3; files of games that were refused: 2 (cut)"
    )


def traffic(**changed: Any) -> Traffic:
    values: dict[str, Any] = {
        "received_bytes": 0, "sent_bytes": 0, "messages": 0, "handling_s": 0.0, "waiting_s": 0.0,
        "refused": {}, "actors": 0,
    }  # fmt: skip
    return Traffic(**(values | changed))


def test_the_coupling_is_the_difference_of_two_readings() -> None:
    counted = {
        "waiting": 0, "stale": 1, "duplicates": 0, "learner_waited_s": 10.0, "actors_waited_s": 7.0,
    }  # fmt: skip
    seen = [traffic(received_bytes=500, messages=3, handling_s=1.0)]
    learner: Any = SimpleNamespace(counters=lambda: dict(counted))
    coupling = Coupling(learner, lambda: seen[-1])
    counted |= {"waiting": 9, "stale": 5, "learner_waited_s": 11.0, "actors_waited_s": 9.0}
    seen.append(
        traffic(
            received_bytes=2500, sent_bytes=400, messages=13, handling_s=1.02, actors=2,
            refused={"token": 2, "unrolls": 1},
        )
    )  # fmt: skip
    assert coupling(4.0) == {
        "actors": 2,
        "learner_busy_percent": 75.0,
        "actors_waiting_percent": 25.0,
        "waiting_unrolls": 9,
        "message_ms": 2.0,
        "received_bytes_per_second": 500,
        "sent_bytes_per_second": 100,
        "stale_unrolls": 5,
        "duplicate_messages": 0,
        "refused_messages": 3,
    }
    seen.append(traffic(received_bytes=2500, sent_bytes=400, messages=13, handling_s=1.02))
    after = coupling(4.0)
    assert (after["learner_busy_percent"], after["actors_waiting_percent"]) == (100.0, None)
    assert (after["message_ms"], after["received_bytes_per_second"]) == (None, 0)


def test_a_learner_that_counts_nothing_leaves_its_columns_empty() -> None:
    silent: Any = SimpleNamespace()
    measured = Coupling(silent, lambda: traffic(actors=2))(1.0)
    assert measured["actors"] == 2
    assert {name for name, value in measured.items() if value is None} == {
        "learner_busy_percent", "actors_waiting_percent", "waiting_unrolls", "message_ms",
        "stale_unrolls", "duplicate_messages",
    }  # fmt: skip
