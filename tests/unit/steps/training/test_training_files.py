"""train.csv, TensorBoard and resources.csv from the progress of a training."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from agents.interfaces import Progress
from config.errors import ExperimentError
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.tables import read_rows
from steps.evaluations.event_file import write_animation, write_curve
from steps.tracking.event_files import EventFile
from steps.training import self_play_trainer
from steps.training.recorder import Interval, Recorder
from steps.training.resources import ResourceSampler
from steps.training.training_files import Saver, TrainingFiles
from tests.waiting import soon


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return ExperimentDirectory(tmp_path).run(0)


@pytest.fixture
def resolved() -> Resolved:
    return resolve("ppo", {"epochs": "8", "log_interval": "3", "outdir": "/x"})


def progress(epoch: int) -> Progress:
    returns = [float(epoch), float(epoch + 10)] if epoch % 2 else []
    return Progress(
        epoch=epoch,
        step=epoch * 10,
        frame=epoch * 40,
        returns=returns,
        lengths=[5] * len(returns),
        metrics={"loss": 1 / epoch, "entropy": 0.5},
    )


def learns_from_epoch_5(epoch: int) -> Progress:
    """As a learner that collects first."""
    loss = None if epoch < 5 else float(epoch)
    return replace(progress(epoch), metrics={"loss": loss, "epsilon": 0.5})


def record(
    run: RunDirectory,
    resolved: Resolved,
    first: int,
    last: int,
    saved: str | None,
    brought: Callable[[int], Progress] = progress,
) -> str:
    document = None if saved is None else json.loads(saved)
    recorder = Recorder(run, resolved, step=(first - 1) * 10, saved=document)
    for epoch in range(first, last + 1):
        recorder.add(brought(epoch))
    state = json.dumps(recorder.state())
    recorder.close()
    return state


def test_a_row_covers_its_interval_and_the_last_epoch_ends_one(
    run: RunDirectory, resolved: Resolved
) -> None:
    record(run, resolved, 1, 8, None)
    rows = read_rows(run.train_csv)
    assert list(rows[0]) == [
        "epoch",
        "step",
        "frame",
        "episodes",
        "return_mean",
        "return_min",
        "return_max",
        "length_mean",
        "loss",
        "entropy",
    ]
    assert [row["epoch"] for row in rows] == ["3", "6", "8"]
    assert (
        rows[0]["episodes"],
        rows[0]["return_mean"],
        rows[0]["return_min"],
        rows[0]["return_max"],
    ) == ("4", "7.0", "1.0", "13.0")
    assert float(rows[0]["loss"]) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert (rows[0]["frame"], rows[0]["length_mean"]) == ("120", "5.0")


def test_a_metric_is_averaged_over_the_epochs_that_had_it(
    run: RunDirectory, resolved: Resolved
) -> None:
    """Of 4, 5 and 6 in two; its cell is empty, and TensorBoard has no point, where none had."""
    record(run, resolved, 1, 8, None, learns_from_epoch_5)
    rows = read_rows(run.train_csv)
    assert [row["loss"] for row in rows] == ["", "5.5", "7.5"]
    assert [row["epsilon"] for row in rows] == ["0.5"] * 3
    events = EventAccumulator(str(run.tensorboard)).Reload()
    points = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert points == [(60, 5.5), (80, 7.5)]
    assert len(events.Scalars("train/epsilon")) == 3


def test_an_interval_of_an_older_checkpoint_had_all_values(resolved: Resolved) -> None:
    before = {"epochs": 2, "returns": [], "lengths": [], "sums": {"loss": 3.0, "epsilon": 1.0}}
    interval = Interval(**before)  # type: ignore[arg-type]
    interval.add(learns_from_epoch_5(6))
    row = interval.row(learns_from_epoch_5(6), resolved.measure)
    assert (row["loss"], row["epsilon"]) == (3.0, 0.5)


@pytest.mark.parametrize("brought", [progress, learns_from_epoch_5])
@pytest.mark.parametrize("cut", range(1, 8))
def test_a_resumed_recorder_writes_the_same_bytes(
    tmp_path: Path, resolved: Resolved, cut: int, brought: Callable[[int], Progress]
) -> None:
    undisturbed, resumed = (
        ExperimentDirectory(tmp_path / "a").run(0),
        ExperimentDirectory(tmp_path / "b").run(0),
    )
    whole = record(undisturbed, resolved, 1, 8, None, brought)
    saved = record(resumed, resolved, 1, cut, None, brought)
    record(resumed, resolved, cut + 1, 8, saved, brought)  # killed after it wrote everything
    assert record(resumed, resolved, cut + 1, 8, saved, brought) == whole
    assert resumed.train_csv.read_bytes() == undisturbed.train_csv.read_bytes()


def test_rows_without_an_episode_are_empty(run: RunDirectory) -> None:
    resolved = resolve("ppo", {"epochs": "2", "outdir": "/x"})
    recorder = Recorder(run, resolved, step=0, saved=None)
    assert recorder.training_score is None
    recorder.add(progress(2))
    assert read_rows(run.train_csv)[0]["return_mean"] == ""
    assert recorder.training_score is None
    for _ in range(60):
        recorder.add(progress(1))
    recorder.add(progress(7))
    assert recorder.training_score == pytest.approx((49 * 1 + 49 * 11 + 7 + 17) / 100)
    recorder.close()


def test_tensorboard_drops_what_a_killed_attempt_wrote(
    run: RunDirectory, resolved: Resolved
) -> None:
    saved = record(run, resolved, 1, 3, None)
    record(run, resolved, 4, 8, saved)
    record(run, resolved, 4, 8, saved)
    events = EventAccumulator(str(run.tensorboard)).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [30, 60, 80]
    assert events.Scalars("train/return_mean")[0].value == 7.0


def test_tensorboard_has_the_tags_of_other_libraries(run: RunDirectory, resolved: Resolved) -> None:
    """Stable-Baselines3's and CleanRL's, so that theirs and ours are drawn in the same charts."""
    record(run, resolved, 1, 8, None)
    rows = [dict(row, return_mean=12.5, length_mean=9.0, step=40) for row in ({},)]
    write_curve(run, rows, resolved.measure)
    write_curve(run, rows, resolved.measure)
    write_animation(run, b"GIF89a", (4, 3))
    events = EventAccumulator(str(run.tensorboard)).Reload()
    known = {
        "rollout/ep_rew_mean", "rollout/ep_len_mean", "charts/episodic_return",
        "charts/episodic_length", "eval/mean_reward", "eval/mean_ep_length",
    }  # fmt: skip
    assert known <= set(events.Tags()["scalars"])
    assert [(one.step, one.value) for one in events.Scalars("eval/mean_reward")] == [(40, 12.5)]
    assert events.Scalars("train/return_mean"), "the files of the evaluation drop nothing"
    assert events.Tags()["images"] == ["videos/learning"]
    (text,) = events.Tensors("hyperparameters/text_summary")
    assert b"|game|" in text.tensor_proto.string_val[0]
    assert "_hparams_/session_start_info" in events.PluginTagToContent("hparams")


def test_resources_are_sampled_and_continued(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steps.training.resources.PERIOD_S", 0.05)
    path = run.resources_csv
    sampler = ResourceSampler(path, offset=0, wall_s=0.0, step=0, gpu=lambda: (50.0, 1024))
    sampler.at(100)
    soon(lambda: sampler.offset >= 150)
    offset, wall_s = sampler.offset, sampler.wall_s
    sampler.close()
    rows = read_rows(path)
    assert list(rows[0]) == [
        "wall_s",
        "step",
        "steps_per_second",
        "cpu_percent",
        "memory_bytes",
        "gpu_percent",
        "gpu_memory_bytes",
    ]
    assert (rows[0]["step"], rows[0]["gpu_percent"], rows[0]["gpu_memory_bytes"]) == (
        "100",
        "50.0",
        "1024",
    )
    assert float(rows[0]["steps_per_second"]) > 0
    assert rows[1]["steps_per_second"] == "", "no epoch ended since"
    with path.open("a") as file:
        file.write("torn")
    resumed = ResourceSampler(path, offset=offset + 1000, wall_s=wall_s, step=100, gpu=None)
    resumed.close()
    walls = [float(row["wall_s"]) for row in read_rows(path)]
    assert walls == sorted(walls)
    assert read_rows(path)[-1]["gpu_percent"] == ""


def test_what_a_topology_measures_is_in_the_table_and_in_tensorboard(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steps.training.resources.PERIOD_S", 0.02)
    asked = list[float]()

    def measure(seconds: float) -> dict[str, int | None]:
        asked.append(seconds)
        return {"actors": 3, "unknown": None}

    events = EventFile(run.tensorboard, purge_step=0)
    path = run.resources_csv
    sampler = ResourceSampler(
        path, offset=0, wall_s=0.0, step=7, gpu=None, measure=measure, events=events
    )
    soon(lambda: len(asked) >= 3)
    sampler.close()
    events.close()
    rows = read_rows(path)
    assert [(row["actors"], row["unknown"]) for row in rows] == [("3", "")] * len(asked)
    assert sum(asked) == pytest.approx(float(rows[-1]["wall_s"]), abs=0.2)
    tags = EventAccumulator(str(run.tensorboard)).Reload().Tags()["scalars"]
    assert {"resources/actors", "resources/memory_bytes"} <= set(tags)
    assert not {"resources/unknown", "resources/step", "resources/wall_s"} & set(tags)


def test_what_stops_the_sampling_stops_the_training(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steps.training.resources.PERIOD_S", 0.01)

    def gpu() -> tuple[float | None, int | None]:
        raise ExperimentError("no space")

    sampler = ResourceSampler(run.resources_csv, offset=0, wall_s=0.0, step=0, gpu=gpu)
    sampler._thread.join()
    with pytest.raises(ExperimentError, match="no space"):
        sampler.at(1)
    sampler.close()


def test_a_full_disk_ends_a_self_play_within_its_generation() -> None:
    """Between two generations a trainer learns for minutes."""
    full = OSError(errno.ENOSPC, "No space left on device")

    def never_an_epoch(take: object) -> Iterator[None]:
        for _ in range(10):
            yield None

    def no_space() -> None:
        raise full

    attempt: Any = SimpleNamespace(
        resolved=SimpleNamespace(workers=SimpleNamespace(no_data_timeout=60)),
        context=SimpleNamespace(check_stop=lambda: None),
        pause=None,
        kept={},
    )
    inbox: Any = SimpleNamespace(taken={}, take=None, silent_s=0.0)
    trainer: Any = SimpleNamespace(train=never_an_epoch)
    files: Any = SimpleNamespace(check=no_space)
    with pytest.raises(OSError, match="No space left"):
        self_play_trainer._train(attempt, trainer, inbox, files)


@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("write", lambda events: events.add(1, {"return_mean": 7.0})),
        ("flush", EventFile.flush),
        ("close", EventFile.close),
    ],
)
def test_a_full_disk_under_the_event_file_is_explained(
    run: RunDirectory, part: str, call: Callable[[EventFile], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is buffered, so that it may be the first to meet the full disk, or the last to say so."""

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    events = EventFile(run.tensorboard, purge_step=0)
    monkeypatch.setattr(RecordWriter, part, full)
    with pytest.raises(ExperimentError, match=r"no space for .*tfevents.*bytes needed") as caught:
        call(events)
    assert caught.value.__cause__ is None, "its traceback would be printed"
    monkeypatch.undo()
    events.close()


def test_what_stops_the_sampling_stops_a_learner_inside_an_epoch() -> None:
    class Sampler:
        def check(self) -> None:
            raise ExperimentError("no space")

    files: Any = TrainingFiles.__new__(TrainingFiles)
    files._sampler = Sampler()
    with pytest.raises(ExperimentError, match="no space"):
        files.check_stop(None)


@pytest.mark.parametrize(("step", "taken"), [(0, True), (57, False)])
def test_the_first_snapshot_is_taken_before_the_first_step(step: int, taken: bool) -> None:
    """A learner may be stopped inside its first epoch, and continues there."""
    files: Any = TrainingFiles.__new__(TrainingFiles)
    steps = list[int]()
    files._snapshot_epochs = frozenset({0, 8})
    files._add_to_streams = lambda trainer: None
    files._take_snapshot = lambda trainer: steps.append(trainer.step)
    files.take_first_snapshot(SimpleNamespace(epoch=0, step=step))
    assert steps == [step] * taken


def test_the_saver_works_beside_the_training_and_does_not_swallow_errors() -> None:
    saver, begun, go = Saver(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        go.wait(10)
        raise ExperimentError("no space")

    saver.wait()
    saver.start(write)
    assert begun.wait(10)
    go.set()
    with pytest.raises(ExperimentError, match="no space"):
        saver.wait()
    saver.start(lambda: None)
    saver.wait()
    saver.close()
