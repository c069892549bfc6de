"""Faults 1–7, 10, 12, 15 and 30: a training that is killed anywhere goes on and ends with the bytes
of an undisturbed one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import read_status, write_status
from steps.directory.tables import read_rows
from steps.training.training_attempt import KILLS
from tests.fault.conftest import Start, assignments, snapshot
from tests.outside import ROOT, outside
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.timeout(600)
Oracle = tuple[bytes, bytes, str, dict[str, bytes]]
EVALUATIONS = 5


def products(run: RunDirectory) -> Oracle:
    """What must be equal: train.csv, the final weights, the rest of the trainer's state, and the
    snapshots of the policy, none missing and none too many."""
    final = run.checkpoint(run.checkpoint_steps()[-1])
    state = json.loads((final / "state.json").read_bytes())["state"]
    return (
        run.train_csv.read_bytes(),
        (final / "tensors.safetensors").read_bytes(),
        json.dumps(state),
        {
            str(path.relative_to(run.root)): path.read_bytes()
            for path in sorted(run.snapshots.rglob("*"))
            if path.is_file()
        },
    )


def prepare(start: Start, outdir: Path, **changed: object) -> RunDirectory:
    """A prepared directory; made once for each set of parameters, then copied."""
    key = str(sorted(changed.items()))
    if key not in _PREPARED:
        given = {"evaluations": EVALUATIONS, **changed}
        step = start("steps.prepare", assignments(outdir, **given))
        assert step.end() == 0, step.text
        _PREPARED[key] = outdir.parent.parent / f"prepared-{len(_PREPARED)}"
        shutil.copytree(outdir, _PREPARED[key])
    elif not outdir.exists():
        shutil.copytree(_PREPARED[key], outdir)
    return ExperimentDirectory(outdir).run(0)


_PREPARED: dict[str, Path] = {}


def train(outdir: Path) -> tuple[str, list[str]]:
    return "steps.train", ["--outdir", str(outdir), "--run", "0"]


@pytest.fixture
def oracle(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    if not _ORACLE:
        outdir = tmp_path_factory.mktemp("undisturbed") / "x"
        run = prepare(start, outdir)
        assert start(*train(outdir)).end() == 0
        _ORACLE.append(products(run))
    return _ORACLE[0]


_ORACLE: list[Oracle] = []


def kill_at_random(
    start: Start, outdir: Path, run: RunDirectory, kills: int, oracle: Oracle
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    for _ in range(kills):
        before = [0, *run.checkpoint_steps()][-1]
        step = start(*train(outdir))
        step.wait_for_text("training 40 epochs")
        time.sleep(generator.uniform(0, 0.3))
        step.kill()
        step.end()
        assert [0, *run.checkpoint_steps()][-1] >= before
        status = read_status(run.status / "train.json")
        assert status is not None
        if status.state == "succeeded":
            break
        assert status.state == "running"
    step = start(*train(outdir))
    assert step.end() == 0, step.text
    assert products(run) == oracle
    assert len(run.checkpoint_steps()) == 2


def test_snapshots_change_nothing_in_a_training(
    start: Start, tmp_path: Path, oracle: Oracle
) -> None:
    run = prepare(start, tmp_path / "x", evaluations=0)
    assert start(*train(tmp_path / "x")).end() == 0
    assert products(run) == (*oracle[:3], {})
    assert len({Path(name).parent for name in oracle[3]}) == EVALUATIONS


@pytest.mark.slow
def test_killed_at_random_moments(start: Start, tmp_path: Path, oracle: Oracle) -> None:
    kill_at_random(start, tmp_path / "x", prepare(start, tmp_path / "x"), 3, oracle)


@pytest.mark.slow
@pytest.mark.soak
def test_killed_at_forty_random_moments(start: Start, tmp_path: Path, oracle: Oracle) -> None:
    for trial in range(5):
        outdir = tmp_path / f"x{trial}"
        kill_at_random(start, outdir, prepare(start, outdir), 8, oracle)


@pytest.mark.parametrize("signals", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_sigterm_saves_the_epoch_under_way_and_loses_nothing(
    start: Start, tmp_path: Path, oracle: Oracle, signals: int
) -> None:
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"))
    step.wait_for(run.checkpoint_steps)
    asked = time.monotonic()
    for number in range(signals):
        step.kill(signal.SIGTERM)
        if number < signals - 1:
            time.sleep(0.03)
    assert step.end() == 75, step.text
    assert time.monotonic() - asked < 10
    status = read_status(run.status / "train.json")
    assert status is not None and (status.state, status.exit_code) == ("preempted", 75)
    newest = run.checkpoint_steps()[-1]
    assert status.reason == f"preempted at step {newest}, continues from {newest}"
    assert status.reason in (run.logs / "train.log").read_text()
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert f"from step {newest}" in again.text
    assert products(run) == oracle


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        pytest.param("mid_save:2:checkpoints", marks=pytest.mark.slow),
        "before_rename:2:checkpoints",
        pytest.param("after_rename:2:checkpoints", marks=pytest.mark.slow),
    ],
)
def test_case_5_three_sigterms_during_a_save(
    start: Start, tmp_path: Path, oracle: Oracle, place: str
) -> None:
    """The save is finished: what is visible is whole, and the training goes on from it."""
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": f"{place}:SIGTERM"})
    assert step.end() == 75, step.text
    status = read_status(run.status / "train.json")
    assert status is not None and status.state == "preempted"
    assert run.checkpoint_steps(), "the save that the signals came into is there"
    assert not [path for path in run.checkpoints.iterdir() if path.name.endswith(".tmp")]
    newest = run.checkpoint_steps()[-1]
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert f"from step {newest}" in again.text and products(run) == oracle


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        ("mid_row:6:train.csv", "torn row"),
        ("mid_save:2:checkpoints", "temporary"),
        pytest.param("before_rename:3:checkpoints", "temporary", marks=pytest.mark.slow),
        ("after_rename:3:checkpoints", "three checkpoints"),
        ("before_rename:2:snapshots", "nothing"),
        pytest.param("after_rename:3:snapshots", "nothing", marks=pytest.mark.slow),
        pytest.param(  # the last one: nothing is left to train
            "after_rename:14:checkpoints", "three checkpoints", marks=pytest.mark.slow
        ),
    ],
)
def test_killed_at_a_chosen_place(
    start: Start, tmp_path: Path, oracle: Oracle, fault: str, left: str
) -> None:
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": fault})
    assert step.end() == -signal.SIGKILL, step.text
    torn = not run.train_csv.read_bytes().endswith(b"\n")
    temporaries = (
        [path for path in run.checkpoints.iterdir() if path.name.endswith(".tmp")]
        if run.checkpoints.exists()
        else []
    )
    assert (torn, bool(temporaries), len(run.checkpoint_steps()) == 3) == (
        left == "torn row",
        left == "temporary",
        left == "three checkpoints",
    )
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert products(run) == oracle
    assert not [path for path in run.checkpoints.iterdir() if path.name.endswith(".tmp")]
    assert len(run.checkpoint_steps()) == 2


def test_damaged_newest_checkpoint_costs_one_interval(
    start: Start, tmp_path: Path, oracle: Oracle
) -> None:
    run = prepare(start, tmp_path / "x")
    assert start(*train(tmp_path / "x")).end() == 0
    newest = run.checkpoint(run.checkpoint_steps()[-1]) / "tensors.safetensors"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert "damaged checkpoints skipped" in again.text
    assert str(newest.parent) in again.text
    assert products(run) == oracle


@pytest.mark.slow
def test_a1_rows_that_are_not_those_before_the_checkpoint(
    start: Start, tmp_path: Path, oracle: Oracle
) -> None:
    """As an attempt that was shut out might leave it: a checkpoint, and rows that do not belong to
    it."""
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"))
    step.wait_for(lambda: len(run.checkpoint_steps()) == 2)
    step.kill()
    step.end()
    older, newer = (
        json.loads((run.checkpoint(step) / "state.json").read_bytes())["record"]["files"][
            "train.csv"
        ]["bytes"]
        for step in run.checkpoint_steps()[-2:]
    )
    content = bytearray(run.train_csv.read_bytes())
    content[(older + newer) // 2] ^= 1
    run.train_csv.write_bytes(content)
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert "train.csv does not begin with the" in again.text
    assert products(run) == oracle


@pytest.mark.slow
def test_all_checkpoints_damaged(start: Start, tmp_path: Path) -> None:
    run = prepare(start, tmp_path / "x", epochs=6)
    assert start(*train(tmp_path / "x")).end() == 0
    for step in run.checkpoint_steps():
        (run.checkpoint(step) / "manifest.json").write_text("{}")
    again = start(*train(tmp_path / "x"))
    assert again.end() == 4, again.text
    assert f"delete {run.root} to start this run again" in again.text
    assert len(run.checkpoint_steps()) == 2


@pytest.mark.slow
def test_full_disk_while_saving(start: Start, tmp_path: Path, oracle: Oracle) -> None:
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"))
    step.wait_for(lambda: len(run.checkpoint_steps()) == 2)
    step.kill(signal.SIGTERM)
    assert step.end() == 75, step.text
    before = snapshot(run.checkpoints)
    full = start(*train(tmp_path / "x"), file_size=20_000)
    assert full.end() == 1, full.text
    assert "bytes needed" in full.text
    assert "bytes free" in full.text
    assert snapshot(run.checkpoints) == before, "old checkpoints untouched, the temporary removed"
    status = read_status(run.status / "train.json")
    assert status is not None and (status.state, status.exit_code) == ("failed", 1)
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert products(run) == oracle


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(path: Path) -> None:
    """Let a file take what is left of its disk, which the training writes to meanwhile."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.slow
def test_full_disk_on_train_csv(
    start: Start, tmp_path: Path, oracle: Oracle, small_disk: Path
) -> None:
    prepare(start, tmp_path / "x")
    run = ExperimentDirectory(shutil.copytree(tmp_path / "x", small_disk / "x")).run(0)
    ballast = small_disk / "ballast"
    step = start(*train(small_disk / "x"))
    step.wait_for(run.checkpoint_steps)
    fill(ballast)
    assert step.end() == 1, step.text
    assert "no space for" in step.text
    assert "bytes needed, 0 bytes free" in step.text
    assert "Traceback" not in step.text
    ballast.unlink()
    again = start(*train(small_disk / "x"))
    assert again.end() == 0, again.text
    assert products(run) == oracle


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exit", "interrupt", "hard", "thread"])
def test_an_environment_that_ends_the_process_makes_no_success(
    start: Start, tmp_path: Path, way: str
) -> None:
    run = prepare(start, tmp_path / "x", game="tests.fault.breaking:Leaves")
    step = start(*train(tmp_path / "x"), {"LEAVES": way})
    assert step.end() == 1, step.text
    assert "ended" in step.text.splitlines()[-1]
    status = read_status(run.status / "train.json")
    assert status is not None and status.state == "failed" and status.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "vectorisation"),
    [
        ("thread", "sync"), ("process", "sync"), ("child", "sync"),
        pytest.param("thread", "async", marks=pytest.mark.soak), pytest.param("child", "async", marks=pytest.mark.soak),
    ],
)  # fmt: skip
def test_what_an_environment_leaves_behind_keeps_no_step_alive(
    start: Start, tmp_path: Path, left: str, vectorisation: str
) -> None:
    """`prepare` tries the environment, and `train` and `evaluate` use it."""
    environment = {"LEFT": left}
    game = "tests.fault.breaking:LeavesBehind"
    arguments = assignments(tmp_path / "x", game=game, vectorisation=vectorisation, epochs=4)
    for name, argv in (
        ("prepare", arguments),
        ("train", train(tmp_path / "x")[1]),
        ("evaluate", train(tmp_path / "x")[1]),
    ):
        step = start(f"steps.{name}", argv, environment)
        assert step.end(timeout_s=60) == 0, step.text
        if name == "train" and vectorisation == "sync" and left != "process":
            assert "ended without waiting for" in step.text
            assert {"thread": "thread viewer", "child": "simulator"}[left] in step.text


@pytest.mark.slow
def test_same_step_twice_without_progress(start: Start, tmp_path: Path) -> None:
    run = prepare(start, tmp_path / "x", game="tests.fault.breaking:BreaksAtStep50")
    first = start(*train(tmp_path / "x"))
    assert first.end() == 1, first.text
    assert "RuntimeError: the game broke" in first.text
    step = start(*train(tmp_path / "x"))
    step.kill()
    assert step.end() == -signal.SIGKILL
    second = start(*train(tmp_path / "x"))
    assert second.end() == 3, second.text
    assert "Traceback" in second.text
    status = read_status(run.status / "train.json")
    assert status is not None and status.reason is not None
    assert re.search(
        r"no progress: step \d+ was reached twice from step 0: EnvironmentFailed: step\(\) of game "
        r"'.*' failed in step 10 of an episode: RuntimeError: the game broke",
        status.reason,
    )
    third = start(*train(tmp_path / "x"))
    assert third.end() == 1, "a person asked again after exit 3: one more honest try"


@pytest.mark.slow
def test_preemptions_in_a_row_are_no_lack_of_progress(start: Start, tmp_path: Path) -> None:
    run = prepare(start, tmp_path / "x", epochs=100_000, checkpoint_interval=100_000)
    for _ in range(3):
        step = start(*train(tmp_path / "x"))
        step.wait_for_text(" of 100000, step")
        step.kill(signal.SIGTERM)
        assert step.end() == 75, step.text
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": "mid_row:3:train.csv"})
    assert step.end() == -signal.SIGKILL, step.text
    status = read_status(run.status / "train.json")
    assert status is not None
    assert status.details["guard"]["began"] is True
    counted = status.details["guard"] | {
        "kills": KILLS - 1,
        "killed_at": int(read_rows(run.train_csv)[-1]["step"]),
    }
    write_status(
        run.status / "train.json", replace(status, details=status.details | {"guard": counted})
    )
    refused = start(*train(tmp_path / "x"))
    assert refused.end() == 3, refused.text
    assert f"killed {KILLS} times" in refused.text
    assert "bytes of memory" in refused.text


def python(
    module: str, *arguments: str, options: tuple[str, ...] = (), **environment: str
) -> subprocess.Popen[str]:
    """A step as a pod starts it."""
    return subprocess.Popen(
        [sys.executable, *options, "-m", module, *arguments],
        cwd=ROOT,
        env=outside(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_sigterm_during_the_start(start: Start, tmp_path: Path) -> None:
    run = prepare(start, tmp_path / "x")
    process = python("steps.train", "--outdir", str(tmp_path / "x"), "--run", "0")
    until((run.status / "train.json").exists, process)
    for _ in range(3):
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(0.05)
    while process.poll() is None:  # more of them, until the very end
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(0.001)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75, out + err
    assert not run.checkpoints.exists()
    assert not run.train_csv.exists()


@pytest.mark.slow
def test_sigterm_during_a_replay(start: Start, tmp_path: Path) -> None:
    """4 environments in endless episodes: with 5 ms a step, their replay takes longer than anyone
    waits for an answer."""
    run = prepare(start, tmp_path / "x", game="tests.fault.breaking:Endless", epochs=1000)
    first = start(*train(tmp_path / "x"))
    first.wait_for(lambda: [0, *run.checkpoint_steps()][-1] >= 10_000)
    first.kill(signal.SIGTERM)
    assert first.end() == 75, first.text
    newest = run.checkpoint_steps()[-1]
    second = start(*train(tmp_path / "x"), {"PAUSE_S": "0.005"})
    second.wait_for_text(f"replaying the episodes in flight: {newest // 4} steps in the longest")
    second.kill(signal.SIGTERM)
    assert second.end() == 75, second.text
    assert f"preempted at step {newest}, continues from {newest}" in second.text
    assert "ended in the middle" not in second.text and "replayed" not in second.text
    assert run.checkpoint_steps()[-1] == newest
    third = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": "mid_save:1:checkpoints"})
    assert third.end() == -signal.SIGKILL, third.text
    # A kill may keep the end of the log from standard output, never from the log itself.
    log = (run.logs / "train.log").read_text()
    assert re.search(rf"replayed {newest // 4} steps of 4 environments in \d+\.\d s", log)


def test_finished_training_repeats_at_once(start: Start, tmp_path: Path) -> None:
    run = prepare(start, tmp_path / "x", epochs=6)
    assert start(*train(tmp_path / "x")).end() == 0
    before = snapshot(tmp_path / "x")
    process = python(
        "steps.train",
        "--outdir",
        str(tmp_path / "x"),
        "--run",
        "0",
        options=("-X", "importtime"),
        OUTPUTS=str(tmp_path / "outputs"),
    )
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    imported = {
        line.rpartition("|")[2].strip()
        for line in err.splitlines()
        if line.startswith("import time:")
    }
    assert not imported & {"torch", "numpy", "pandas", "gymnasium", "matplotlib"}
    assert snapshot(tmp_path / "x") == before
    assert (tmp_path / "outputs" / "evaluate").read_text() == "true"
    assert "nothing to do" in out
    assert run.train_csv.exists()
