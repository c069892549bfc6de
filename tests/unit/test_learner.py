"""What a learner counts on, and what the report says of its actors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from config.actors import ActorSettings
from config.errors import Preempted
from steps.directory.status import Status
from steps.page.actors import said_of_actors
from steps.page.facts import Task
from steps.training.learner import _generation, _require_data


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


def test_silence_ends_a_learner_only_after_its_time() -> None:
    roster = SimpleNamespace(silent_s=9.9, missing=lambda: [0, 3])
    _require_data(roster, 10)
    roster.silent_s = 10.1
    with pytest.raises(Preempted, match="no experience for 10 s, 2 actors are not connected"):
        _require_data(roster, 10)


def member(number: int, state: str, *, attempt: int = 1, joined: bool = True) -> Task:
    status: Any = Status(
        task=f"train-actor-{number}", state=state, started="", attempt=attempt,
        details={"joined": joined},
    )  # type: ignore[arg-type]  # fmt: skip
    return Task(name=status.task, run=0, status=status, log="", tail="")


def said(*members: Task, expected: int = 3) -> str:
    train = Task(name="train", run=0, status=None, log="", tail="", members=members)
    run = SimpleNamespace(index=0, tasks={"train": train})
    resolved = SimpleNamespace(actor_settings=ActorSettings(actors=expected))
    facts: Any = SimpleNamespace(resolved=resolved, runs=[run])
    return said_of_actors(facts)[0]


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


def test_runs_without_actors_say_nothing_of_them() -> None:
    facts: Any = SimpleNamespace(resolved=SimpleNamespace(actor_settings=None), runs=[1])
    assert said_of_actors(facts) == {}
