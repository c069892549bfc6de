"""What every tracker promises: each row of the tables once, with its numbers, whatever is killed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config import pipeline
from config.errors import Unsent, WrongDirectory
from steps.directory.experiment import read_experiment
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.tables import format_table
from steps.tracking.sender import Sender
from steps.tracking.sink import TrackedRun
from tests import recording_sink, synthetic, tracked_runs
from tests.tracked_runs import EVENTS, RECORDING, TRACKERS, Stored, Tracker

each_tracker = pytest.mark.parametrize(
    "tracker",
    [
        pytest.param(one, id=name, marks=[pytest.mark.slow] if one.needs else [])
        for name, one in TRACKERS.items()
    ],
)


class Killed(BaseException):
    """The end of the process."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tracker"
    made.mkdir()
    return made


@pytest.fixture
def directory(tmp_path: Path) -> ExperimentDirectory:
    """An experiment of one run, with a curve of evaluations and a film."""
    made = synthetic.experiment(tmp_path / "experiment", ("complete",), epochs=40, track=RECORDING)
    run = made.run(0)
    rows = [{"step": 256 * i, "return_mean": 10.0 * i, "length_mean": 0.1 * i} for i in range(4)]
    write_atomically(
        run.evaluation_curve_csv, format_table(("step", "return_mean", "length_mean"), rows)
    )
    synthetic.status(run.status / "evaluation-curve.json")
    run.videos.mkdir()
    (run.videos / "episode-0.mp4").write_bytes(b"film")
    made.report_html.write_text("<h1>report</h1>")
    return made


@pytest.fixture
def use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Tracker], None]]:
    def use(tracker: Tracker) -> None:
        if tracker.needs:
            pytest.importorskip(tracker.needs, reason=f"{tracker.needs} is not installed")
        for name, value in tracker.environment(folder).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)  # where MLflow puts artifacts without a server

    yield use
    if "wandb" in sys.modules:
        importlib.import_module("wandb").teardown()  # it remembers the server of this test
    tracked_runs.stop_servers()


def sender(directory: ExperimentDirectory, tracker: str = RECORDING, index: int = 0) -> Sender:
    record = read_experiment(directory)
    return Sender(tracker, directory, directory.run(index), record, lambda: None)


def everything(run: RunDirectory) -> Stored:
    return [
        *tracked_runs.table(run.train_csv, "train", "step"),
        *tracked_runs.table(run.evaluation_curve_csv, "eval", "step"),
        *tracked_runs.table(run.root / "evaluation.csv", "evaluation", "episode"),
    ]


def assert_same(found: Stored, expected: Stored, tracker: Tracker) -> None:
    """TensorBoard has 32 bits and leaves out what it draws against."""
    left_out = ("epoch", "frame") if tracker.name == EVENTS else ()
    given = [
        (group, step, {name: one for name, one in values.items() if name not in left_out})
        for group, step, values in expected
    ]
    assert sorted(row[:2] for row in found) == sorted(row[:2] for row in given)
    by_place = {row[:2]: row[2] for row in found}
    for group, step, values in given:
        precision = 1e-6 if tracker.name == EVENTS else 0
        assert by_place[group, step] == pytest.approx(values, rel=precision, abs=0)


@each_tracker
def test_the_values_equal_the_tables(
    tracker: Tracker, directory: ExperimentDirectory, folder: Path, use: Callable[[Tracker], None]
) -> None:
    use(tracker)
    one = sender(directory, tracker.name)
    assert not one.is_complete()
    one.send(last=True)
    run = directory.run(0)
    assert_same(tracker.read(run, folder), everything(run), tracker)
    assert sender(directory, tracker.name).is_complete()


@each_tracker
@pytest.mark.parametrize("moment", ["_confirm", "_take"])
def test_killed_and_resumed_each_row_arrives_once(
    moment: str,
    tracker: Tracker,
    directory: ExperimentDirectory,
    folder: Path,
    use: Callable[[Tracker], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between writing down and sending, and between sending and confirming."""
    use(tracker)
    run = directory.run(0)
    whole = run.train_csv.read_bytes()
    lines = whole.splitlines(keepends=True)
    run.train_csv.write_bytes(b"".join(lines[:11]))
    monkeypatch.setattr("steps.tracking.sender.ROWS_AT_ONCE", 7)
    first = sender(directory, tracker.name)
    first.send(last=False)
    end_process(first)
    run.train_csv.write_bytes(whole)
    killed = sender(directory, tracker.name)
    original = getattr(Sender, moment)
    calls: list[object] = []

    def dies(self: Sender, *arguments: object) -> object:
        calls.append(self)
        if len(calls) == 3:
            raise Killed
        return original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Sender, moment, dies)
        with pytest.raises(Killed):
            killed.send(last=False)
    assert tracked_runs.journal(run, tracker.name)["confirmed"] != 84
    end_process(killed)
    sender(directory, tracker.name).send(last=True)
    assert_same(tracker.read(run, folder), everything(run), tracker)


def end_process(of: Sender) -> None:
    """What the end of its process does to what a sink holds open."""
    if of.tracker in ("wandb", EVENTS) and of._sink is not None:
        of._sink.finish()


def test_rows_behind_the_last_checkpoint_wait(
    directory: ExperimentDirectory, folder: Path, use: Callable[[Tracker], None]
) -> None:
    """A kill would cut them off, and what comes in their place may differ."""
    use(TRACKERS["own"])
    run = directory.run(0)
    synthetic.status(run.status / "train.json", state="running")
    ends = [step for _, step, _ in tracked_runs.table(run.train_csv, "train", "step")]
    (only,) = run.checkpoints.iterdir()
    only.rename(run.checkpoint(ends[29]))
    sender(directory).send(last=False)
    assert [row[1] for row in tracked_runs.recorded(run, folder) if row[0] == "train"] == ends[:30]
    synthetic.status(run.status / "train.json")
    sender(directory).send(last=False)
    assert [row[1] for row in tracked_runs.recorded(run, folder) if row[0] == "train"] == ends


def test_an_incomplete_line_waits(
    directory: ExperimentDirectory, folder: Path, use: Callable[[Tracker], None]
) -> None:
    use(TRACKERS["own"])
    run = directory.run(0)
    whole = run.train_csv.read_bytes()
    run.train_csv.write_bytes(whole[:-5])
    sender(directory).send(last=False)
    assert sum(row[0] == "train" for row in tracked_runs.recorded(run, folder)) == 39
    run.train_csv.write_bytes(whole)
    sender(directory).send(last=True)
    assert_same(tracked_runs.recorded(run, folder), everything(run), TRACKERS["own"])


def test_files_are_sent_at_the_end_and_again_when_they_change(
    directory: ExperimentDirectory, folder: Path, use: Callable[[Tracker], None]
) -> None:
    use(TRACKERS["own"])
    one = sender(directory)
    one.send(last=False)
    assert files(directory, folder) == []
    one.send(last=True)
    listed = [
        "experiment.yaml", "train.csv", "evaluation-curve.csv", "evaluation.csv",
        "videos/episode-0.mp4", "report.html",
    ]  # fmt: skip
    assert files(directory, folder) == listed
    (directory.run(0).videos / "episode-0.mp4").write_bytes(b"another film")
    assert not sender(directory).is_complete()
    sender(directory).send(last=True)
    assert files(directory, folder) == [*listed, "videos/episode-0.mp4"]


def files(directory: ExperimentDirectory, folder: Path) -> list[str]:
    id = tracked_runs.journal(directory.run(0), RECORDING)["id"]
    return [
        str(one["file"]) for one in recording_sink.read(folder / f"{id}.jsonl") if "file" in one
    ]


def test_a_table_with_other_rows_is_sent_as_a_file_only(
    directory: ExperimentDirectory,
    folder: Path,
    use: Callable[[Tracker], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(TRACKERS["own"])
    sender(directory).send(last=True)
    run = directory.run(0)
    before = tracked_runs.recorded(run, folder)
    synthetic.evaluated(run, [1.0] * 30)
    sender(directory).send(last=True)
    assert tracked_runs.recorded(run, folder) == before
    assert files(directory, folder)[-1] == "evaluation.csv"
    assert "evaluation.csv of run 0 has other rows than were sent" in capsys.readouterr().out
    assert sender(directory).is_complete()


@pytest.mark.parametrize("says", [True, False], ids=["says what it has", "says nothing"])
def test_another_destination_gets_the_whole_run(
    says: bool,
    directory: ExperimentDirectory,
    folder: Path,
    use: Callable[[Tracker], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(TRACKERS["own"])
    start = recording_sink.Recording.start

    def say_nothing(self: recording_sink.Recording, run: TrackedRun) -> None:
        start(self, run)

    if not says:
        monkeypatch.setattr(recording_sink.Recording, "start", say_nothing)
    sender(directory).send(last=True)
    other = folder / "other"
    other.mkdir()
    monkeypatch.setenv("TRACKER_URL", str(other))
    assert not sender(directory).is_complete()
    sender(directory).send(last=True)
    run = directory.run(0)
    assert_same(tracked_runs.recorded(run, other), everything(run), TRACKERS["own"])
    assert files(directory, other) == files(directory, folder)


def test_a_tracker_that_lost_everything_gets_it_again(
    directory: ExperimentDirectory, folder: Path, use: Callable[[Tracker], None]
) -> None:
    use(TRACKERS["own"])
    one = sender(directory)
    one.send(last=False)
    (lost,) = folder.iterdir()
    lost.unlink()
    sender(directory).send(last=True)
    run = directory.run(0)
    assert_same(tracked_runs.recorded(run, folder), everything(run), TRACKERS["own"])


def test_a_run_keeps_its_id_and_two_runs_differ(tmp_path: Path, folder: Path) -> None:
    made = synthetic.experiment(tmp_path / "two", ("complete",) * 2, epochs=5)
    other = synthetic.experiment(tmp_path / "other", ("complete",) * 2, epochs=5)
    ids = []
    for directory, index in ((made, 0), (made, 1), (other, 0), (made, 0)):
        one = sender(directory, EVENTS, index)
        one.send(last=False)
        end_process(one)
        ids.append(tracked_runs.journal(directory.run(index), EVENTS)["id"])
    assert len(set(ids)) == 3 and ids[3] == ids[0]
    moved = ExperimentDirectory(tmp_path / "moved")
    made.root.rename(moved.root)
    one = sender(moved, EVENTS, 0)
    one.send(last=False)
    end_process(one)
    assert tracked_runs.journal(moved.run(0), EVENTS)["id"] == ids[0]


def test_what_a_tracker_says_is_one_line_without_secrets(
    directory: ExperimentDirectory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER_URL", "http://me:sesame@nowhere")
    monkeypatch.setenv("TRACKER_TOKEN", "geheim")
    with pytest.raises(Unsent) as refused:
        sender(directory).send(last=True)
    text = str(refused.value)
    assert text.startswith(f"{RECORDING}: ConnectionError: no folder")
    assert "geheim" not in text and "sesame" not in text and "\n" not in text
    assert "TRACKER_TOKEN" in text


def test_a_damaged_journal_is_named(
    directory: ExperimentDirectory, folder: Path, use: Callable[[Tracker], None]
) -> None:
    use(TRACKERS["own"])
    sender(directory).send(last=True)
    (path,) = directory.run(0).tracking.glob("*.json")
    path.write_text("{")
    with pytest.raises(WrongDirectory, match=r"Recording\.json cannot be read .*; delete it"):
        sender(directory)


def test_code_among_the_results_is_never_imported(
    directory: ExperimentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory.root / "brought_along.py").write_text("raise SystemExit('was run')")
    monkeypatch.syspath_prepend(str(directory.root))
    with pytest.raises(WrongDirectory, match="never imported"):
        sender(directory, "brought_along:Sink")


def test_the_leaves_are_those_of_the_table() -> None:
    assert pipeline.find(pipeline.TRACK).leaves == ("tracking/",)
