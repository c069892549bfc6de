"""The trainer of a self-play: learns from the games of its workers, publishes a network after every
generation, and keeps the run's files as `single` does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from config.errors import Preempted
from steps.directory import self_play
from steps.directory.starting_point import recorded_games
from steps.training.attempt import TrainingAttempt
from steps.training.balance import Waiting, balancing_ratio
from steps.training.shards import Inbox

if TYPE_CHECKING:
    from agents.selfplay.roles import SelfPlayTrainer
    from steps.training.files import TrainingFiles

TAKEN = "taken"
"""Of a checkpoint's record: how many shards of each start it counts."""


def train(attempt: TrainingAttempt) -> dict[str, Any]:
    """Train to the end; raises `Preempted` after a SIGTERM, or, with everything saved, where no worker
    sent anything for `no_data_timeout`, and what the trainer raises.
    """
    context = attempt.context
    context.check_stop()
    from agents.load import make_self_play_trainer
    from steps.training.files import TrainingFiles

    compute = attempt.decided()
    trainer = make_self_play_trainer(
        attempt.resolved,
        run=context.run_index or 0,
        device=compute.device,
        precision=compute.precision,
    )
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.closing(trainer))
        attempt.restore(trainer, compute)
        context.require_ours()
        self_play.discard_networks_after(context.run, trainer.epoch)
        inbox = Inbox(context, attempt.record.get(TAKEN, {}))
        attempt.kept[TAKEN] = dict(inbox.taken)
        files = opened.enter_context(TrainingFiles(attempt, Waiting(trainer.counters, inbox)))
        files.begun(trainer)
        if attempt.checkpoint is None:
            _imitate(attempt, trainer)
        _publish(attempt, trainer, inbox)
        print(f"the trainer waits for games of {attempt.resolved.workers.workers} workers")
        _train(attempt, trainer, inbox, files)
        return _said(files.end(), trainer, inbox)


def _imitate(attempt: TrainingAttempt, trainer: SelfPlayTrainer) -> None:
    """Let the network begin with recorded games, where there are some; raises `BadInput`."""
    from agents.games.named import load_game
    from agents.selfplay.positions import read_games
    from agents.selfplay.roles import Imitates

    text = recorded_games(attempt.resolved)
    if text is None or not isinstance(trainer, Imitates):
        return
    rows = read_games(text, load_game(attempt.resolved.game.id))
    for _ in trainer.imitate(rows):
        attempt.context.check_stop()
    print(f"the network has learnt from {len(rows['value'])} recorded positions")


def _train(
    attempt: TrainingAttempt, trainer: SelfPlayTrainer, inbox: Inbox, files: TrainingFiles
) -> None:
    longest_s = attempt.resolved.workers.no_data_timeout
    for progress in trainer.train(inbox.take):
        attempt.kept[TAKEN] = dict(inbox.taken)
        if progress is not None:
            files.epoch_ended(trainer, progress)
            inbox.saved(progress.step)
            _publish(attempt, trainer, inbox)
            continue
        attempt.context.check_stop()
        if inbox.silent_s > longest_s:
            raise Preempted(
                f"no games for {inbox.silent_s:.0f} s; continues from step {attempt.saved_step}"
            )


def _publish(attempt: TrainingAttempt, trainer: SelfPlayTrainer, inbox: Inbox) -> None:
    """Let the workers play by what was learnt, and forget what the schedule does not keep."""
    context, hyper = attempt.context, attempt.resolved.hyperparameters
    run, generation = context.run, trainer.epoch
    context.require_ours()
    self_play.write_generation(run, generation, trainer.playing(), context.record.identity)
    inbox.newest = generation
    self_play.forget_networks(
        run, generation, lambda one: hyper.is_kept(one, attempt.resolved.epochs)
    )


def _said(ended: dict[str, Any], trainer: SelfPlayTrainer, inbox: Inbox) -> dict[str, Any]:
    """For the status, and the report: what came of the workers, and who waited for whom."""
    counted = trainer.counters()
    ratio = balancing_ratio(counted, ended["wall_s"])
    return {
        **ended,
        **inbox.told(),
        **{name: round(total, 3) for name, total in counted.items()},
        "balancing_ratio": None if ratio is None else round(ratio, 3),
    }
