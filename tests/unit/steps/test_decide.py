"""`steps.decide`: which experiments of a study get more runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.study import read_study
from steps import decide, plan
from steps.directory.study import StudyDirectory, read_cells

STUDY = """
outdir: x
runs: {group: 5, most: 15, error: 0.1}
algorithms: [ppo, a2c, dqn]
games: [cartpole, acrobot]
compare: {baseline: ppo}
"""
Scores = Callable[[str, int], list[float]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTPUTS", str(tmp_path / "outputs"))
    (tmp_path / "outputs").mkdir()
    return tmp_path


def begin(folder: Path, text: str = STUDY) -> StudyDirectory:
    (folder / "study.yaml").write_text(text)
    words = [str(folder / "study.yaml"), "--outdir", str(folder / "x")]
    assert plan.main(words) == 0
    return StudyDirectory(folder / "x")


def output(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in (folder / "outputs").iterdir()}


def with_scores(monkeypatch: pytest.MonkeyPatch, scores: Scores) -> None:
    """scores: those of a cell's group of runs."""

    def groups(directory: StudyDirectory, cell: Any, size: int) -> list[np.ndarray]:
        count = int(cell.given["runs"]) // size
        return [np.array(scores(cell.name, group), np.float64) for group in range(count)]

    monkeypatch.setattr(decide, "groups", groups)


def runs(directory: StudyDirectory) -> dict[str, str]:
    return {cell.name: cell.given["runs"] for cell in read_cells(directory)}


def test_what_is_undecided_and_its_baseline_get_another_group(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a2c is far above ppo on CartPole, dqn like it; on Acrobot nobody differs."""
    directory = begin(folder)
    assert output(folder)["again"] is True
    with_scores(
        monkeypatch,
        lambda name, group: [100.0 * (name == "a2c-cartpole") + one for one in range(5)],
    )
    words = ["--outdir", str(directory.root)]
    assert decide.main(words) == 0
    grown = {"ppo-cartpole", "dqn-cartpole", "ppo-acrobot", "a2c-acrobot", "dqn-acrobot"}
    assert set(output(folder)["experiments"]) == grown
    assert runs(directory) == {
        name: "10" if name in grown else "5" for name in (*grown, "a2c-cartpole")
    }
    known = {
        one["cell"]: one["decision"] for one in json.loads(directory.decisions_json.read_text())
    }
    assert known["a2c-cartpole"] == "larger"
    assert known["dqn-cartpole"] == known["a2c-acrobot"] == "undecided"
    assert decide.main(words) == 0 and output(folder)["again"] is True
    assert decide.main(words) == 0
    assert output(folder) == {
        "again": False,
        "experiments": [],
        "experiments-with-actors": [],
        "experiments-with-workers": [],
    }
    known = {
        one["cell"]: one["decision"] for one in json.loads(directory.decisions_json.read_text())
    }
    assert known["dqn-cartpole"] == "equal" and known["a2c-cartpole"] == "larger"


def test_a_study_that_is_submitted_again_keeps_the_runs_it_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = begin(folder)
    with_scores(monkeypatch, lambda name, group: [0.0, 1.0, 2.0, 3.0, 4.0])
    assert decide.main(["--outdir", str(directory.root)]) == 0
    assert set(runs(directory).values()) == {"10"}
    begin(folder)
    assert set(runs(directory).values()) == {"10"}


def test_a_grid_s_values_have_a_baseline_of_their_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = begin(folder, STUDY + "grid: {discount: [0.9, 0.99]}\n")
    with_scores(
        monkeypatch, lambda name, group: [100.0 * ("0p99" in name) + one for one in range(5)]
    )
    assert decide.main(["--outdir", str(directory.root)]) == 0
    for one in json.loads(directory.decisions_json.read_text()):
        assert one["cell"].rpartition("-")[2] == one["baseline"].rpartition("-")[2]
        assert one["decision"] == "undecided"


def test_all_are_compared_with_the_experiment_that_the_study_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also its own label with other values of the grid, one family a game."""
    named = STUDY.replace("baseline: ppo", "baseline: ppo-acrobot-0p9")
    directory = begin(folder, named + "grid: {discount: [0.9, 0.99]}\n")
    with_scores(monkeypatch, lambda name, group: [0.0, 1.0, 2.0, 3.0, 4.0])
    assert decide.main(["--outdir", str(directory.root)]) == 0
    found = json.loads(directory.decisions_json.read_text())
    others = [
        f"{label}-{game}-{value}"
        for game in ("acrobot", "cartpole")
        for label in ("ppo", "a2c", "dqn")
        for value in ("0p9", "0p99")
        if (label, value) != ("ppo", "0p9")
    ]
    assert [(one["cell"], one["baseline"]) for one in found] == [
        (name, f"ppo-{name.split('-')[1]}-0p9") for name in others
    ]


def test_runs_that_failed_leave_smaller_groups(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an experiment without any: it is never decided, and ends with `most` runs."""
    directory = begin(folder)
    with_scores(monkeypatch, lambda name, group: [] if name == "a2c-acrobot" else [1.0, 2.0, 3.0])
    for _ in range(3):
        assert decide.main(["--outdir", str(directory.root)]) == 0
    assert output(folder)["again"] is False


def test_a_fixed_number_of_runs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed = STUDY.replace("{group: 5, most: 15, error: 0.1}", "5")
    directory = begin(folder, fixed)
    assert isinstance(read_study(fixed, "x").runs, int)
    assert decide.main(["--outdir", str(directory.root)]) == 2
    assert "fixed number of runs" in capsys.readouterr().err


def test_experiments_that_only_an_earlier_file_asked_for_get_no_more_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(folder)
    directory = begin(folder, STUDY.replace(", dqn]", "]"))
    with_scores(monkeypatch, lambda name, group: [0.0, 1.0, 2.0, 3.0, 4.0])
    assert decide.main(["--outdir", str(directory.root)]) == 0
    expected = {
        f"{label}-{game}": "5" if label == "dqn" else "10"
        for label in ("ppo", "a2c", "dqn")
        for game in ("cartpole", "acrobot")
    }
    assert runs(directory) == expected
    assert not [name for name in output(folder)["experiments"] if "dqn" in name]
