"""The `single` topology: one process trains one run, with the files that it leaves."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from config.errors import ExperimentError
from config.measures import RETURN
from steps.command.context import StepContext
from steps.directory import checkpoints
from steps.directory import progress as directory_progress
from steps.directory.checkpoints import Checkpoint
from steps.directory.tables import last_row
from steps.training import guard as progress_guard
from steps.training.guard import Guard
from steps.training.resources import ResourceSampler, memory_limit_bytes, nvidia_smi
from steps.training.saver import Saver

if TYPE_CHECKING:
    from agents.interfaces import Progress, Trainer
    from steps.training.recorder import Recorder

PRINT_EVERY_S = 10.0


class Training:
    """One attempt: the trainer and the files that it leaves."""

    def __init__(self, context: StepContext, checkpoint: Checkpoint | None) -> None:
        self._context, self._checkpoint = context, checkpoint
        self._resolved, self._run = context.resolved, context.run
        self._record: dict[str, Any] = {} if checkpoint is None else checkpoint.record
        self._saved_step = self.step = 0 if checkpoint is None else checkpoint.step
        self._printed: tuple[float, int] | None = None  # when, and at which step
        self.guard = self._guard()

    def note(self, *, began: bool) -> None:
        """Leave in the status file what the next attempt must know if this one is killed."""
        self.guard = replace(self.guard, began=began)
        self._context.note(
            guard=progress_guard.as_details(self.guard),
            resumed_from=None if self._checkpoint is None else self._checkpoint.step,
        )

    def failed(self, error: Exception) -> None:
        """Remember where an exception came; raises `NoProgress` if the last attempt ended there,
        too.
        """
        self.guard = progress_guard.failed(self.guard, self.step, error)
        with contextlib.suppress(
            OSError, ExperimentError
        ):  # a full disk, which `error` says already
            self.note(began=False)

    def run(self) -> dict[str, Any]:
        """Train to the end; raises `Preempted` after a SIGTERM, and what the trainer raises."""
        self._context.stop.describe = lambda: (
            f"preempted at step {self.step}, continues from {self._saved_step}"
        )
        trainer = self._make_trainer()
        self._context.check_stop()
        from steps.training.recorder import Recorder

        saved, permitted = self._record.get("recorder"), self._context.require_ours
        recorder = Recorder(
            self._run, self._resolved, step=self.step, saved=saved, permitted=permitted
        )
        saver, sampler = Saver(), self._make_sampler()
        self.note(began=True)
        try:
            for progress in trainer.train():
                saver.wait()
                sampler.at(progress.step)
                self._after_epoch(trainer, progress, recorder, saver, sampler)
            saver.wait()
            return self._details(recorder, sampler)
        finally:
            saver.close()
            sampler.close()
            recorder.close()
            trainer.close()

    def _after_epoch(
        self,
        trainer: Trainer,
        progress: Progress,
        recorder: Recorder,
        saver: Saver,
        sampler: ResourceSampler,
    ) -> None:
        self.step = progress.step
        last = progress.epoch >= self._resolved.epochs
        if not last:
            self._context.check_stop()
        recorder.add(progress)
        self._print(progress, recorder, last)
        if last or progress.epoch % self._resolved.checkpoint_interval == 0:
            self._save(trainer, recorder, saver, sampler)

    def _save(
        self, trainer: Trainer, recorder: Recorder, saver: Saver, sampler: ResourceSampler
    ) -> None:
        step = trainer.step
        record = {
            **self._machine,
            "epoch": trainer.epoch,
            "recorder": recorder.state(),
            "files": {self._run.train_csv.name: recorder.table.kept},
            "resources_csv": sampler.offset,
            "wall_s": round(sampler.wall_s, 3),
        }
        packed = checkpoints.pack(
            step=step,
            state=trainer.state_dict(),
            identity=self._context.record.identity,
            record=record,
        )

        def write() -> None:
            self._context.require_ours()
            recorder.table.sync()
            checkpoints.write(self._run, step, packed)
            self._saved_step = step

        saver.start(write)

    def _make_trainer(self) -> Trainer:
        self._context.check_stop()
        import torch

        from agents.load import make_trainer
        from steps.training.compute import chosen

        self._context.check_stop()
        torch.set_num_threads(self._resolved.experiment.threads)
        compute = chosen(self._context, self._record)
        self._context.check_stop()
        self._machine = {
            "device": compute.device,
            "precision": compute.precision,
            "threads": torch.get_num_threads(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "torch": str(torch.__version__),
            "source": os.environ.get("EXPERIMENT_SOURCE") or None,
        }
        self._compare_machines()
        index = self._context.run_index or 0
        trainer = make_trainer(
            self._resolved, run=index, device=compute.device, precision=compute.precision
        )
        if self._checkpoint is not None:
            _show_log_of("agents")
            trainer.load_state_dict(self._checkpoint.state, between=self._context.check_stop)
        start = "the start" if self._checkpoint is None else f"step {self._checkpoint.step}"
        print(
            f"training {self._resolved.epochs} epochs from {start}: {compute}, {torch.get_num_threads()} threads"
        )
        return trainer

    def _compare_machines(self) -> None:
        """Equal bytes are promised on equal machines only."""
        for name, value in self._machine.items():
            before = self._record.get(name, value)
            if before != value:  # another image, other code, or another kind of machine
                print(
                    f"warning: {name} is {value} here, the checkpoint was made with {before}: the files may differ from an undisturbed run"
                )

    def _make_sampler(self) -> ResourceSampler:
        import torch

        gpu = (
            nvidia_smi(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
            if self._machine["device"] == "cuda"
            else None
        )
        return ResourceSampler(
            self._run.resources_csv,
            offset=self._record.get("resources_csv", 0),
            wall_s=self._record.get("wall_s", 0.0),
            step=self.step,
            gpu=gpu,
            permitted=self._context.require_ours,
        )

    def _details(self, recorder: Recorder, sampler: ResourceSampler) -> dict[str, Any]:
        reached = recorder.training_return
        threshold = self._resolved.experiment.evaluate_above
        evaluate = threshold is None or (reached is not None and RETURN.reaches(reached, threshold))
        wall_s = sampler.wall_s
        return {
            RETURN.training_detail: reached,
            "evaluate": evaluate,
            "step": self.step,
            "epoch": self._resolved.epochs,
            "wall_s": round(wall_s, 3),
            "steps_per_second": round(self.step / wall_s, 1),
            **self._machine,
        }

    def _print(self, progress: Progress, recorder: Recorder, last: bool) -> None:
        now_s, before = time.monotonic(), self._printed
        if last or before is None or now_s - before[0] > PRINT_EVERY_S:
            self._printed = (now_s, progress.step)
            reached = directory_progress.Progress(
                step=progress.step,
                total_steps=self._resolved.total_steps,
                epoch=progress.epoch,
                epochs=self._resolved.epochs,
                return_mean=recorder.training_return,
                steps_per_second=None
                if before is None
                else (progress.step - before[1]) / (now_s - before[0]),
            )
            print(directory_progress.printed(reached))

    def _guard(self) -> Guard:
        reached = int((last_row(self._run.train_csv) or {}).get("step") or 0)
        used = (last_row(self._run.resources_csv) or {}).get(
            "memory_bytes"
        ) or "an unknown number of"
        limit = memory_limit_bytes()
        memory = f"it had used {used} bytes of memory, the limit is {'unknown' if limit is None else f'{limit} bytes'}"
        previous = self._context.previous
        if previous is not None and previous.state == "running":
            print(f"the last attempt was killed at about step {reached}; {memory}")
        return progress_guard.after(
            previous,
            checkpoint=self.step,
            owner=self._context.owner_uid,
            reached=max(reached, self.step),
            memory=memory,
        )


def _show_log_of(package: str) -> None:
    """Print what this package logs, such as how long a replay takes; other packages' warnings only,
    as ever.
    """
    logging.getLogger(package).handlers = [logging.StreamHandler(sys.stdout)]
    logging.getLogger(package).setLevel(logging.INFO)
