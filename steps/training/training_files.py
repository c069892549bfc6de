"""The files of a training while it runs: rows, event files, resource samples and checkpoints, and what
it prints now and then. Each role passes every epoch of its trainer to `TrainingFiles.epoch_ended`.

Checkpoints and segments of streams are packed at once and written by a thread (`Saver`), because an
fsync takes 5 to 15 ms, as long as an epoch of CartPole. The training waits for that thread at the end
of the next epoch, before it writes anything else: so at most one checkpoint interval is ever repeated,
and a full disk stops the training before its next row.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agents.interfaces import HasStreams
from steps.command.argo_progress import ArgoProgress
from steps.directory import checkpoints, snapshots
from steps.directory import status as directory_status
from steps.training.pausing import up_to
from steps.training.recorder import Recorder
from steps.training.resources import Measure, ResourceSampler, gpu_of
from steps.training.stream_writer import StreamFiles, Write

if TYPE_CHECKING:
    from agents.interfaces import Progress, Resumable
    from steps.training.training_attempt import TrainingAttempt

PRINT_EVERY_S = 10.0


class TrainingFiles:
    """Everything that one attempt writes while it trains. It is opened when the trainer is made,
    and closed by `with`. measure: the topology's additional columns of `resources.csv`.
    """

    def __init__(self, attempt: TrainingAttempt, measure: Measure = lambda seconds: {}) -> None:
        self._attempt = attempt
        self._context = attempt.context
        self._run = attempt.context.run
        self._resolved = attempt.context.resolved
        self._printed: tuple[float, int] | None = None  # when, and at which step
        self._context.check_stop()
        self._recorder = Recorder(
            self._run,
            self._resolved,
            step=attempt.step,
            saved=attempt.record.get("recorder"),
            permitted=self._context.require_ours,
        )
        self._snapshot_epochs = frozenset(self._resolved.snapshot_epochs)
        before = attempt.checkpoint.streams if attempt.checkpoint else {}
        self._saver = Saver()
        self._streams = StreamFiles(
            self._run, before, self._context.require_ours, self._saver.start,
            scheduled=self._is_scheduled(int(attempt.record.get("epoch", 0))),
        )  # fmt: skip
        self._sampler = self._make_sampler(measure)
        self._argo = ArgoProgress()
        attempt.note(began=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._saver.close()
        self._sampler.close()
        self._recorder.close()

    def begun(self, trainer: Resumable) -> None:
        """Save what the training begins with, as far as that is needed: see `save_given_weights` and
        `take_first_snapshot`.
        """
        self.save_given_weights(trainer)
        self.take_first_snapshot(trainer)

    def take_first_snapshot(self, trainer: Resumable) -> None:
        """Take the snapshot of a training that begins, before its first epoch, if one is asked for."""
        # A learner may continue from a checkpoint inside its first epoch, which is not the beginning.
        if trainer.step == 0 and 0 in self._snapshot_epochs:
            self._add_to_streams(trainer)
            self._take_snapshot(trainer)

    def save_given_weights(self, trainer: Resumable) -> None:
        """Save weights that came from another experiment before they are used: when the next
        attempt begins, that experiment may be gone or have other weights.
        """
        if self._attempt.given_weights:
            self._add_to_streams(trainer)
            self._save(trainer)
            self._saver.wait()

    def epoch_ended(self, trainer: Resumable, progress: Progress) -> None:
        """Write the results of an epoch, also to the trainer's streams, and a checkpoint if one is
        due, the training pauses or a stop was requested. Then raises `Preempted` if a stop was
        requested, unless this was the last epoch to train. Raises `WrongDirectory`, before writing, if another attempt has taken the
        directory, and what writing raises.
        """
        # Before this epoch's row is written: a full disk stops the training here.
        self._saver.wait()
        self._sampler.at(progress.step)
        self._attempt.step = progress.step
        ends = progress.epoch >= self._attempt.until
        stops = not ends and self._context.stop.seen()
        if stops:
            self._context.require_ours()
        self._recorder.add(progress)
        self._print(progress, ends)
        self._argo.at(progress.epoch, self._attempt.until)
        self._add_to_streams(trainer)
        # Before the checkpoint: a training that continues from that finds this snapshot taken.
        if progress.epoch in self._snapshot_epochs:
            self._take_snapshot(trainer)
        if stops or ends or self._is_scheduled(progress.epoch):
            self._save(trainer)
        if stops:
            self._saver.wait()
            self._context.check_stop()

    def save_now(self, trainer: Resumable) -> None:
        """Save what was learnt since the last checkpoint, also inside an epoch, and wait until it
        is written. For a trainer that cannot go on.
        """
        self._saver.wait()
        if trainer.step > self._attempt.saved_step:
            self._attempt.step = trainer.step
            self._add_to_streams(trainer)
            self._save(trainer)
            self._saver.wait()

    def check(self) -> None:
        """Raise what ended the writing of `resources.csv`, such as a full disk. Called inside an epoch,
        which may take long.
        """
        self._sampler.check()

    def check_stop(self, trainer: Resumable) -> None:
        """If a stop was requested, save what was learnt, also inside an epoch, and raise
        `Preempted`. Raises what `check` raises, too.
        """
        self.check()
        if self._context.stop.seen():
            self._context.require_ours()
            self.save_now(trainer)
            self._context.check_stop()

    def end(self) -> dict[str, Any]:
        """Wait until the last checkpoint is written. Returns the details of a training that is finished
        or paused.
        """
        self._saver.wait()
        return self._attempt.details(
            epoch=self._attempt.until,
            recent=self._recorder.recent,
            table=self._recorder.table.kept,
            wall_s=self._sampler.wall_s,
        )

    def _is_scheduled(self, epoch: int) -> bool:
        """Whether every undisturbed training has a checkpoint after this many epochs."""
        return epoch >= self._resolved.epochs or epoch % self._resolved.checkpoint_interval == 0

    def _add_to_streams(self, trainer: Resumable) -> None:
        if isinstance(trainer, HasStreams):
            self._streams.add(trainer.grown())

    def _take_snapshot(self, trainer: Resumable) -> None:
        from agents.states import policy_state

        step = trainer.step
        packed = snapshots.pack(
            step=step,
            epoch=trainer.epoch,
            state=policy_state(trainer),
            identity=self._context.record.identity,
        )

        def write() -> None:
            self._context.require_ours()
            snapshots.write(self._run, step, packed)

        self._saver.start(write)

    def _save(self, trainer: Resumable) -> None:
        step = trainer.step
        record = {
            **self._attempt.machine,
            **self._attempt.kept,
            "epoch": trainer.epoch,
            "recorder": self._recorder.state(),
            "files": {self._run.train_csv.name: self._recorder.table.kept},
            "resources_csv": self._sampler.offset,
            "wall_s": round(self._sampler.wall_s, 3),
        }
        streams_ended = self._streams.ended()
        packed = checkpoints.pack(
            step=step,
            state=trainer.state_dict(),
            identity=self._context.record.identity,
            record=record,
        )

        def write() -> None:
            self._context.require_ours()
            # First the rows that the checkpoint counts on, then the checkpoint itself.
            self._recorder.table.sync()
            checkpoints.write(self._run, step, {**packed, **streams_ended()})
            self._attempt.saved_step = step

        self._saver.start(write)

    def _make_sampler(self, measure: Measure) -> ResourceSampler:
        record = self._attempt.record
        return ResourceSampler(
            self._run.resources_csv,
            offset=record.get("resources_csv", 0),
            wall_s=record.get("wall_s", 0.0),
            step=self._attempt.step,
            gpu=gpu_of(self._attempt.machine["device"]),
            permitted=self._context.require_ours,
            measure=measure,
            events=self._recorder.events,
        )

    def _print(self, progress: Progress, ends: bool) -> None:
        now_s = time.monotonic()
        before = self._printed
        if not ends and before is not None and now_s - before[0] <= PRINT_EVERY_S:
            return
        self._printed = (now_s, progress.step)
        reached = directory_status.Progress(
            step=progress.step,
            total_steps=self._resolved.total_steps,
            epoch=progress.epoch,
            epochs=self._resolved.epochs,
            score=directory_status.Score.of(
                self._resolved.measure.in_training, self._recorder.training_score
            ),
            steps_per_second=None
            if before is None
            else (progress.step - before[1]) / (now_s - before[0]),
        )
        print(directory_status.printed(reached))


MOST_PENDING = 2
"""Number of pending writes. Each keeps what it writes in memory, so a training that produces more
in one epoch waits for the disk.
"""


class Saver:
    """Writes pieces of work in order, and nothing after a failure, because a checkpoint lists the
    segments before it.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending = deque[Future[None]]()

    def start(self, write: Write) -> None:
        """Write in the background. Waits while `MOST_PENDING` writes are pending. Raises what
        earlier writing raised.
        """
        while len(self._pending) >= MOST_PENDING:
            self._pending.popleft().result()
        before = self._pending[-1] if self._pending else None
        self._pending.append(self._threads.submit(_write_after, before, write))

    def wait(self) -> None:
        """Wait until everything is on the disk. Raises what the writing raised."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Wait without raising, for the way out after another error."""
        self._threads.shutdown(wait=True)


def _write_after(before: Future[None] | None, write: Write) -> None:
    if before is not None:
        before.result()
    write()


def train_in_one_process(attempt: TrainingAttempt) -> dict[str, Any]:
    """Train to the end, or to a pause. Raises `Preempted` after a SIGTERM, and what the trainer raises."""
    context = attempt.context
    context.check_stop()
    from agents.load import make_trainer

    compute = attempt.decided()
    trainer = make_trainer(
        attempt.resolved,
        run=context.run_index or 0,
        device=compute.device,
        precision=compute.precision,
    )
    try:
        attempt.restore(trainer, compute)
        with TrainingFiles(attempt) as files:
            files.begun(trainer)
            for progress in up_to(attempt.pause, trainer.train()):
                files.epoch_ended(trainer, progress)
            return files.end()
    finally:
        trainer.close()
