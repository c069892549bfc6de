"""Faults 7, 9 and 10: what counts as no progress, and what does not."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from config.errors import BadInput, Diverged, ExperimentError, NoProgress, NoUsableState
from config.resolve import resolve
from steps.command.context import StepContext
from steps.command.stop import StopRequest
from steps.directory import checkpoints
from steps.directory.checkpoints import Checkpoint
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Status
from steps.train import train
from steps.training.training_attempt import (
    KILLS,
    Guard,
    TrainingAttempt,
    guard_after,
    guard_after_failure,
)


def left(guard: Guard, state: Any = "running", exit_code: int | None = None) -> Status:
    return Status(
        task="train",
        state=state,
        started="",
        exit_code=exit_code,
        details={"guard": asdict(guard)},
    )


def begin(
    previous: Status | None, *, checkpoint: int = 0, reached: int = 128, owner: str | None = "uid"
) -> Guard:
    guard = guard_after(
        previous, checkpoint=checkpoint, owner=owner, reached=reached, memory="it had used 1 byte"
    )
    assert not guard.began
    return guard


def began(guard: Guard) -> Guard:
    return Guard(**(asdict(guard) | {"began": True}))


def test_an_exception_at_the_same_step_twice() -> None:
    guard = guard_after_failure(begin(None), 128, RuntimeError("x"))
    guard = guard_after_failure(begin(left(guard, "failed", 1)), 256, RuntimeError("x"))
    guard = begin(left(guard, "failed", 1))
    with pytest.raises(NoProgress, match="step 256 was reached twice from step 0: RuntimeError: x"):
        guard_after_failure(guard, 256, RuntimeError("x"))


def test_a_newer_checkpoint_is_progress() -> None:
    guard = guard_after_failure(begin(None), 128, RuntimeError("x"))
    assert begin(left(guard, "failed", 1), checkpoint=64) == Guard(checkpoint=64, owner="uid")


def test_a_kill_or_a_preemption_between_two_exceptions_does_not_hide_them() -> None:
    guard = guard_after_failure(begin(None), 128, RuntimeError("x"))
    guard = begin(left(began(begin(left(guard, "failed", 1)))))
    guard = begin(left(guard, "preempted", 75))
    with pytest.raises(NoProgress):
        guard_after_failure(guard, 128, RuntimeError("x"))


def test_errors_that_have_a_code_of_their_own_are_not_counted() -> None:
    guard = begin(None)
    assert guard_after_failure(guard, 128, Diverged("nan")) == guard
    assert guard_after_failure(guard, 128, BadInput("x")) == guard
    assert guard_after_failure(guard, 128, ExperimentError("no space")).failed_at == 128


def test_kills_at_the_same_row() -> None:
    guard = begin(None)
    for _ in range(KILLS - 1):
        guard = begin(left(began(guard)))
    with pytest.raises(
        NoProgress,
        match=rf"killed {KILLS} times at step 128, continuing from step 0; it had used 1 byte",
    ):
        begin(left(began(guard)))


def test_kills_elsewhere_during_the_start_and_preemptions_do_not_add_up() -> None:
    guard = begin(None)
    for number in range(3 * KILLS):
        guard = begin(left(began(guard)), reached=128 * (number % 2))
        guard = begin(left(guard))  # killed before it began
        guard = begin(left(began(guard), "preempted", 75))
    assert (guard.kills, guard.unbegun) == (1, 1)


def test_a7_kills_before_the_training_has_begun() -> None:
    """An environment that ends the process when it is made would otherwise use up every retry of a
    GPU pod."""
    guard = begin(None)
    for _ in range(KILLS - 1):
        guard = begin(left(guard))
        guard = begin(left(guard, "preempted", 75))
    with pytest.raises(
        NoProgress, match=rf"killed {KILLS} times while the training was being made, from step 0"
    ):
        begin(left(guard))


def test_another_workflow_and_a_repeat_after_exit_3_start_anew() -> None:
    guard = guard_after_failure(begin(None), 128, RuntimeError("x"))
    assert begin(left(guard, "failed", 1), owner="other").failed_at is None
    assert begin(left(guard, "failed", 3)).failed_at is None


def test_a7_a_kill_while_the_checkpoint_is_read_does_not_forget_the_kills_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "clean", lambda run: sys.exit("killed here"))
    monkeypatch.setattr(StepContext, "resolved", resolve("ppo", {"outdir": "/x"}))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    previous = left(Guard(checkpoint=64, owner="uid", began=True, kills=3, killed_at=128))
    noted: dict[str, Any] = {}
    context = StepContext(
        task="train", directory=ExperimentDirectory(tmp_path), run_index=0, owner_uid="uid",
        arguments=argparse.Namespace(until=""), stop=StopRequest(), previous=previous, note=noted.update,
    )  # fmt: skip
    with pytest.raises(SystemExit):
        train(context)
    guard = guard_after(
        left(Guard(**noted["guard"])), checkpoint=64, owner="uid", reached=128, memory=""
    )
    assert (guard.kills, guard.unbegun) == (3, 1)


@pytest.mark.parametrize(
    "details", [{}, {"guard": None}, {"guard": {}}, {"guard": {"surprise": 1}}]
)
def test_a_status_without_a_guard(details: dict[str, Any]) -> None:
    assert begin(Status(task="train", state="running", started="", details=details)) == Guard(
        checkpoint=0, owner="uid"
    )


@pytest.mark.parametrize(
    "error", [AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError]
)
def test_a_state_that_the_trainer_cannot_load_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Its checksums are right, so nothing but the trainer can find out."""
    monkeypatch.setattr(StepContext, "resolved", resolve("ppo", {"outdir": "/x"}))
    context = StepContext(
        task="train", directory=ExperimentDirectory(tmp_path), run_index=0, owner_uid="uid",
        arguments=argparse.Namespace(until=""), stop=StopRequest(), previous=None,
    )  # fmt: skip
    path = tmp_path / "checkpoints/000000000064"
    checkpoint = Checkpoint(path=path, step=64, state={}, record={"epoch": 1})
    attempt = TrainingAttempt(context, checkpoint)
    attempt.machine = {"threads": 1}

    class Trainer:
        def load_state_dict(self, state: object, between: object) -> None:
            raise error("weights")

    trainer: Any = Trainer()
    compute: Any = "cpu"
    with pytest.raises(NoUsableState) as caught:
        attempt.restore(trainer, compute)
    assert str(caught.value).startswith(f"{path} does not hold what this training saves")
    assert "delete it to continue from the one before" in str(caught.value)
