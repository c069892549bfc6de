"""A study from Python: frames against the files that `compare` wrote."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from config.errors import BadInput, WrongDirectory
from steps import average, compare
from steps.comparison.stored_comparison import write_comparison
from steps.results import Results, Study
from tests import synthetic
from tests.synthetic_entries import compared, entry, run
from tests.synthetic_studies import GRID, planned, trained


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "comparison" / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    made = [
        entry("PPO", "cartpole", (400.0, None, 420.0), runs=(run("seed 7", 500.0),)),
        entry("A2C", "cartpole", (300.0,)),
        entry("A2C", "Unknown-v3", (7.0, 8.0)),
        entry("DQN", "cartpole", (None,)),
    ]
    write_comparison(compared(*made), folder)
    return folder


def test_scores(directory: Path) -> None:
    frame = Study(directory).scores
    assert list(frame) == ["label", "game", "run", "score", "normalised"]
    assert frame["score"].dtype == frame["normalised"].dtype == np.float64
    of_ppo = frame[frame["label"] == "PPO"]
    assert of_ppo["run"].tolist() == ["0", "2", "seed 7"]
    assert of_ppo["score"].tolist() == [400, 420, 500]
    assert of_ppo["normalised"].tolist() == [0.8, 0.84, 1]
    assert frame[frame["game"] == "Unknown-v3"]["normalised"].isna().all() and len(frame) == 6


@pytest.mark.parametrize("name", ["standings", "curves"])
def test_tables_are_what_the_files_say(directory: Path, name: str) -> None:
    frame: pd.DataFrame = getattr(Study(directory), name)
    written = table(directory, f"{name}.csv")
    assert list(frame) == list(written[0]) and len(frame) == len(written)
    for column in frame:
        texts = [row[str(column)] for row in written]
        if frame[column].dtype in (np.int64, np.float64):
            expected = [float(text) if text else math.nan for text in texts]
            np.testing.assert_array_equal(frame[column], expected)
        else:
            assert frame[column].tolist() == texts
    assert frame["n"].dtype == np.int64


def test_types_do_not_depend_on_rows(tmp_path: Path, directory: Path) -> None:
    write_comparison(compared(), tmp_path)
    for name in ("scores", "standings", "curves"):
        empty, full = getattr(Study(tmp_path), name), getattr(Study(directory), name)
        assert list(empty.dtypes) == list(full.dtypes) and len(empty) == 0


def test_experiments_are_results(tmp_path: Path, directory: Path) -> None:
    study = planned(tmp_path, GRID)
    trained(study, 2, ("complete", "complete"))
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = Study(tmp_path)
    assert list(found.experiments) == ["ppo-cartpole-0p0003", "ppo-cartpole-0p001"]
    (first, _) = found.experiments.values()
    assert first.record.resolved.game.name == "cartpole" and len(first.summary) == 2
    assert found.scores["score"].tolist() == [
        value for one in found.experiments.values() for value in one.summary["return_mean"]
    ]
    assert Study(directory).experiments == {}, "of a comparison of other directories"


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no directory .*nowhere: plan makes it"):
        Study(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"comparison\.json: compare makes it"):
        _ = Study(tmp_path).scores
    assert repr(Study(tmp_path)) == f"Study({str(tmp_path)!r})"


def test_resources_are_what_the_files_say(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete", "absent", "failed"), epochs=20)
    frame = Results(tmp_path).resources
    for index in (0, 2):
        with made.run(index).resources_csv.open() as file:
            written = list(csv.DictReader(file))
        read = frame[frame["run"] == index]
        assert list(read)[2:] == list(written[0]) and len(read) == len(written)
        assert read["wall_s"].tolist() == [float(row["wall_s"]) for row in written]
        assert read["gpu_percent"].isna().all()
    assert frame["step"].dtype == np.int64 and frame["memory_bytes"].dtype == np.float64
    assert frame.groupby("run")["usable"].all().to_dict() == {0: True, 2: False}


def test_averages_are_what_the_file_says(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete",) * 3, epochs=20)
    with pytest.raises(BadInput, match=r"average/train\.csv: average makes it"):
        _ = Results(tmp_path).averages
    assert average.main([f"--outdir={tmp_path}"]) == 0
    frame = Results(tmp_path).averages
    with (made.average / "train.csv").open() as file:
        written = list(csv.DictReader(file))
    assert list(frame) == list(written[0])
    assert frame["n"].dtype == frame["step"].dtype == np.int64 and set(frame["n"]) == {3}
    assert frame["mean"].tolist() == [float(row["mean"]) for row in written]
    assert frame["iqm"].isna().all(), "three runs allow no interquartile mean"
    (made.average / "train.csv").write_text("step,n\n1,x\n")
    with pytest.raises(WrongDirectory, match="is no table"):
        _ = Results(tmp_path).averages
