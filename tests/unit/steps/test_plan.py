"""`plan`: a study is checked as a whole before anything is written, and its experiments are listed by
topology.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from config import pipeline
from config.algorithms.descriptor import ACTOR_LEARNER, SELF_PLAY, SINGLE
from steps import plan, prepare
from steps.directory.study import MOST_PODS, StudyDirectory, read_cells
from tests.outside import OF_A_WORKFLOW

Capture = pytest.CaptureFixture[str]
STUDY = "outdir: results/gae\nruns: 2\nalgorithms: [ppo, dqn]\ngames: [cartpole, acrobot]\n"
EVERY_TOPOLOGY = """\
outdir: x
runs: 1
algorithms: [ppo, impala, alphazero]
games: [cartpole, tic-tac-toe]
exclude: [{algorithm: ppo, game: tic-tac-toe}, {algorithm: impala, game: tic-tac-toe}, {algorithm: alphazero, game: cartpole}]
"""
STRANGER = """\
import gymnasium
import numpy as np


class Careless(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float("nan"), True, False, {}
"""


@pytest.fixture(autouse=True)
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a workflow mounts; outputs lie beside it."""
    for name in OF_A_WORKFLOW:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORAGE", str(tmp_path / "storage"))
    monkeypatch.setenv("OUTPUTS", str(tmp_path / "outputs"))
    (tmp_path / "storage").mkdir()
    return tmp_path / "storage"


def in_workflow(storage: Path, **changed: str) -> list[str]:
    """The arguments of its pod."""
    values = {"study": STUDY, "outdir": f"{storage}/gae", "part": "1/1", "claim": "storage"}
    listed = [{"name": name, "value": value} for name, value in (values | changed).items()]
    return [f"--outdir={storage}/gae", f"--workflow-parameters={json.dumps(listed)}"]


def refused(capsys: Capture, *words: str, argv: list[str]) -> str:
    before = files()
    assert plan.main(argv) == 2
    line = capsys.readouterr().err
    assert line.startswith("plan: ") and line.count("\n") == 1, line
    for word in words:
        assert word in line
    assert files() == before
    return line


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*") if "__pycache__" not in path.parts)


def outputs() -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in Path("outputs").iterdir()}


WRONG: list[tuple[dict[str, str], list[str]]] = [
    ({"study": ""}, ["parameter 'study' is empty", '-p study="$(cat …)"']),
    ({"study": "{"}, ["study"]),
    ({"study": STUDY.replace("dqn", "dqm")}, ["study: line 3", "did you mean 'dqn'"]),
    ({"rnus": "3"}, ["unknown parameter 'rnus'", "below `parameters`"]),
    ({"parameters": "[]"}, ["unknown parameter 'parameters'"]),
    ({"outdir": ""}, ["parameter 'outdir' is empty"]),
    ({"outdir": "/storage/../etc"}, ["parameter 'outdir'", "without '..'"]),
    ({"outdir": "/elsewhere/gae"}, ["parameter 'outdir'", "a directory below"]),
    ({"part": "0/2"}, ["parameter 'part' cannot be '0/2'", "k ≤ n"]),
    ({"part": "3/2"}, ["parameter 'part' cannot be '3/2'"]),
    ({"part": "1"}, ["parameter 'part' cannot be '1'"]),
    ({"part": ""}, ["parameter 'part' cannot be ''"]),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "words"), WRONG)
def test_a_wrong_parameter_of_the_workflow_is_one_line(
    changed: dict[str, str], words: list[str], storage: Path, capsys: Capture
) -> None:
    refused(capsys, *words, argv=in_workflow(storage, **changed))


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '[{"name": "study"}]'])
def test_parameters_that_are_no_list_of_texts_are_one_line(text: str, capsys: Capture) -> None:
    refused(capsys, argv=["--outdir=/storage/x", f"--workflow-parameters={text}"])


def test_a_workflow_without_the_parameter_outdir(capsys: Capture) -> None:
    """The study's own is for people: a pod sees other paths."""
    listed = json.dumps([{"name": "study", "value": STUDY}])
    refused(capsys, "'outdir' is empty", argv=["--outdir=", f"--workflow-parameters={listed}"])


@pytest.mark.parametrize("name", ["missing.yaml", "storage"])
def test_a_file_that_cannot_be_read_is_one_line(name: str, capsys: Capture) -> None:
    refused(capsys, f"{name} cannot be read", argv=[name])


def test_too_many_pods_are_refused_with_their_number(storage: Path, capsys: Capture) -> None:
    """Four experiments of 256 runs with five pods, and four pods around the runs."""
    study = STUDY.replace("runs: 2", "runs: 256")
    argv = in_workflow(storage, study=study)
    refused(capsys, f"{4 * (256 * 5 + 4)} pods", f"room for {MOST_PODS}", "part=1/2", argv=argv)
    assert plan.main(in_workflow(storage, study=study, part="1/2")) == 0


@pytest.mark.parametrize(
    ("algorithms", "games", "name"),
    [
        ("ppo, sac", "cartpole", "sac-cartpole"),
        ("ppo, alphazero", "cartpole", "alphazero-cartpole"),
    ],
)
def test_a_game_that_its_algorithm_cannot_play_names_the_cell(
    algorithms: str, games: str, name: str, storage: Path, capsys: Capture
) -> None:
    study = f"runs: 1\noutdir: x\nalgorithms: [{algorithms}]\ngames: [{games}]\n"
    refused(capsys, f"cell '{name}'", "cartpole", argv=in_workflow(storage, study=study))


def test_an_environment_of_a_stranger_that_breaks_a_promise_names_the_cell(
    storage: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("careless_lab.py").write_text(STRANGER)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.syspath_prepend(Path.cwd())
    study = "runs: 1\noutdir: x\nalgorithms: [ppo]\ngames: [cartpole, 'careless_lab:Careless']\n"
    words = ["experiment ppo-careless-lab-careless: ", "breaks a promise, rewards are finite"]
    refused(capsys, *words, argv=in_workflow(storage, study=study))


def test_a_stranger_s_environment_is_tried_once_with_each_algorithm(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial is a process of its own, and takes seconds."""
    tried: list[tuple[str, str]] = []
    monkeypatch.setattr(
        prepare, "check_game", lambda one: tried.append((one.algorithm, one.game.name))
    )
    grid = "grid: {learning_rate: [0.001, 0.0003], discount: [0.9, 0.99]}\n"
    Path("careless_lab.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(Path.cwd())
    study = STUDY.replace("cartpole, acrobot", "'careless_lab:Careless'") + grid
    assert plan.main(in_workflow(storage, study=study)) == 0
    assert tried == [("ppo", "careless_lab:Careless"), ("dqn", "careless_lab:Careless")]


def test_what_only_one_of_two_experiments_with_a_game_asks_for_is_seen(
    storage: Path, capsys: Capture
) -> None:
    """Here an opponent that does not exist; the game itself has been tried with the first."""
    study = (
        "runs: 1\noutdir: x\ngames: [tic-tac-toe]\n"
        "algorithms: [alphazero, {alphazero: {opponents: 'no_such_module:player'}, label: other}]\n"
    )
    words = ["experiment other-tic-tac-toe: ", "no_such_module"]
    refused(capsys, *words, argv=in_workflow(storage, study=study))


def test_a_directory_with_another_experiment_is_named(storage: Path, capsys: Capture) -> None:
    """Plain `argo submit` has no other check before pods train."""
    directory = storage / "gae/experiments/dqn-cartpole"
    words = ["--algorithm=dqn", "-pgame=cartpole", "-pruns=1", f"-poutdir={directory}"]
    assert prepare.main([*words, "-pseed=1"]) == 0
    capsys.readouterr()
    words = ["experiment dqn-cartpole: ", "experiment.seed: 1 in the directory, 0 now"]
    refused(capsys, *words, argv=in_workflow(storage))
    assert plan.main(in_workflow(storage, study=STUDY + "parameters: {seed: 1}\n")) == 0
    (directory / "experiment.yaml").write_text("{")
    study = STUDY + "parameters: {seed: 1}\n"
    refused(capsys, "experiment dqn-cartpole: ", argv=in_workflow(storage, study=study))


def test_what_an_experiment_starts_from_must_be_there(storage: Path, capsys: Capture) -> None:
    study = STUDY.replace("[ppo", f"[{{ppo: {{start_from: {storage}/none}}}}")
    words = ["experiment ppo-cartpole: parameter 'start_from' cannot be", "it holds no experiment"]
    refused(capsys, *words, argv=in_workflow(storage, study=study))


def test_the_outputs_list_the_experiments_by_topology(storage: Path, capsys: Capture) -> None:
    assert plan.main(in_workflow(storage, study=EVERY_TOPOLOGY)) == 0, capsys.readouterr().err
    assert outputs() == {
        pipeline.EXPERIMENTS[SINGLE]: ["ppo-cartpole"],
        pipeline.EXPERIMENTS[ACTOR_LEARNER]: ["impala-cartpole"],
        pipeline.EXPERIMENTS[SELF_PLAY]: ["alphazero-tic-tac-toe"],
        pipeline.AGAIN: False,
    }
    assert plan.main(in_workflow(storage)) == 0
    names = ["ppo-cartpole", "ppo-acrobot", "dqn-cartpole", "dqn-acrobot"]
    assert outputs() == {
        "experiments": names, "experiments-with-actors": [], "experiments-with-workers": [],
        "again": False,
    }  # fmt: skip


def test_what_is_written_says_what_each_experiment_is(storage: Path) -> None:
    assert plan.main(in_workflow(storage)) == 0
    cells = read_cells(StudyDirectory(storage / "gae"))
    assert [(one.name, one.algorithm, one.game) for one in cells] == [
        (f"{algorithm}-{game}", algorithm, game)
        for algorithm in ("ppo", "dqn")
        for game in ("cartpole", "acrobot")
    ]
    assert cells[0].given == {"game": "cartpole", "runs": "2"}


def test_the_same_again_changes_no_file_and_has_the_same_outputs(storage: Path) -> None:
    assert plan.main(in_workflow(storage)) == 0
    before = {path: path.stat().st_mtime_ns for path in storage.rglob("*") if path.is_file()}
    said = outputs()
    assert {path.name for path in before} == {"study.yaml", "cells.json"}
    assert plan.main(in_workflow(storage)) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert outputs() == said


def test_the_parts_together_are_the_study(storage: Path) -> None:
    """Each knows all cells, and any of them may be the first."""
    assert plan.main(in_workflow(storage)) == 0
    whole = outputs()["experiments"]
    written = (storage / "gae" / "cells.json").read_bytes()
    parts = []
    for part in ("2/3", "1/3", "3/3"):
        assert plan.main(in_workflow(storage, part=part)) == 0
        parts += outputs()["experiments"]
    assert sorted(parts) == sorted(whole) and len(set(parts)) == len(whole) == 4
    assert (storage / "gae" / "cells.json").read_bytes() == written


def test_the_study_it_has_written_is_the_same_study(storage: Path) -> None:
    """By hand, from the file in the directory, into the directory that the file names."""
    assert plan.main(in_workflow(storage)) == 0
    written = {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()}
    assert plan.main([str(storage / "gae" / "study.yaml")]) == 0
    assert {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()} == written


def test_the_workflow_names_the_directory_of_a_study_that_names_none(storage: Path) -> None:
    study = STUDY.replace("outdir: results/gae\n", "")
    assert plan.main(in_workflow(storage, study=study)) == 0
    assert (storage / "gae" / "cells.json").is_file()


def test_fewer_experiments_take_none_from_a_workflow_that_has_begun(storage: Path) -> None:
    """Its later experiments still find what they are, with the parameters of the newest file."""
    assert plan.main(in_workflow(storage)) == 0
    before = read_cells(StudyDirectory(storage / "gae"))
    fewer = STUDY.replace("cartpole, acrobot", "acrobot").replace("runs: 2", "runs: 3")
    assert plan.main(in_workflow(storage, study=fewer)) == 0
    assert outputs()["experiments"] == ["ppo-acrobot", "dqn-acrobot"]
    after = {cell.name: cell for cell in read_cells(StudyDirectory(storage / "gae"))}
    assert list(after) == ["ppo-acrobot", "dqn-acrobot", "ppo-cartpole", "dqn-cartpole"]
    assert [cell for cell in after.values() if cell.game == "cartpole"] == [
        cell for cell in before if cell.game == "cartpole"
    ]
    assert after["ppo-acrobot"].given["runs"] == "3"
