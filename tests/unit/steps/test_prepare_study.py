"""`prepare --study`: the experiment of a directory is what the study's list says about its name."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from config.study import Cell, read_study
from steps import prepare
from steps.directory import network_storage
from steps.directory.experiment import read_experiment
from steps.directory.study import StudyDirectory, write_cells
from tests.outside import OF_A_WORKFLOW

Capture = pytest.CaptureFixture[str]
STUDY = """\
outdir: x
runs: 2
algorithms: [ppo, {dqn: {replay_size: 5000}, label: small}]
games: [cartpole, {acrobot: {evaluation_episodes: 7}}]
parameters: {seed: 3}
grid: {learning_rate: [0.001, 0.0003]}
"""
MOUNTED = "22 1 0:30 / {path} rw shared:1 - nfs4 server:/export rw\n"


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_A_WORKFLOW:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def directory(tmp_path: Path) -> StudyDirectory:
    """A study as `plan` leaves it."""
    study = StudyDirectory(tmp_path / "study")
    study.root.mkdir()
    write_cells(study, cells())
    return study


def cells() -> tuple[Cell, ...]:
    return read_study(STUDY, "study.yaml").cells


def prepared(study: StudyDirectory, name: str, *more: str) -> int:
    """The exit code of the cell's `prepare`, called as its pod calls it."""
    values = [f"outdir={study.experiment(name).root}", "claim=storage"]
    told = [word for value in values for word in ("-p", value)]
    defaults = ["--default", "training_memory=4Gi", "--default", "cpu_image=rl:1-cpu"]
    return prepare.main(["--study", f"--call=wf.{name}.prepare", *told, *defaults, *more])


def refused(code: int, capsys: Capture, study: StudyDirectory, name: str, *words: str) -> None:
    before = sorted(study.root.rglob("*"))
    assert prepared(study, name) == code
    line = capsys.readouterr().err
    assert line.startswith("prepare: ") and line.count("\n") == 1, line
    for word in words:
        assert word in line
    assert sorted(study.root.rglob("*")) == before


def test_the_parameters_of_the_cell_are_used(directory: StudyDirectory) -> None:
    assert prepared(directory, "small-acrobot-0p0003") == 0
    found = read_experiment(directory.experiment("small-acrobot-0p0003")).resolved
    assert (found.algorithm, found.game.name) == ("dqn", "acrobot")
    assert (found.experiment.runs, found.experiment.seed) == (2, 3)
    assert found.experiment.evaluation_episodes == 7
    assert found.hyperparameters.learning_rate == 0.0003
    assert found.hyperparameters.replay_size == 5000
    assert found.experiment.cpu_image == "rl:1-cpu", "what the workflow gives for all"


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_the_identity_is_that_of_the_experiment_alone(
    cell: Cell, directory: StudyDirectory, tmp_path: Path
) -> None:
    assert prepared(directory, cell.name) == 0
    alone = [f"-p{name}={value}" for name, value in cell.given.items()]
    outdir = tmp_path / "alone"
    assert prepare.main([f"--algorithm={cell.algorithm}", f"-poutdir={outdir}", *alone]) == 0
    one = read_experiment(directory.experiment(cell.name))
    other = read_experiment(type(directory.experiment(cell.name))(outdir))
    assert one.identity == other.identity
    assert one.identity_hash == other.identity_hash


def test_what_a_cell_says_about_pods_wins_over_the_workflow(directory: StudyDirectory) -> None:
    study = STUDY.replace("seed: 3", "seed: 3, cpu_image: 'own:2'")
    write_cells(directory, read_study(study, "study.yaml").cells)
    assert prepared(directory, "ppo-cartpole-0p001") == 0
    found = read_experiment(directory.experiment("ppo-cartpole-0p001")).resolved
    assert found.experiment.cpu_image == "own:2"


def test_a_directory_that_is_no_cell_is_one_line(
    directory: StudyDirectory, capsys: Capture
) -> None:
    refused(2, capsys, directory, "ppo-cartpole-0p01", "has no experiment 'ppo-cartpole-0p01'")


def test_a_directory_of_no_study_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    alone = StudyDirectory(tmp_path)
    refused(2, capsys, alone, "ppo-cartpole-0p001", f"no file {alone.cells_json}: plan makes it")


@pytest.mark.parametrize(
    "damage",
    [
        "", "{", "null", "{}x", "[1]", '["ppo"]', "[{}]", '{"name": "ppo"}', "[" * 100_000,
        '[{"name": "a", "label": "a", "algorithm": "ppo", "game": "cartpole", "given": [], "settings": {}}]',
        '[{"name": "a", "label": "a", "algorithm": "ppo", "game": "cartpole", "given": {}}]',
    ],
)  # fmt: skip
def test_a_damaged_list_is_one_line(
    damage: str, directory: StudyDirectory, capsys: Capture
) -> None:
    directory.cells_json.write_text(damage)
    refused(4, capsys, directory, "a", f"{directory.cells_json} cannot be read")


def test_a_parameter_that_cannot_be_is_refused_also_there(
    directory: StudyDirectory, capsys: Capture
) -> None:
    """Somebody has edited the list."""
    listed = json.loads(directory.cells_json.read_text())
    listed[0]["given"]["rnus"] = "3"
    directory.cells_json.write_text(json.dumps(listed))
    refused(2, capsys, directory, listed[0]["name"], "unknown parameter 'rnus'")


def test_the_list_may_be_late_on_a_network_file_system(
    directory: StudyDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Seen by another node than the one where `plan` has written it."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTED.format(path=tmp_path))
    monkeypatch.setattr(network_storage, "MOUNTS", mounts)
    monkeypatch.setattr(network_storage, "NETWORK_LAG_S", 20.0)
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1")
    hidden = tmp_path / "hidden"
    shutil.move(directory.cells_json, hidden)
    appears = threading.Timer(0.3, shutil.move, (hidden, directory.cells_json))
    appears.start()
    assert prepared(directory, "ppo-cartpole-0p001") == 0, capsys.readouterr().err
    appears.join()
    assert "waiting up to 20 s for what plan has written" in capsys.readouterr().out
