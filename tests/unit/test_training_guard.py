"""Faults 7, 9 and 10: what counts as no progress, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import BadInput, Diverged, ExperimentError, NoProgress
from steps.directory.status import Status
from steps.training.guard import KILLS, Guard, after, as_details, failed


def left(guard: Guard, state: Any = "running", exit_code: int | None = None) -> Status:
    return Status(task="train", state=state, started="", exit_code=exit_code, details={"guard": as_details(guard)})


def begin(previous: Status | None, *, checkpoint: int = 0, reached: int = 128, owner: str | None = "uid") -> Guard:
    guard = after(previous, checkpoint=checkpoint, owner=owner, reached=reached, memory="it had used 1 byte")
    assert not guard.began
    return guard


def began(guard: Guard) -> Guard:
    return Guard(**(as_details(guard) | {"began": True}))


def test_an_exception_at_the_same_step_twice() -> None:
    guard = failed(begin(None), 128, RuntimeError("x"))
    guard = failed(begin(left(guard, "failed", 1)), 256, RuntimeError("x"))
    guard = begin(left(guard, "failed", 1))
    with pytest.raises(NoProgress, match="step 256 was reached twice from step 0: RuntimeError: x"):
        failed(guard, 256, RuntimeError("x"))


def test_a_newer_checkpoint_is_progress() -> None:
    guard = failed(begin(None), 128, RuntimeError("x"))
    assert begin(left(guard, "failed", 1), checkpoint=64) == Guard(checkpoint=64, owner="uid")


def test_a_kill_or_a_preemption_between_two_exceptions_does_not_hide_them() -> None:
    guard = failed(begin(None), 128, RuntimeError("x"))
    guard = begin(left(began(begin(left(guard, "failed", 1)))))
    guard = begin(left(guard, "preempted", 75))
    with pytest.raises(NoProgress):
        failed(guard, 128, RuntimeError("x"))


def test_errors_that_have_a_code_of_their_own_are_not_counted() -> None:
    guard = begin(None)
    assert failed(guard, 128, Diverged("nan")) == guard
    assert failed(guard, 128, BadInput("x")) == guard
    assert failed(guard, 128, ExperimentError("no space")).failed_at == 128


def test_kills_at_the_same_row() -> None:
    guard = begin(None)
    for _ in range(KILLS - 1):
        guard = begin(left(began(guard)))
    with pytest.raises(NoProgress, match=rf"killed {KILLS} times at step 128, continuing from step 0; it had used 1 byte"):
        begin(left(began(guard)))


def test_kills_elsewhere_during_the_start_and_preemptions_do_not_add_up() -> None:
    guard = begin(None)
    for number in range(3 * KILLS):
        guard = begin(left(began(guard)), reached=128 * (number % 2))
        guard = begin(left(guard))  # killed before it began
        guard = begin(left(began(guard), "preempted", 75))
    assert guard.kills == 1


def test_another_workflow_and_a_repeat_after_exit_3_start_anew() -> None:
    guard = failed(begin(None), 128, RuntimeError("x"))
    assert begin(left(guard, "failed", 1), owner="other").failed_at is None
    assert begin(left(guard, "failed", 3)).failed_at is None


@pytest.mark.parametrize("details", [{}, {"guard": None}, {"guard": {}}, {"guard": {"surprise": 1}}])
def test_a_status_without_a_guard(details: dict[str, Any]) -> None:
    assert begin(Status(task="train", state="running", started="", details=details)) == Guard(checkpoint=0, owner="uid")
