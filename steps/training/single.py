"""The `single` topology: environments, policy and learning in one process."""

from __future__ import annotations

from typing import Any

from steps.training.attempt import TrainingAttempt


def train(attempt: TrainingAttempt) -> dict[str, Any]:
    """Train to the end. Raises `Preempted` after a SIGTERM, and what the trainer raises."""
    context = attempt.context
    context.check_stop()
    from agents.load import make_trainer
    from steps.training.training_files import TrainingFiles

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
            for progress in trainer.train():
                files.epoch_ended(trainer, progress)
            return files.end()
    finally:
        trainer.close()
