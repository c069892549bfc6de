"""Whole studies on this machine with the real steps, each training the smallest there is: equal to the
experiments alone, continued, grown, stopped, and beside another workflow."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from steps.directory import processes
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.owner import Owner, claim
from tests.outside import ROOT, outside
from tests.study_runs import CELLS, DQN, PPO, TINY
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow
STUDY = "results/tiny"
SLOW = """\
outdir: results/slow
runs: 1
parallel_experiments: 1
algorithms: [{ppo: {epochs: 150, num_envs: 2, rollout_length: 32, minibatches: 2, update_epochs: 1}}]
games: ['tests.lab_environments:Slow']
grid: {learning_rate: [0.001, 0.0003]}
parameters: {evaluation_episodes: 1, video_episodes: 0, checkpoint_interval: 20, log_interval: 2}
"""
"""Two trainings of half a minute, whatever the machine, one after the other."""
FIRST, SECOND = (f"ppo-tests-lab-environments-slow-{value}" for value in ("0p001", "0p0003"))
AGAINST_ITSELF = f"""\
outdir: results/decided
runs: {{group: 2, most: 4}}
algorithms: [{PPO}, {PPO[:-1]}, label: twin}}]
games: [cartpole]
parameters: {{evaluation_episodes: 1, video_episodes: 0}}
compare: {{baseline: ppo}}
"""
SMALL = (
    "-pgame=cartpole", "-pruns=1", "-pepochs=2", "-pnum_envs=2", "-prollout_length=32",
    "-pminibatches=2", "-pupdate_epochs=1", "-pevaluation_episodes=1", "-pvideo_episodes=0",
)  # fmt: skip
FURTHER = f"""\
outdir: results/further
runs: 1
algorithms: [{PPO}]
games: [cartpole]
parameters: {{evaluation_episodes: 1, video_episodes: 0, start_from: results/first}}
"""
EVERY_TOPOLOGY = """\
outdir: results/all
runs: 1
algorithms:
  - {ppo: {epochs: 2, num_envs: 2, rollout_length: 32, minibatches: 2, update_epochs: 1}}
  - {impala: {epochs: 2, epoch_updates: 2, batch_size: 2, unroll_length: 8, envs_per_actor: 2, actors: 1}}
  - {alphazero: {epochs: 2, workers: 1, games_per_worker: 4, blocks: 0, channels: 4, simulations: 4,
                 cheap_simulations: 2, generation_positions: 60, learning_starts: 30, batch_size: 16,
                 window: 200}}
games: [cartpole, tic-tac-toe]
exclude:
  - {algorithm: ppo, game: tic-tac-toe}
  - {algorithm: impala, game: tic-tac-toe}
  - {algorithm: alphazero, game: cartpole}
parameters: {evaluation_episodes: 2, video_episodes: 0}
"""


class Folder:
    """Where a person works, with the study's file."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.write(text)

    def write(self, text: str) -> None:
        (self.path / "study.yaml").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-u", "-m", "workflows.submit", *arguments, "--local"]
        return subprocess.Popen(
            command,
            cwd=self.path,
            env=outside() | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, *arguments: str) -> tuple[int, list[str]]:
        """Exit code and lines."""
        with self.start(*arguments) as process:
            out, error = process.communicate(timeout=PATIENCE_S)
        assert error == "", error
        return process.returncode, out.splitlines()

    def alone(self, study: str, cell: str, outdir: str) -> tuple[int, list[str]]:
        """The experiment of a cell, submitted without the study."""
        cells = json.loads((self.path / study / "cells.json").read_text())
        (found,) = (one for one in cells if one["name"] == cell)
        given = {**found["given"], "outdir": outdir}
        told = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
        return self.submit(found["algorithm"], *told)

    def experiment(self, cell: str, study: str = STUDY) -> ExperimentDirectory:
        return ExperimentDirectory(self.path / study / "experiments" / cell)


def learnt(experiment: ExperimentDirectory) -> dict[str, bytes]:
    """What the trainings and evaluations have left: tables and the newest weights."""
    found = {}
    for run in sorted((experiment.root / "runs").iterdir()):
        newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
        for path in (run / "train.csv", run / "evaluation.csv", newest / "tensors.safetensors"):
            found[f"{run.name}/{newest.name}/{path.name}"] = path.read_bytes()
    return found


def times(experiment: ExperimentDirectory) -> dict[str, int]:
    """When the files of the runs were written."""
    files = (path for path in (experiment.root / "runs").rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, list[str], dict[str, int]]:
    """A study that ended well, what was printed, and the times of an experiment that was there before."""
    folder = Folder(tmp_path_factory.mktemp("study"), TINY)
    before = f"{STUDY}/experiments/dqn-cartpole"
    words = ["dqn", "-pgame=cartpole", "-pruns=2", "-pepochs=1", "-plearning_starts=100"]
    words += ["-pevaluation_episodes=1", "-pvideo_episodes=0", f"-poutdir={before}"]
    code, lines = folder.submit(*words)
    assert code == 0, lines
    earlier = times(folder.experiment("dqn-cartpole"))
    code, lines = folder.submit("study.yaml")
    assert code == 0, "\n".join(lines)
    return folder, lines, earlier


Finished = tuple[Folder, list[str], dict[str, int]]


def test_a_whole_study(finished: Finished) -> None:
    folder, lines, _ = finished
    assert lines[0] == f"Running study of 4 experiments, 8 runs on this machine; results in {STUDY}"
    said = {line.split("  ", 1)[1] for line in lines if line[2:3] == ":"}
    assert {"plan started", "experiment ppo-cartpole  run 0  train started"} <= said
    (ended,) = (index for index, line in enumerate(lines) if line.startswith("Succeeded in "))
    evaluated = [line.partition("; evaluation: ") for line in lines[ended + 1 : -1]]
    assert [one[0] for one in evaluated] == [f"{STUDY}/experiments/{name}" for name in CELLS]
    assert all(one[2].endswith(", n = 2 of 2") for one in evaluated)
    assert lines[-1] == f"Report: {STUDY}/report.html"
    for name in CELLS:
        directory = folder.experiment(name)
        assert "<h2>Complete</h2>" in directory.report_html.read_text()
        assert json.loads(directory.owner_json.read_text())["released"]
    assert sorted(one.name for one in (folder.path / STUDY / "experiments").iterdir()) == sorted(
        CELLS
    )
    page = (folder.path / STUDY / "report.html").read_text()
    assert all(f'href="experiments/{name}/report.html"' in page for name in CELLS)
    assert (folder.path / STUDY / "comparison" / "plots" / "standings.pdf").is_file()


def test_an_experiment_that_was_there_is_taken_as_it_is(finished: Finished) -> None:
    folder, _, earlier = finished
    assert times(folder.experiment("dqn-cartpole")) == earlier


def test_an_experiment_is_what_it_would_be_alone(finished: Finished) -> None:
    folder, _, _ = finished
    code, lines = folder.alone(STUDY, "ppo-acrobot", "alone")
    assert code == 0, lines
    alone, within = ExperimentDirectory(folder.path / "alone"), folder.experiment("ppo-acrobot")
    assert learnt(alone) == learnt(within)
    assert len(learnt(alone)) == 6
    one, other = read_experiment(alone), read_experiment(within)
    assert (one.identity, one.identity_hash) == (other.identity, other.identity_hash)


def test_a_study_grows(finished: Finished) -> None:
    """Submitted again with one more game: only that is trained, and the rest says so."""
    folder, _, _ = finished
    before = {name: times(folder.experiment(name)) for name in CELLS}
    folder.write(TINY.replace("acrobot]", "acrobot, mountaincar]"))
    code, lines = folder.submit("study.yaml")
    assert code == 0, "\n".join(lines)
    assert {name: times(folder.experiment(name)) for name in CELLS} == before
    new = [folder.experiment(f"{one}-mountaincar") for one in ("ppo", "dqn")]
    assert [len(learnt(one)) for one in new] == [6, 6]
    assert "study of 6 experiments, 12 runs" in lines[0]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """What the study with slow trainings leaves if nothing happens to it."""
    folder = Folder(tmp_path_factory.mktemp("uninterrupted"), SLOW)
    code, lines = folder.submit("study.yaml")
    assert code == 0, "\n".join(lines)
    return {name: learnt(folder.experiment(name, "results/slow")) for name in (FIRST, SECOND)}


def assert_stopped(folder: Folder, lines: list[str]) -> None:
    """In the first experiment, of which there is a report; the second was not begun."""
    first, second = (folder.experiment(name, "results/slow") for name in (FIRST, SECOND))
    page = first.report_html.read_text()
    assert "<h2>Complete</h2>" not in page
    assert json.loads(first.owner_json.read_text())["released"]
    assert not second.root.exists()
    assert any(line.startswith("Stopped after ") for line in lines), lines
    assert any(line.startswith("stopped: ") for line in lines), lines


def assert_continued(folder: Folder, expected: dict[str, dict[str, bytes]]) -> None:
    """The same again ends with the bytes of a study to which nothing has happened."""
    code, lines = folder.submit("study.yaml")
    assert code == 0, "\n".join(lines)
    found = {name: learnt(folder.experiment(name, "results/slow")) for name in expected}
    assert found == expected


def wait_until_it_trains(folder: Folder, process: subprocess.Popen[str]) -> None:
    """Until the first training of the slow study has written rows."""
    until(folder.experiment(FIRST, "results/slow").run(0).train_csv.exists, process)


def test_a_stop_in_the_middle_of_a_study(
    tmp_path: Path, uninterrupted: dict[str, dict[str, bytes]]
) -> None:
    folder = Folder(tmp_path, SLOW)
    with folder.start("study.yaml") as process:
        wait_until_it_trains(folder, process)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, error) == (130, "")
    assert_stopped(folder, out.splitlines())
    assert_continued(folder, uninterrupted)


@pytest.mark.soak
def test_a_deadline_in_the_middle_of_a_study(
    tmp_path: Path, uninterrupted: dict[str, dict[str, bytes]]
) -> None:
    folder = Folder(tmp_path, SLOW)
    code, lines = folder.submit("study.yaml", "--deadline", "25")
    assert code == 1
    assert_stopped(folder, lines)
    assert_continued(folder, uninterrupted)


@pytest.mark.soak
def test_a_smaller_study_submitted_beside_takes_nothing_from_the_one_that_runs(
    tmp_path: Path, uninterrupted: dict[str, dict[str, bytes]]
) -> None:
    """The page is that of the newest file, and says what is there besides."""
    folder = Folder(tmp_path, SLOW)
    with folder.start("study.yaml") as process:
        wait_until_it_trains(folder, process)
        folder.write(SLOW.replace("[0.001, 0.0003]", "[0.01]").replace("epochs: 150", "epochs: 20"))
        code, lines = folder.submit("study.yaml")
        assert code == 0, "\n".join(lines)
        page = folder.path / "results/slow/report.html"
        assert "not in the study's file and not compared" in unescape(page.read_text())
        out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, error) == (0, ""), out
    found = {name: learnt(folder.experiment(name, "results/slow")) for name in uninterrupted}
    assert found == uninterrupted
    besides = f"2 experiments, not in the study's file and not compared: {SECOND}, {FIRST}"
    assert besides in unescape(page.read_text())


@contextlib.contextmanager
def another_workflow() -> Iterator[str]:
    """The identity of a process that runs for as long as this lasts."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield processes.identity(process.pid)
        process.communicate(b"\n")


@pytest.mark.soak
def test_an_experiment_of_a_running_workflow_is_named_and_not_touched(tmp_path: Path) -> None:
    folder = Folder(tmp_path, TINY.replace(f", {DQN}", "").replace("runs: 2", "runs: 1"))
    owned = folder.experiment("ppo-acrobot")
    owned.root.mkdir(parents=True)
    with another_workflow() as process:
        claim(owned.owner_json, Owner(uid="other", workflow="of-somebody", process=process))
        before = {path: path.read_bytes() for path in owned.root.rglob("*")}
        code, lines = folder.submit("study.yaml")
        assert {path: path.read_bytes() for path in owned.root.rglob("*")} == before
    assert code == 1
    text = "\n".join(lines)
    assert "experiment ppo-acrobot prepare failed: " in text
    assert "belongs to workflow of-somebody (uid other" in text
    assert len(learnt(folder.experiment("ppo-cartpole"))) == 3
    assert "<h2>Complete</h2>" in folder.experiment("ppo-cartpole").report_html.read_text()
    code, lines = folder.submit("study.yaml")
    assert code == 0, "the other one has ended"
    assert len(learnt(owned)) == 3


@pytest.mark.soak
def test_experiments_start_from_a_directory_that_the_person_names(tmp_path: Path) -> None:
    """Relative to where the person is, as the same experiment alone, with the same bytes."""
    folder = Folder(tmp_path / "it's: #1", FURTHER)
    code, lines = folder.submit("ppo", *SMALL, "-poutdir=results/first")
    assert code == 0, lines
    code, lines = folder.submit("study.yaml")
    assert code == 0, "\n".join(lines)
    code, lines = folder.submit(
        "ppo", *SMALL, "-pstart_from=results/first", "-poutdir=results/alone"
    )
    assert code == 0, lines
    within = folder.experiment("ppo-cartpole", "results/further")
    alone = ExperimentDirectory(folder.path / "results/alone")
    assert learnt(within) == learnt(alone)
    assert learnt(within) != learnt(ExperimentDirectory(folder.path / "results/first"))
    assert read_experiment(within).identity_hash == read_experiment(alone).identity_hash


@pytest.mark.soak
def test_algorithms_of_every_topology_in_one_study(tmp_path: Path) -> None:
    folder = Folder(tmp_path, EVERY_TOPOLOGY)
    code, lines = folder.submit("study.yaml")
    assert code == 0, "\n".join(lines)
    for name in ("ppo-cartpole", "impala-cartpole", "alphazero-tic-tac-toe"):
        directory = folder.experiment(name, "results/all")
        assert "<h2>Complete</h2>" in directory.report_html.read_text()
    said = {line.split("  ", 1)[1] for line in lines if line[2:3] == ":"}
    assert "experiment impala-cartpole  run 0  train started" in said


@pytest.mark.soak
def test_runs_are_added_until_it_is_decided(tmp_path: Path) -> None:
    """Two labels with the same settings are never told apart: they get as many runs as there may be,
    and the first ones are those of the first round."""
    folder = Folder(tmp_path, AGAINST_ITSELF)
    code, lines = folder.submit("study.yaml")
    assert code == 0, lines
    outdir = tmp_path / "results/decided"
    (known,) = json.loads((outdir / "decisions.json").read_text())
    assert known == {
        "cell": "twin-cartpole",
        "baseline": "ppo-cartpole",
        "decision": "equal",
        "runs": 4,
    }
    for cell in ("ppo-cartpole", "twin-cartpole"):
        record = read_experiment(folder.experiment(cell, "results/decided"))
        assert record.resolved.experiment.runs == 4
        assert "n = 4 of 4" in "".join(lines)
    trained = [line for line in lines if "train started" in line]
    assert len(trained) == 2 * (2 + 4), "those of the first round have nothing to do in the second"
    assert "How many runs it took" in (outdir / "report.html").read_text()
