"""Fault 59 and the recipe "Ownership": one workflow at a time writes into a directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.errors import WrongDirectory
from steps import prepare
from steps.directory import owner, processes
from steps.directory.layout import ExperimentDirectory
from steps.directory.owner import Owner
from tests.fault.conftest import Start, assignments, snapshot

ALIVE = processes.identity()


def environment(uid: str, process: str | None = ALIVE) -> dict[str, str]:
    named = {"EXPERIMENT_OWNER": uid, "EXPERIMENT_WORKFLOW": f"ppo-{uid}"}
    return named if process is None else named | {"EXPERIMENT_OWNER_PROCESS": process}


@pytest.fixture
def dead() -> str:
    """The identity of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = processes.identity(process.pid)
    process.communicate(b"\n")
    return name


@pytest.fixture
def claimed(start: Start, tmp_path: Path) -> Callable[..., Path]:
    """A directory that workflow `first` has prepared."""

    def claim(process: str | None = ALIVE, **parameters: object) -> Path:
        step = start(
            "steps.prepare",
            assignments(tmp_path / "x", **parameters),
            environment("first", process),
        )
        assert step.end() == 0, step.text
        return tmp_path / "x"

    return claim


def test_second_live_owner_is_refused_and_named(start: Start, claimed: Callable[..., Path]) -> None:
    outdir = claimed()
    before = snapshot(outdir)
    second = start("steps.prepare", assignments(outdir), environment("second"))
    assert second.end() == 4, second.text
    assert "belongs to workflow ppo-first (uid first" in second.text
    train = start("steps.train", ["--outdir", str(outdir), "--run", "0"], environment("second"))
    assert train.end() == 4, train.text
    by_hand = start("steps.train", ["--outdir", str(outdir), "--run", "0"])
    assert by_hand.end() == 4, by_hand.text
    assert snapshot(outdir) == before


def test_dead_process_of_this_machine_is_taken_over_at_once(
    start: Start, claimed: Callable[..., Path], dead: str
) -> None:
    outdir = claimed(dead)
    second = start("steps.prepare", assignments(outdir), environment("second"))
    assert second.end() == 0, second.text
    assert "watching" not in second.text
    assert json.loads((outdir / "owner.json").read_text())["uid"] == "second"
    displaced = start("steps.train", ["--outdir", str(outdir), "--run", "0"], environment("first"))
    assert displaced.end() == 4, displaced.text


def test_released_owner_is_replaced(start: Start, claimed: Callable[..., Path]) -> None:
    outdir = claimed()
    owner.release(outdir / "owner.json", "first")
    second = start("steps.prepare", assignments(outdir), environment("second"))
    assert second.end() == 0, second.text


def test_a_step_takes_back_what_its_own_workflow_has_released(
    start: Start, claimed: Callable[..., Path]
) -> None:
    """`argo retry` of an ended workflow: `prepare` succeeded and is not repeated."""
    outdir = claimed()
    owner.release(ExperimentDirectory(outdir).owner_json, "first")
    steps = ["--outdir", str(outdir), "--run", "0"]
    other = start("steps.evaluate", steps, environment("second"))
    assert other.end() == 4, other.text
    present = owner.read_owner(ExperimentDirectory(outdir).owner_json)
    assert present is not None and present.released
    again = start("steps.evaluate", steps, environment("first"))
    assert again.end() != 4, again.text
    present = owner.read_owner(ExperimentDirectory(outdir).owner_json)
    assert present is not None and (present.uid, present.released) == ("first", False)


def test_a_directory_that_another_workflow_has_is_not_taken_back(
    start: Start, claimed: Callable[..., Path]
) -> None:
    outdir = claimed()
    owner.release(ExperimentDirectory(outdir).owner_json, "first")
    second = start("steps.prepare", assignments(outdir), environment("second"))
    assert second.end() == 0, second.text
    late = start("steps.evaluate", ["--outdir", str(outdir), "--run", "0"], environment("first"))
    assert late.end() == 4, late.text


@pytest.mark.parametrize("behind", [True, False])
def test_a9_of_two_that_take_over_at_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """Both have seen that the owner has ended before either writes (`behind`: the other goes on
    when the first is done)."""
    path = tmp_path / "owner.json"
    meeting = threading.Barrier(2, timeout=60)
    refused: dict[str, WrongDirectory] = {}

    def judge(judged: Path, *_: object) -> None:
        if judged != path:
            raise WrongDirectory("the other one lives")
        meeting.wait()
        if behind and threading.current_thread().name == "other":
            threads[0].join(60)

    def claim(uid: str) -> None:
        try:
            owner.claim(path, Owner(uid=uid))
        except WrongDirectory as error:
            refused[uid] = error

    monkeypatch.setattr(owner, "_refuse_if_alive", judge)
    for _ in range(10):
        path.write_text(json.dumps({"uid": "ended", "released": True}))
        refused.clear()
        threads = [
            threading.Thread(target=claim, args=(uid,), name=uid) for uid in ("one", "other")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        present = owner.read_owner(path)
        assert present is not None and len(refused) == 1 and present.uid not in refused, refused
        assert [file.name for file in tmp_path.iterdir()] == ["owner.json"]


def test_a9_killed_while_taking_over(
    tmp_path: Path, start: Start, claimed: Callable[..., Path], dead: str
) -> None:
    """The successor file stays behind; it blocks nobody once its owner is gone."""
    outdir = claimed(dead)
    killed = start(
        "steps.prepare",
        assignments(outdir),
        environment("second", dead) | {"EXPERIMENT_FAULT": "before_rename:1:owner"},
    )
    assert killed.end() == -signal.SIGKILL
    assert list(outdir.glob(".owner.json.*.successor"))
    third = start("steps.prepare", assignments(outdir), environment("third"))
    assert third.end() == 0, third.text
    assert json.loads((outdir / "owner.json").read_text())["uid"] == "third"
    assert not list(outdir.glob(".owner.json.*.successor"))


@pytest.mark.parametrize("owned", [True, False])
def test_a9_what_another_workflow_has_written_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], owned: bool
) -> None:
    """Another one prepares and ends between our first look and our claim; refused, we give the
    claim back."""
    outdir = tmp_path / "x"
    look, seen = prepare.make_and_probe, list[dict[str, tuple[int, int, bytes]]]()

    def meanwhile(directory: Path) -> None:
        look(directory)
        monkeypatch.setattr(prepare, "make_and_probe", look)
        monkeypatch.setenv("EXPERIMENT_OWNER", "other")
        assert prepare.main(assignments(outdir, seed=7)) == 0
        owner.release(outdir / "owner.json", "other")
        if not owned:
            (outdir / "owner.json").unlink()
        monkeypatch.setenv("EXPERIMENT_OWNER", "ours")
        seen.append({path: (0, 0, content) for path, (_, _, content) in snapshot(outdir).items()})

    monkeypatch.setattr(prepare, "make_and_probe", meanwhile)
    monkeypatch.setenv("EXPERIMENT_OWNER", "ours")
    monkeypatch.setattr(
        owner, "from_environment", lambda call: Owner(uid=os.environ["EXPERIMENT_OWNER"])
    )
    assert prepare.main(assignments(outdir, seed=1)) == 4
    assert "seed: 7 in the directory, 1 now" in capsys.readouterr().err
    assert {path: (0, 0, content) for path, (_, _, content) in snapshot(outdir).items()} == seen[0]


def test_same_workflow_again_changes_nothing(start: Start, claimed: Callable[..., Path]) -> None:
    outdir = claimed()
    before = snapshot(outdir)
    again = start(
        "steps.prepare",
        assignments(outdir),
        environment("first") | {"OUTPUTS": str(outdir.parent / "outputs")},
    )
    assert again.end() == 0, again.text
    assert snapshot(outdir) == before
    assert json.loads((outdir.parent / "outputs" / "runs").read_text()) == [0]


def elsewhere(outdir: Path, lease_s: float) -> Path:
    """Pretend that the owner runs on another machine, with a short lease."""
    path = outdir / "owner.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"process": None, "lease_s": lease_s})
    )
    return path


@pytest.fixture
def touching() -> Iterator[Callable[[Path], None]]:
    """Renew a lease in the background."""
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def begin(path: Path) -> None:
        def touch() -> None:
            while not ended.wait(0.05):
                os.utime(path)

        threads.append(threading.Thread(target=touch))
        threads[-1].start()

    yield begin
    ended.set()
    for thread in threads:
        thread.join()


def test_silent_lease_elsewhere_is_taken_over(start: Start, claimed: Callable[..., Path]) -> None:
    outdir = claimed()
    elsewhere(outdir, lease_s=0.5)
    second = start("steps.prepare", assignments(outdir), environment("second"))
    assert second.end() == 0, second.text
    assert "watching its lease for 0.5 s" in second.text


def test_renewed_lease_elsewhere_is_respected(
    start: Start, claimed: Callable[..., Path], touching: Callable[[Path], None]
) -> None:
    outdir = claimed()
    touching(elsewhere(outdir, lease_s=20))
    second = start("steps.prepare", assignments(outdir), environment("second"))
    assert second.end() == 4, second.text
    assert "ppo-first" in second.text


def test_sigterm_while_watching_a_lease(start: Start, claimed: Callable[..., Path]) -> None:
    outdir = claimed()
    elsewhere(outdir, lease_s=600)
    second = start("steps.prepare", assignments(outdir), environment("second"))
    second.wait_for_text("watching its lease")
    second.kill(signal.SIGTERM)
    assert second.end() == 75, second.text
    assert json.loads((outdir / "owner.json").read_text())["uid"] == "first"


def test_running_step_renews_the_lease_and_ends_when_displaced(
    start: Start, claimed: Callable[..., Path]
) -> None:
    outdir = claimed(epochs=100000, checkpoint_interval=20)
    path = elsewhere(outdir, lease_s=1.5)
    first_seen = path.stat().st_mtime_ns
    train = start("steps.train", ["--outdir", str(outdir), "--run", "0"], environment("first"))
    train.wait_for(lambda: path.stat().st_mtime_ns != first_seen)
    train.wait_for_text("epoch 1 of")
    path.write_text(json.dumps(vars(Owner(uid="second", workflow="ppo-second"))))
    assert train.end() == 4, train.text
    assert "ppo-second" in train.text
    assert (
        json.loads((outdir / "runs" / "0" / "status" / "train.json").read_text())["state"]
        == "running"
    ), "not ours to write"


def test_one_process_per_step(start: Start, tmp_path: Path) -> None:
    assert start("steps.prepare", assignments(tmp_path / "x", epochs=100000)).end() == 0
    first = start("steps.train", ["--outdir", str(tmp_path / "x"), "--run", "0"])
    first.wait_for_text("epoch 1 of")
    second = start("steps.train", ["--outdir", str(tmp_path / "x"), "--run", "0"])
    assert second.end() == 4, second.text
    assert "train of run 0 is running already, in process" in second.text
    first.kill(signal.SIGTERM)
    assert first.end() == 75, first.text
