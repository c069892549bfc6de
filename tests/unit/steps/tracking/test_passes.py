"""A pod that sends: trackers that fail or stand still hold nothing up, and what follows a training ends
with it.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from config.errors import BadInput
from config.resolve import resolve
from config.tracking import TRACKERS, canonical, names, refuse_missing
from steps import prepare, track, track_rest
from steps.command.context import StepContext
from steps.directory import owner, processes
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.page.facts import read_facts
from steps.page.render import render
from steps.page.trackers import said_of_trackers
from steps.page.verdict import shortcomings
from steps.tracking import passes
from steps.tracking.passes import Patience, deliver
from steps.tracking.sender import Sender
from steps.tracking.sink import Row, TrackedRun, check
from tests import recording_sink, synthetic, tracked_runs
from tests.tracked_runs import RECORDING
from tests.waiting import until

IMPATIENT = Patience(failing_s=0.2, silent_s=0.2)
STANDS_STILL = threading.Event()


class Silent:
    """Takes nothing, for ever."""

    def destination(self) -> str:
        return "nowhere"

    def start(self, run: TrackedRun) -> int | None:
        STANDS_STILL.wait()
        return None

    def rows(self, rows: Sequence[Row]) -> None: ...

    def file(self, path: Path, name: str) -> None: ...

    def finish(self) -> None: ...


class Exits(Silent):
    """Ends the process, as it thinks."""

    def start(self, run: TrackedRun) -> int | None:
        raise SystemExit(3)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "POLL_S", 0.02)
    monkeypatch.setattr(track, "LOOK_S", 0.0)
    monkeypatch.setattr(track, "BESIDE_TRAINING", IMPATIENT)
    monkeypatch.setattr(track_rest, "AT_THE_END", IMPATIENT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "tracker"
    made.mkdir()
    monkeypatch.setenv("TRACKER_URL", str(made))
    return made


def sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an import path find the classes above, whatever this module is called."""
    classes = {"lab.sinks:Silent": Silent, "lab.sinks:Exits": Exits}

    def load(name: str) -> type:
        return classes.get(name) or recording_sink.Recording

    monkeypatch.setattr("steps.tracking.sender.load", load)


def senders(directory: ExperimentDirectory, tracker: str) -> list[Sender]:
    record = read_experiment(directory)
    return [
        Sender(tracker, directory, directory.run(index), record, lambda: None)
        for index in range(record.resolved.experiment.runs)
    ]


@pytest.mark.parametrize(
    ("bad", "why"), [("lab.sinks:Silent", "no answer for"), ("lab.sinks:Exits", "SystemExit: 3")]
)
def test_a_bad_tracker_holds_neither_the_pod_nor_the_others(
    bad: str, why: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks(monkeypatch)
    directory = synthetic.experiment(tmp_path / "experiment", ("complete",) * 2, epochs=5)
    told = deliver(
        {one: senders(directory, one) for one in (bad, RECORDING)},
        lambda: True,
        lambda: None,
        IMPATIENT,
    )
    STANDS_STILL.set()
    assert why in told[bad]["kept"] and told[bad]["rows"] == 0
    assert "kept" not in told[RECORDING] and told[RECORDING]["rows"] == 2 * (5 + 20)


def test_what_a_tracker_did_not_take_is_sent_when_it_is_back(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says so, however often it was tried."""
    directory = synthetic.experiment(tmp_path / "experiment", ("complete",), epochs=5)
    folder.rmdir()
    over = threading.Event()
    tried: list[float] = []

    def check_stop() -> None:
        tried.append(time.monotonic())
        if len(tried) == 5:
            folder.mkdir()
            over.set()

    told = deliver(
        {RECORDING: senders(directory, RECORDING)},
        over.is_set,
        check_stop,
        Patience(failing_s=20, silent_s=20),
    )
    assert told[RECORDING]["rows"] == 25 and "kept" not in told[RECORDING]
    assert capsys.readouterr().out.count("kept for later") == 1


def test_a_mistake_of_ours_is_not_taken_for_the_trackers(tmp_path: Path, folder: Path) -> None:
    directory = synthetic.experiment(tmp_path / "experiment", ("complete",), epochs=5)

    def displaced() -> None:
        raise BadInput("another attempt writes here")

    one = Sender(RECORDING, directory, directory.run(0), read_experiment(directory), displaced)
    with pytest.raises(BadInput, match="another attempt"):
        deliver({RECORDING: [one]}, lambda: True, lambda: None, IMPATIENT)


def test_it_follows_a_training_until_its_end(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = synthetic.experiment(
        tmp_path / "experiment", ("complete",), epochs=8, track=RECORDING
    )
    run = directory.run(0)
    (run.root / "evaluation.csv").unlink()
    (run.status / "evaluate.json").unlink()
    whole = run.train_csv.read_bytes().splitlines(keepends=True)
    run.train_csv.write_bytes(b"".join(whole[:4]))
    path = run.status / "train.json"
    synthetic.status(path, state="running", process=processes.identity())
    codes: list[int] = []
    words = [f"--outdir={directory.root}", "--run=0"]
    # Signals can be caught in the main thread only.
    monkeypatch.setattr("steps.command.stop.StopRequest.install", lambda self: None)
    thread = threading.Thread(target=lambda: codes.append(track.main(words)))
    thread.start()
    until(lambda: len(rows(folder)) == 3, longest_s=60)
    run.train_csv.write_bytes(b"".join(whole))
    synthetic.status(path)
    thread.join(60)
    assert codes == [0] and len(rows(folder)) == 8
    ended = read_status(run.status / "track.json")
    assert ended is not None and ended.details["trackers"][RECORDING]["rows"] == 8


def rows(folder: Path) -> list[dict[str, object]]:
    return [
        one for path in folder.glob("*") for one in recording_sink.read(path) if "number" in one
    ]


def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **status: object) -> track._Training:
    """A training with this status, seen from workflow `w`."""
    directory = synthetic.experiment(tmp_path / "experiment", ("unfinished",), epochs=8)
    synthetic.status(directory.run(0).status / "train.json", **status)  # type: ignore[arg-type]
    record = read_experiment(directory)
    context = StepContext("track", directory, 0, "w", None, None)  # type: ignore[arg-type]
    context.__dict__["record"] = record
    return track._Training(context)


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({"state": "running", "details": {"workflow": "w"}}, False),
        ({"state": "preempted", "exit_code": 75, "details": {"workflow": "w"}}, False),
        ({"state": "failed", "exit_code": 1, "details": {"workflow": "w"}}, False),
        ({"state": "failed", "exit_code": 3, "details": {"workflow": "w"}}, True),
        ({"state": "failed", "exit_code": 3, "details": {"workflow": "earlier"}}, False),
        ({"state": "succeeded", "details": {"workflow": "w"}}, True),
        ({"state": "succeeded", "details": {"workflow": "earlier"}}, False),
        ({"state": "paused", "details": {"workflow": "w"}}, True),
    ],
)
def test_when_a_training_has_ended(
    status: dict[str, object], ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure is followed by another attempt, and an end of an earlier workflow by a new training."""
    assert training(tmp_path, monkeypatch, **status).has_ended() is ended


def test_a_training_without_a_sign_of_life_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = training(tmp_path, monkeypatch, state="running", details={"workflow": "w"})
    assert not followed.has_ended()
    monkeypatch.setattr(track, "QUIET_S", 0.0)
    assert followed.has_ended()


def test_by_hand_it_sends_what_is_left_and_says_what_it_could_not(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = synthetic.experiment(
        tmp_path / "experiment", ("complete", "absent"), epochs=5, track=RECORDING
    )
    folder.rmdir()
    words = [f"--outdir={directory.root}"]
    assert track.main(words) == 5
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and "track-rest: failed: kept for later: " in told.err
    folder.mkdir()
    assert track.main(words) == 0
    run = directory.run(0)
    assert len(tracked_runs.recorded(run, folder)) == 25
    assert track.main(words) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_in_a_workflow_it_is_no_failure_and_gives_the_directory_back(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins when `report` has released the directory."""
    directory = synthetic.experiment(
        tmp_path / "experiment", ("complete",), epochs=5, track=RECORDING
    )
    folder.rmdir()
    monkeypatch.setenv("EXPERIMENT_OWNER", "w")
    me = owner.from_environment()
    assert me is not None
    owner.claim(directory.owner_json, me)
    begun = threading.Timer(0.5, owner.release, (directory.owner_json, "w"))
    begun.start()
    before = time.monotonic()
    assert track.main([f"--outdir={directory.root}"]) == 0
    assert time.monotonic() - before > 0.4
    present = owner.read_owner(directory.owner_json)
    assert present is not None and present.released
    status = read_status(directory.status / "track-rest.json")
    assert status is not None and status.state == "succeeded"
    assert "ConnectionError" in status.details["trackers"][RECORDING]["kept"]


def test_without_a_tracker_nothing_is_done(tmp_path: Path) -> None:
    directory = synthetic.experiment(tmp_path / "experiment", ("complete",), epochs=5)
    assert track.main([f"--outdir={directory.root}", "--run=0"]) == 0
    status = read_status(directory.run(0).status / "track.json")
    assert status is not None and status.state == "skipped"
    assert not directory.run(0).tracking.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("wandbb", "unknown tracker 'wandbb'; did you mean 'wandb'"),
        ("mlflow,", "unknown tracker ''"),
        ("tensorboard", "without being asked"),
        ("lab.sinks", "unknown tracker 'lab.sinks'"),
    ],
)
def test_an_unknown_tracker_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refused:
        resolve("ppo", {"game": "cartpole", "track": text})
    assert "allowed: wandb, mlflow or package.module:Class" in str(refused.value)


def test_names_are_read_without_spaces_and_once() -> None:
    assert canonical("wandb, lab.sinks:Mine,wandb") == "wandb,lab.sinks:Mine"
    assert names("wandb,mlflow") == ("wandb", "mlflow") and names(None) == ()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_named_with_how_to_install_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(BadInput, match=rf"pip install 'rl-training-dag\[{name}\]'"):
        refuse_missing(name)


def test_a_class_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="missing: destination, start, rows, file, finish"):
        check("pathlib:Path", tmp_path)
    with pytest.raises(BadInput, match="cannot be imported"):
        check("no_such_lab:Sink", tmp_path)
    check(RECORDING, tmp_path)


def test_prepare_refuses_a_tracker_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outdir = tmp_path / "experiment"
    words = ["--algorithm=ppo", "-p", f"outdir={outdir}", "-p", "track=no_such_lab:Sink"]
    assert prepare.main(words) == 2
    assert "prepare: tracker 'no_such_lab:Sink' cannot be imported" in capsys.readouterr().err
    assert not outdir.exists()


def test_the_report_says_which_runs_a_tracker_has(tmp_path: Path) -> None:
    directory = synthetic.experiment(
        tmp_path / "experiment", ("complete",) * 3, epochs=5, track=f"wandb,{RECORDING}"
    )
    for index, told in enumerate([{"rows": 5}, {"rows": 0, "kept": "wandb: <no> key"}]):
        path = directory.run(index).status / "track.json"
        synthetic.status(path, details={"trackers": {"wandb": told}})
    facts = read_facts(directory, read_experiment(directory), "Succeeded")
    assert said_of_trackers(facts) == [
        "wandb: 1 of 3 runs sent; kept for later: wandb: <no> key",
        f"{RECORDING}: 0 of 3 runs sent",
    ]
    assert "wandb: 1 of 3 runs sent; kept for later: wandb: &lt;no&gt; key" in render(facts, [])
    assert not [line for line in shortcomings(facts) if "track" in line]
