"""A learner and two actors as real processes under the local engine: an actor is killed, then the
learner, and the experiment reaches its report as if nothing had been."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import Status, read_status
from steps.directory.tables import read_rows
from tests.fault.conftest import assert_counted
from tests.outside import ROOT, outside
from tests.waiting import PATIENCE_S, until

STRANGER = ROOT / "tests" / "stranger"
GIVEN = {
    "game": "cartpole", "runs": "1", "actors": "2", "epochs": "2400", "rollout_length": "32",
    "evaluation_episodes": "3", "envs_per_actor": "4",
}  # fmt: skip
CENTRAL = {
    "game": "cartpole", "runs": "1", "actors": "2", "epochs": "40", "envs_per_actor": "4",
    "evaluation_episodes": "3", "inference": "learner", "checkpoint_interval": "4",
    "batch_size": "16",
}  # fmt: skip


def start(
    outdir: Path, algorithm: str = "my_lab.crowd:ALGORITHM", given: Mapping[str, str] = GIVEN
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "workflows.submit", algorithm, "--local"]
    assigned = (f"-p={name}={value}" for name, value in {**given, "outdir": str(outdir)}.items())
    return subprocess.Popen(
        [*command, *assigned], cwd=STRANGER, env=outside(), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def status_of(run: RunDirectory, name: str) -> Status:
    found = read_status(run.status / f"{name}.json")
    assert found is not None, name
    return found


def has_joined(run: RunDirectory, actor: int) -> bool:
    found = read_status(run.status / f"train-actor-{actor}.json")
    return found is not None and bool(found.details.get("joined"))


def kill(run: RunDirectory, name: str) -> None:
    os.kill(int(status_of(run, name).process.split(":")[1]), signal.SIGKILL)


def end_group(process: subprocess.Popen[str]) -> None:
    """Whatever is left of an experiment that did not come to its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_actor_and_a_killed_learner_are_replaced(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = ExperimentDirectory(tmp_path / "crowd")
    run = directory.run(0)
    process = start(directory.root)
    request.addfinalizer(lambda: end_group(process))
    until(lambda: all(has_joined(run, actor) for actor in (0, 1)), process)
    kill(run, "train-actor-1")
    until(lambda: status_of(run, "train-actor-1").attempt == 2, process)
    until(lambda: bool(run.checkpoint_steps()), process)
    assert run.learner_json.stat().st_mode & 0o777 == 0o600
    kill(run, "train")
    until(lambda: status_of(run, "train").attempt == 2, process)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output

    learner, killed, other = (
        status_of(run, name) for name in ("train", "train-actor-1", "train-actor-0")
    )
    assert [one.state for one in (learner, killed, other)] == ["succeeded"] * 3
    assert (learner.attempt, killed.attempt, other.attempt) == (2, 2, 1)
    log = (run.logs / "train.log").read_text()
    assert "learner 1 waits for 2 actors" in log and "learner 2 waits for 2 actors" in log
    steps = [int(row["step"]) for row in read_rows(run.train_csv)]
    assert len(steps) == 2400
    assert_counted(steps, 128)
    assert len(read_rows(run.root / "evaluation.csv")) == 3
    assert not run.learner_json.exists()
    assert {path.name for path in run.root.glob("resources*.csv")} == {
        "resources.csv", "resources-actor-0.csv", "resources-actor-1.csv",
    }  # fmt: skip
    page = directory.report_html.read_text(encoding="utf-8")
    assert "2 of 2 actors joined" in page and "1 was started again, once" in page


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_a_learner_that_acts_outlives_an_actor_and_its_successor_acts_for_both(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = ExperimentDirectory(tmp_path / "central")
    run = directory.run(0)
    process = start(directory.root, "impala", CENTRAL)
    request.addfinalizer(lambda: end_group(process))
    until(lambda: all(has_joined(run, actor) for actor in (0, 1)), process)
    until(lambda: has_rows(run, more_than=0), process)
    kill(run, "train-actor-1")
    before = len(read_rows(run.train_csv))
    until(lambda: has_rows(run, more_than=before + 1), process)  # which the other one brought
    until(lambda: status_of(run, "train-actor-1").attempt == 2, process)
    until(lambda: bool(run.checkpoint_steps()), process)
    kill(run, "train")
    until(lambda: status_of(run, "train").attempt == 2, process)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output

    learner, killed, other = (
        status_of(run, name) for name in ("train", "train-actor-1", "train-actor-0")
    )
    assert [one.state for one in (learner, killed, other)] == ["succeeded"] * 3
    assert (learner.attempt, killed.attempt, other.attempt) == (2, 2, 1)
    steps = [int(row["step"]) for row in read_rows(run.train_csv)]
    assert len(steps) == 40
    assert_counted(steps, 3200)
    assert "2 of 2 actors joined" in directory.report_html.read_text(encoding="utf-8")


def by_hand(
    module: str, *arguments: str, python_path: str = f"{ROOT}:{STRANGER}"
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"steps.{module}", *arguments], cwd=STRANGER,
        env=outside(PYTHONPATH=python_path), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def prepared(
    directory: ExperimentDirectory,
    given: Mapping[str, str],
    algorithm: str = "my_lab.crowd:ALGORITHM",
) -> tuple[RunDirectory, tuple[str, ...]]:
    """Its only run, and which one it is for the steps that are called by hand."""
    outdir = str(directory.root)
    assigned = (f"-p={name}={value}" for name, value in {**given, "outdir": outdir}.items())
    process = by_hand("prepare", f"--algorithm={algorithm}", *assigned)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    return directory.run(0), ("--outdir", outdir, "--run", "0")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_by_hand_a_stop_ends_both_with_75_and_the_same_commands_go_on(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = ExperimentDirectory(tmp_path / "crowd")
    given = {**GIVEN, "epochs": "4000", "no_data_timeout": "900"}
    run, one = prepared(directory, given)

    def both() -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
        """The actor finds the learner whose address it is given, in the place of the one it wrote."""
        learner = by_hand("train", *one, "--role", "learner")
        request.addfinalizer(learner.kill)
        until(lambda: run.learner_json.exists(), learner)
        port = json.loads(run.learner_json.read_text())["port"]
        where = ("--learner", f"127.0.0.1:{port}")
        actor = by_hand("train", *one, "--role", "actor", "--member", "0", *where)
        request.addfinalizer(actor.kill)
        until(lambda: has_rows(run, more_than=rows), learner)
        return learner, actor

    rows = 0
    learner, actor = both()
    actor.terminate()
    output, _ = actor.communicate(timeout=PATIENCE_S)
    assert actor.returncode == 75, output
    assert status_of(run, "train-actor-0").state == "preempted"
    assert "preempted, joins again when it is started again" in output
    learner.terminate()  # which has nothing to learn from now
    output, _ = learner.communicate(timeout=PATIENCE_S)
    assert learner.returncode == 75, output
    stopped = status_of(run, "train")
    assert stopped.state == "preempted" and not run.learner_json.exists()
    assert re.fullmatch(r"preempted at step (\d+), continues from \1", str(stopped.reason))

    rows = len(read_rows(run.train_csv))
    for ended in both():
        ended.terminate()
        ended.communicate(timeout=PATIENCE_S)
        assert ended.returncode == 75
    steps = [int(row["step"]) for row in read_rows(run.train_csv)]
    assert_counted(steps, 128)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_a_learner_without_experience_keeps_what_it_has_learnt(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = ExperimentDirectory(tmp_path / "crowd")
    rare = {"epochs": "4000", "checkpoint_interval": "4000"}
    given = {**GIVEN, **rare, "no_data_timeout": "30"}
    run, one = prepared(directory, given)
    learner = by_hand("train", *one, "--role", "learner")
    request.addfinalizer(learner.kill)
    until(lambda: run.learner_json.exists(), learner)
    actor = by_hand("train", *one, "--role", "actor", "--member", "0")
    request.addfinalizer(actor.kill)
    until(lambda: has_rows(run, more_than=0), learner)
    actor.kill()
    actor.communicate(timeout=PATIENCE_S)
    output, _ = learner.communicate(timeout=PATIENCE_S)
    assert learner.returncode == 75, output
    trained = 128 * len(read_rows(run.train_csv))
    assert f"actors are not connected; continues from step {trained}" in output
    assert run.checkpoint_steps() == [trained]


def has_rows(run: RunDirectory, more_than: int) -> bool:
    return run.train_csv.exists() and len(read_rows(run.train_csv)) > more_than
