"""One attempt to train one run: what it continues from, what it computes on, and what the next
attempt must know of it.

The role that trains (one process, a learner, or the trainer of a self-play) is called with a
`TrainingAttempt`. It makes its trainer, restores it from the checkpoint, and passes the progress that
the trainer yields to `training_files.TrainingFiles`.

The guard ends attempts that never get further with exit 3. An exception at the same step twice is a
fact. A killed attempt does not say why: a node may have vanished, or memory run out. So `KILLS` of them
in a row must die at the same row of `train.csv`, or before the training has begun: an environment may
kill the process while it is made. A preemption (SIGTERM, exit 75) never counts. A newer checkpoint,
another workflow, or a repeat after exit 3, which a person asked for, starts the count anew.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import BadInput, ExperimentError, NoProgress
from config.memory import limit_bytes
from steps.command.context import Paused, StepContext
from steps.directory import checkpoints, segments, snapshots
from steps.directory.checkpoints import Checkpoint
from steps.directory.starting_point import first_checkpoint, refusal
from steps.directory.status import Status, paused_at
from steps.directory.tables import last_row
from steps.directory.usable import TRAINING_EPISODES, TRAINING_TABLE
from steps.training.pausing import asked_pause

if TYPE_CHECKING:
    from agents.interfaces import Resumable
    from config.resolved import Resolved
    from steps.directory.experiment import Compute

Details = dict[str, Any]
MACHINE = ("device", "precision", "threads", "cpu_capability", "torch", "source")
"""What a checkpoint and the status say of the machine."""


def attempt(context: StepContext, train: Callable[[TrainingAttempt], Details]) -> Details | Paused:
    """Let `train` continue from the run's newest checkpoint, or begin. Returns the details that it
    reports at its end, as `Paused` if that is not the end of the training.
    """
    # Read when torch is imported.
    os.environ["OMP_NUM_THREADS"] = str(context.resolved.experiment.threads)
    context.note(**_left_by_the_last_attempt(context))
    checkpoints.clean(context.run)
    newest = checkpoints.load_newest(
        context.run,
        context.resolved.identity(),
        continues=True,
        passed_over=functools.partial(_ends_a_shorter_training, context.resolved),
    )
    training = TrainingAttempt(context, newest)
    context.require_ours()  # reading may have taken long, and those behind may be a later attempt's
    checkpoints.discard_after(context.run, training.step)
    snapshots.discard_after(context.run, training.step)
    training.note(began=False)
    context.stop.describe = lambda: (
        f"preempted at step {training.step}, continues from {training.saved_step}"
    )
    try:
        _require_memory(context)
        # A kill may have come between the checkpoint of a pause and the status that tells of it.
        details = training.paused_before() or train(training)
    except Exception as error:
        training.failed(error)
        raise
    # A kill may have come between the last checkpoint and this.
    checkpoints.prune(context.run, training.step)
    if details["epoch"] >= context.resolved.epochs:
        return details
    return Paused(paused_at(details, context.resolved), details)


def _ends_a_shorter_training(resolved: Resolved, checkpoint: Checkpoint) -> bool:
    """Whether this checkpoint was the last of a training that goes on now, and whose last row came
    before its log interval had ended: a training of the present length has no such row.
    """
    recorder = checkpoint.record.get("recorder")
    if recorder is None or checkpoint.epoch >= resolved.epochs:
        return False
    since_row: int = recorder["interval"].get("epochs", 0)
    return since_row != checkpoint.epoch % resolved.experiment.log_interval


def _require_memory(context: StepContext) -> None:
    """Raise `BadInput` if the replay does not fit into the memory that this machine really has."""
    if context.resolved.descriptor.replay_bytes:
        from agents.environments.game_check import check_game

        check_game(context.resolved, limit_bytes())


def _left_by_the_last_attempt(context: StepContext) -> Details:
    """The guard of the last attempt. It is kept until the checkpoint is read: a kill in between
    would lose the count of all kills before.
    """
    guard = context.previous.details.get("guard") if context.previous else None
    if not isinstance(guard, dict):
        return {}
    return {"guard": {**guard, "began": False}}


class TrainingAttempt:
    """What one attempt continues from, and how far it is.

    step: reached so far. saved_step: that of the last checkpoint. pause: the epoch after which it pauses;
    None if it trains to the end. record: what the files put into the checkpoint beside the trainer's
    state; empty without one. kept: further facts for the next attempt. machine: device and precision.
    resolved: the parameters, without anything that is still to be measured. Both are set once `decided`
    was read.
    """

    def __init__(self, context: StepContext, checkpoint: Checkpoint | None) -> None:
        self.context = context
        self.checkpoint = checkpoint
        self.record: dict[str, Any] = {} if checkpoint is None else checkpoint.record
        self.saved_step = self.step = 0 if checkpoint is None else checkpoint.step
        self.kept: dict[str, Any] = {}
        self.pause = asked_pause(context)
        self.machine: dict[str, Any] = {}
        self.resolved = context.resolved
        self.guard = self._guard()

    @property
    def until(self) -> int:
        """The epoch after which it ends: that of its pause, or the last one."""
        return self.resolved.epochs if self.pause is None else self.pause

    @property
    def given_weights(self) -> bool:
        """Whether it begins with another experiment's weights."""
        return self.checkpoint is None and self.context.resolved.experiment.start_from is not None

    def note(self, *, began: bool) -> None:
        """Write to the status file what the next attempt must know if this one is killed."""
        self.guard = replace(self.guard, began=began)
        self.context.note(
            guard=asdict(self.guard),
            resumed_from=None if self.checkpoint is None else self.checkpoint.step,
        )

    def failed(self, error: Exception) -> None:
        """Remember the step of an exception. Raises `NoProgress` if the last attempt ended there,
        too.
        """
        self.guard = guard_after_failure(self.guard, self.step, error)
        with contextlib.suppress(
            OSError, ExperimentError
        ):  # a full disk, which `error` says already
            self.note(began=False)

    def decided(self) -> Compute:
        """The device and precision to use. Also sets torch's number of threads."""
        import torch

        from steps.training.choose_compute import chosen, settled

        self.context.check_stop()
        torch.set_num_threads(self.context.resolved.experiment.threads)
        compute = chosen(self.context, self.record)
        self.resolved = settled(self.context.resolved, compute)
        self.context.check_stop()
        self.machine = {
            "device": compute.device,
            "precision": compute.precision,
            "threads": torch.get_num_threads(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "torch": str(torch.__version__),
            "source": os.environ.get("EXPERIMENT_SOURCE") or None,
        }
        self._compare_machines()
        return compute

    def restore(self, trainer: Resumable, compute: Compute) -> None:
        """Restore a new trainer from the checkpoint, and print what begins."""
        start = "the start"
        if self.given_weights:
            start = f"the weights of {begun_from(self.context, trainer)}"
        elif self.checkpoint is not None:
            _show_log_of("agents")
            self._load(trainer, self.checkpoint)
            start = f"step {self.checkpoint.step}"
        epochs = self.context.resolved.epochs
        threads = self.machine["threads"]
        pause = "" if self.pause is None else f" until epoch {self.pause}"
        print(f"training {epochs} epochs from {start}{pause}: {compute}, {threads} threads")

    def paused_before(self) -> Details | None:
        """The details of a training that need not go on now, because its checkpoint is at the pause or
        beyond; None if it must, and for one that is complete.
        """
        checkpoint = self.checkpoint
        if checkpoint is None or self.pause is None:
            return None
        if not self.pause <= checkpoint.epoch < self.resolved.epochs:
            return None
        record = self.record
        self.machine = {name: record[name] for name in MACHINE if name in record}
        return self.details(
            epoch=checkpoint.epoch,
            recent=record["recorder"]["recent"],
            table=record["files"][self.context.run.train_csv.name],
            wall_s=record["wall_s"],
        )

    def details(
        self, *, epoch: int, recent: Sequence[float], table: Mapping[str, Any], wall_s: float
    ) -> Details:
        """What the status says of a training that has ended or pauses. recent: the last episodes,
        whose mean is the training score. table: the size and the checksum of `train.csv`.
        """
        return {
            self.resolved.measure.training_detail: sum(recent) / len(recent) if recent else None,
            TRAINING_EPISODES: len(recent),
            TRAINING_TABLE: table,
            "step": self.step,
            "epoch": epoch,
            "wall_s": round(wall_s, 3),
            "steps_per_second": round(self.step / wall_s, 1),
            **self.machine,
        }

    def _load(self, trainer: Resumable, checkpoint: Checkpoint) -> None:
        with checkpoints.fitting(checkpoint.path, "delete it to continue from the one before"):
            trainer.load_state_dict(checkpoint.state, between=self.context.check_stop)
        self._restore_streams(trainer, checkpoint)

    def _restore_streams(self, trainer: Resumable, checkpoint: Checkpoint) -> None:
        from agents.interfaces import HasStreams

        if isinstance(trainer, HasStreams):
            run = self.context.run
            check_stop = self.context.check_stop
            trainer.load_streams(
                {
                    name: segments.read(run, name, stream, between=check_stop)
                    for name, stream in checkpoint.streams.items()
                }
            )

    def _compare_machines(self) -> None:
        """Warn if the checkpoint comes from another kind of machine: equal bytes are promised on
        equal machines only.
        """
        for name, value in self.machine.items():
            before = self.record.get(name, value)
            if before != value:  # another image, other code, or another kind of machine
                print(
                    f"warning: {name} is {value} here, the checkpoint was made with {before}: "
                    "the files may differ from an undisturbed run"
                )

    def _guard(self) -> Guard:
        run = self.context.run
        previous = self.context.previous
        reached = int((last_row(run.train_csv) or {}).get("step") or 0)
        memory = _memory((last_row(run.resources_csv) or {}).get("memory_bytes"))
        if previous is not None and previous.state == "running":
            print(f"the last attempt was killed at about step {reached}; {memory}")
        return guard_after(
            previous,
            checkpoint=self.step,
            owner=self.context.owner_uid,
            reached=max(reached, self.step),
            memory=memory,
        )


def _memory(used_bytes: str | None) -> str:
    used = used_bytes or "an unknown number of"
    return f"it had used {used} bytes of memory, the limit is {limit_bytes()} bytes"


def _show_log_of(package: str) -> None:
    """Print what this package logs, such as how long a replay takes. Of other packages only
    warnings are printed.
    """
    logging.getLogger(package).handlers = [logging.StreamHandler(sys.stdout)]
    logging.getLogger(package).setLevel(logging.INFO)


def begun_from(context: StepContext, trainer: Resumable) -> Path:
    """Give a new trainer the weights of its run at `start_from`, and return their checkpoint.
    Raises `BadInput` if there are none, or they do not fit.
    """
    resolved = context.resolved
    run = context.run_index or 0
    checkpoint = first_checkpoint(resolved, run, os.environ.get("STORAGE") or None)
    from agents.states import begin_with_weights

    try:
        begin_with_weights(trainer, checkpoint.state)
    except BadInput as error:
        raise refusal(resolved, str(error)) from None
    return checkpoint.path


KILLS = 10
"""Five were too few: on a slow machine, five random kills in a row hit a training before its first
row.
"""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """The record of attempts that began at one checkpoint, kept in the status file.

    checkpoint: the step from which they start. owner: the workflow. began: whether the present one
    has begun to train. failed_at: the step at which one raised an exception. killed_at, kills: the
    last row of those that were killed, and how many in a row. unbegun: how many in a row were
    killed before they had begun.
    """

    checkpoint: int
    owner: str | None
    began: bool = False
    failed_at: int | None = None
    killed_at: int | None = None
    kills: int = 0
    unbegun: int = 0


def guard_after(
    previous: Status | None, *, checkpoint: int, owner: str | None, reached: int, memory: str
) -> Guard:
    """The guard of the attempt that starts now.

    reached: the step of the last row of the previous attempt. memory: a remark about its memory.
    Raises `NoProgress`.
    """
    fresh = Guard(checkpoint=checkpoint, owner=owner)
    before = _read_guard(previous)
    if (
        previous is None
        or before is None
        or before.checkpoint != checkpoint
        or before.owner != owner
        or previous.exit_code == 3
    ):
        return fresh
    if previous.state != "running":
        return replace(before, began=False)
    if not before.began:
        unbegun = before.unbegun + 1
        if unbegun >= KILLS:
            raise NoProgress(
                f"no progress: killed {unbegun} times while the training was being made, from step {checkpoint}; {memory}"
            )
        return replace(before, unbegun=unbegun)
    kills = before.kills + 1 if before.killed_at == reached else 1
    if kills >= KILLS:
        raise NoProgress(
            f"no progress: killed {kills} times at step {reached}, continuing from step {checkpoint}; {memory}"
        )
    return replace(before, began=False, killed_at=reached, kills=kills, unbegun=0)


def guard_after_failure(guard: Guard, step: int, error: Exception) -> Guard:
    """The guard after an exception at a step. Raises `NoProgress` if the last attempt ended there,
    too.
    """
    if isinstance(error, ExperimentError) and error.exit_code != 1:
        return guard
    # Twice at the same step is no accident: a third attempt would end there, too.
    if guard.failed_at == step:
        message = f"no progress: step {step} was reached twice from step {guard.checkpoint}: {type(error).__name__}: {error}"
        raise NoProgress(message) from error
    return replace(guard, failed_at=step)


def _read_guard(previous: Status | None) -> Guard | None:
    try:
        return Guard(**previous.details["guard"]) if previous is not None else None
    except (KeyError, TypeError):
        return None
