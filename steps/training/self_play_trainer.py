"""The trainer of a self-play: it learns from the games of its workers, publishes a network after every
generation, and writes the run's files as `single` does.

`resources.csv` gets columns that tell how the trainer and its workers wait for each other, and the
replay ratio at which neither would wait.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from config.errors import Preempted
from steps.directory import self_play
from steps.directory.starting_point import recorded_games
from steps.directory.tables import Cell
from steps.training.pausing import up_to
from steps.training.shards import Inbox
from steps.training.training_attempt import TrainingAttempt

if TYPE_CHECKING:
    from agents.selfplay.roles import SelfPlayTrainer
    from steps.training.training_files import TrainingFiles

TAKEN = "taken"
"""The entry of a checkpoint's record that counts the shards of each start."""
IMITATED = "imitated"
"""The entry that says whether the recorded games, if there are any, have been imitated."""


def train(attempt: TrainingAttempt) -> dict[str, Any]:
    """Train to the end, or to a pause. Raises `Preempted` after a SIGTERM and, with everything saved, if no worker
    sent anything for `no_data_timeout`. Raises what the trainer raises.
    """
    context = attempt.context
    context.check_stop()
    from agents.load import make_self_play_trainer
    from steps.training.training_files import TrainingFiles

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
        # The weights of another experiment are saved before they imitate: whoever is stopped in between
        # imitates again, from the same weights.
        is_due = attempt.checkpoint is None or attempt.record.get(IMITATED) is False
        attempt.kept[IMITATED] = not is_due
        files = opened.enter_context(TrainingFiles(attempt, Waiting(trainer.counters, inbox)))
        files.save_given_weights(trainer)
        if is_due:
            _imitate(attempt, trainer, files)
            attempt.kept[IMITATED] = True
        files.take_first_snapshot(trainer)
        _publish(attempt, trainer, inbox)
        print(f"the trainer waits for games of {attempt.resolved.workers.workers} workers")
        _train(attempt, trainer, inbox, files)
        return _said(files.end(), trainer, inbox)


def _imitate(attempt: TrainingAttempt, trainer: SelfPlayTrainer, files: TrainingFiles) -> None:
    """Let the network start by imitating recorded games, if there are any. Raises `BadInput`."""
    from agents.games.named import load_game
    from agents.selfplay.positions import read_games
    from agents.selfplay.roles import Imitates

    text = recorded_games(attempt.resolved)
    if text is None or not isinstance(trainer, Imitates):
        return
    rows = read_games(text, load_game(attempt.resolved.game.id))
    for _ in trainer.imitate(rows):
        attempt.context.check_stop()
        files.check()
    print(f"the network has learnt from {len(rows['value'])} recorded positions")


def _train(
    attempt: TrainingAttempt, trainer: SelfPlayTrainer, inbox: Inbox, files: TrainingFiles
) -> None:
    longest_s = attempt.resolved.workers.no_data_timeout
    for progress in up_to(attempt.pause, trainer.train(inbox.take)):
        attempt.kept[TAKEN] = dict(inbox.taken)
        if progress is not None:
            # A kill may undo this epoch: its network is then removed by `discard_networks_after`.
            files.epoch_ended(trainer, progress)
            inbox.saved(progress.step)
            _publish(attempt, trainer, inbox)
            continue
        attempt.context.check_stop()
        files.check()
        if inbox.silent_s > longest_s:
            raise Preempted(
                f"no games for {inbox.silent_s:.0f} s; continues from step {attempt.saved_step}"
            )


def _publish(attempt: TrainingAttempt, trainer: SelfPlayTrainer, inbox: Inbox) -> None:
    """Publish the network for the workers, and remove networks that the schedule does not keep."""
    context = attempt.context
    hyper = attempt.resolved.hyperparameters
    run = context.run
    generation = trainer.epoch
    context.require_ours()
    self_play.write_generation(run, generation, trainer.playing(), context.record.identity)
    inbox.newest = generation
    lengths = {"first": attempt.resolved.first_length, "last": attempt.resolved.epochs}
    self_play.forget_networks(run, generation, lambda one: hyper.is_kept(one, **lengths))


def _said(ended: dict[str, Any], trainer: SelfPlayTrainer, inbox: Inbox) -> dict[str, Any]:
    """Details for the status and the report: what became of the workers, and which side waited."""
    counted = trainer.counters()
    ratio = balancing_ratio(counted, ended["wall_s"])
    return {
        **ended,
        **inbox.told(),
        **{name: round(total, 3) for name, total in counted.items()},
        "balancing_ratio": None if ratio is None else round(ratio, 3),
    }


class Waiting:
    """A `steps.training.resources.Measure` of how the trainer and its workers delay each other."""

    def __init__(self, counters: Callable[[], Mapping[str, float]], inbox: Inbox) -> None:
        self._counters = counters
        self._inbox = inbox
        self._before = counters()

    def __call__(self, seconds: float) -> dict[str, Cell]:
        """The columns for this many seconds. Shares of time are in percent; refused shards are a
        total.
        """
        counted = self._counters()
        before = self._before
        self._before = counted
        of_now = defaultdict(float, {name: counted[name] - before[name] for name in counted})
        return {
            "trainer_busy_percent": round(100 * busy_share(of_now, seconds), 1),
            "workers_waiting_percent": _rounded(waiting_share(of_now), 100),
            "positions_per_second": round(of_now["positions"] / seconds, 1),
            "balancing_ratio": _rounded(balancing_ratio(of_now, seconds)),
            "refused_shards": self._inbox.refused.total() + int(counted["refused"]),
        }


def busy_share(counted: Mapping[str, float], seconds: float) -> float:
    """The share of the trainer's time in which it did not wait for games."""
    return max(0.0, 1 - counted["trainer_waited_s"] / seconds)


def waiting_share(counted: Mapping[str, float]) -> float | None:
    """The share of the workers' time in which they waited for the trainer; None if none has
    reported.
    """
    of_all_s = counted["workers_waited_s"] + counted["workers_played_s"]
    return counted["workers_waited_s"] / of_all_s if of_all_s else None


def balancing_ratio(counted: Mapping[str, float], seconds: float) -> float | None:
    """The replay ratio at which neither side would wait: how often the trainer could learn from a
    position in the time in which workers that never wait play another one, minus the time that each
    position costs it otherwise (receiving and saving). None if either is not known.
    """
    waiting = waiting_share(counted)
    positions = counted["positions"]
    learnt = counted["learnt"]
    busy_s = busy_share(counted, seconds) * seconds
    learning_s = min(counted.get("trainer_learnt_s") or busy_s, busy_s)
    if waiting is None or waiting >= 1 or not learning_s or not positions or not learnt:
        return None
    played_s = (1 - waiting) * seconds / positions
    besides_s = (busy_s - learning_s) / positions
    return max(0.0, (played_s - besides_s) / (learning_s / learnt))


def _rounded(value: float | None, times: float = 1) -> float | None:
    return None if value is None else round(times * value, 2)
