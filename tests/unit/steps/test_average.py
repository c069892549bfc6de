"""The averages over experiment directories as the steps leave them: every number of runs, every
kind of broken file."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from config.errors import WrongDirectory
from config.measures import RETURN
from steps import average, plot_average
from steps.directory.files import write_atomically
from steps.directory.status import read_status
from steps.directory.tables import format_table, read_columns
from steps.directory.usable import usability
from tests import synthetic

HEADER = ("epoch", "step", "frame", "episodes", "return_mean")


def run_average(directory) -> dict:
    assert average.main([f"--outdir={directory.root}"]) == 0
    return json.loads((directory.average / "summary.json").read_text())


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def training(directory, index: int, points: list[tuple[int, float | None]]) -> None:
    table = [
        {"epoch": i, "step": step, "frame": step, "episodes": 1, "return_mean": value}
        for i, (step, value) in enumerate(points)
    ]
    write_atomically(directory.run(index).train_csv, format_table(HEADER, table))


@pytest.mark.parametrize("runs", [1, 2, 4, 5, 9, 10])
def test_every_number_of_runs_follows_the_rule(runs, tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",) * runs)
    summary = run_average(directory)
    evaluation, first = summary["evaluation"], rows(directory.average / "train.csv")[0]
    assert (summary["planned"], summary["used"], evaluation["n"], first["n"]) == (
        runs,
        list(range(runs)),
        runs,
        str(runs),
    )
    assert (evaluation["t_interval"] is not None) == (first["low"] != "") == (runs >= 2)
    assert (evaluation["iqm_interval"] is not None) == (first["iqm_low"] != "") == (runs >= 5)
    assert evaluation["remark"] == (
        "n = 1, no interval"
        if runs == 1
        else "bootstrap interval slightly too narrow at this n"
        if 5 <= runs <= 9
        else None
    )
    if runs in (1, 5):
        assert plot_average.main([f"--outdir={tmp_path}"]) == 0
        assert sorted(path.stem for path in (directory.average / "plots").glob("*.svg")) == [
            "evaluation",
            "losses",
            "resources",
            "training",
            "training-hours",
        ]


def test_no_usable_run_is_said_and_not_drawn(tmp_path):
    directory = synthetic.experiment(tmp_path, ("failed", "paused", "unfinished", "absent"))
    summary = run_average(directory)
    assert summary["used"] == []
    assert [one["state"] for one in summary["excluded"]] == [
        "failed",
        "paused",
        "unfinished",
        "unfinished",
    ]
    assert summary["evaluation"]["mean"] is None
    assert rows(directory.average / "train.csv") == []
    assert plot_average.main([f"--outdir={tmp_path}"]) == 0
    status = read_status(directory.status / "plot-average.json")
    assert status is not None
    assert (status.state, status.reason) == ("skipped", "no usable run to draw")
    assert not (directory.average / "plots").exists()


def test_excluded_runs_keep_their_row_with_the_reason(tmp_path):
    directory = synthetic.experiment(
        tmp_path, ("complete", "failed", "complete", "unfinished"), min_runs=2
    )
    summary = run_average(directory)
    table = rows(directory.average / "evaluation.csv")
    assert summary["used"] == [0, 2]
    assert [row["status"] for row in table] == ["complete", "failed", "complete", "unfinished"]
    assert "non-finite loss at epoch 58" in table[1]["reason"]
    assert (table[1]["return_mean"], table[1]["auc"], table[1]["episodes"]) == ("", "", "0")


def test_the_mean_is_that_of_the_runs_and_not_of_the_episodes(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "complete"), evaluation_episodes=4)
    synthetic.evaluated(directory.run(0), [10, 10, 10, 10])
    synthetic.evaluated(directory.run(1), [90, 110, 90, 110])
    evaluation = run_average(directory)["evaluation"]
    assert evaluation["mean"] == 55
    assert evaluation["standard_error"] == pytest.approx(45)
    assert evaluation["sd"] == pytest.approx(math.sqrt(2) * 45)
    assert evaluation["t_interval"] == pytest.approx([55 - 12.7062047 * 45, 55 + 12.7062047 * 45])


def test_runs_of_different_length_share_the_shorter_range(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "complete"))
    training(directory, 0, [(step, 1 - math.exp(-step / 3e5)) for step in range(0, 500_001, 1000)])
    training(
        directory, 1, [(step, 1 - math.exp(-step / 3e5)) for step in range(0, 1_000_001, 1000)]
    )
    summary = run_average(directory)
    curve = read_columns(directory.average / "train.csv")
    assert (summary["training"]["first_step"], summary["training"]["last_step"]) == (0, 500_000)
    held = np.floor(curve["step"] / 1000) * 1000
    assert np.abs(curve["mean"] - (1 - np.exp(-held / 3e5))).max() < 1e-12
    assert curve["sd"].max() < 1e-12
    areas = [float(row["auc"]) for row in rows(directory.average / "evaluation.csv")]
    assert areas[0] == areas[1] == pytest.approx(1 - (1 - math.exp(-5 / 3)) * 3 / 5, abs=1e-5)


def test_broken_and_thin_tables(tmp_path):
    """An empty file, a line cut in the middle, one row, a row with NaN: no warning, no exception,
    and n is right."""
    directory = synthetic.experiment(tmp_path, ("complete",) * 5)
    write_atomically(directory.run(0).train_csv, "")
    training(directory, 1, [(100, 1.0), (200, 2.0), (300, 3.0)])
    with directory.run(1).train_csv.open("a") as file:
        file.write("9,400,400,1,9999")
    training(directory, 2, [(250, 5.0)])
    training(directory, 3, [(100, 1.0), (200, math.nan), (300, 1.0)])
    training(directory, 4, [(100, None), (200, None)])
    summary = run_average(directory)
    curve = read_columns(directory.average / "train.csv")
    assert summary["training"]["runs"] == [1, 2, 3], "a run in which no episode ended has no curve"
    assert (curve["step"].tolist(), curve["n"].tolist(), curve["mean"].tolist()) == (
        [250],
        [3],
        [(2 + 5 + 1) / 3],
    )
    assert summary["evaluation"]["n"] == 5
    assert plot_average.main([f"--outdir={tmp_path}"]) == 0


def test_runs_without_a_common_step_have_no_average(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "complete"))
    training(directory, 0, [(100, 1.0), (200, 2.0)])
    training(directory, 1, [(300, 1.0), (400, 2.0)])
    summary = run_average(directory)
    assert summary["training"]["grid_points"] == 0
    assert rows(directory.average / "train.csv") == []
    assert plot_average.main([f"--outdir={tmp_path}"]) == 0
    assert not (directory.average / "plots" / "training.png").exists()


def test_equal_runs_have_intervals_without_width(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",) * 6, evaluation_episodes=3)
    for index in range(6):
        training(directory, index, [(100, 5.0), (200, 5.0)])
        synthetic.evaluated(directory.run(index), [500.0] * 3)
    evaluation = run_average(directory)["evaluation"]
    assert evaluation["t_interval"] == evaluation["iqm_interval"] == [500, 500]
    assert plot_average.main([f"--outdir={tmp_path}"]) == 0


def test_runs_below_the_threshold_are_named_as_a_selection(tmp_path):
    directory = synthetic.experiment(
        tmp_path, ("complete", "skipped", "complete"), evaluate_above=470
    )
    summary = run_average(directory)
    assert summary["evaluation"]["sample"] == "runs above the threshold (2 of 3)"
    assert summary["evaluation"]["n"] == 2
    assert summary["training"]["runs"] == [0, 1, 2], "training statistics use all runs"
    assert "evaluate_above" in summary["skipped"][0]["reason"]


def test_a_half_written_evaluation_is_not_usable(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",))
    path = directory.run(0).evaluated(RETURN)
    path.write_bytes(path.read_bytes()[:-3])
    usable = usability(directory.run(0), synthetic.resolved_of(directory))
    assert (usable.state, usable.reason) == (
        "failed",
        "evaluation.csv has 19 of 20 episodes: evaluate makes it",
    )


@pytest.mark.parametrize(
    ("train", "evaluate", "reason"),
    [
        ({"epoch": 196, "step": 9}, {"step": 9, "policy": "greedy"}, None),
        ({"epoch": 100}, {}, "trained for 100 of 196 epochs"),
        ({"epoch": 196, "step": 9}, {"step": 5}, "evaluated at step 5, trained until step 9"),
        (
            {"epoch": 196, "step": 9},
            {"step": 9, "policy": "sample"},
            "evaluated with sample actions, evaluation_policy is greedy",
        ),
    ],
)
def test_results_of_a_shorter_training_or_another_evaluation_do_not_count(
    tmp_path, train, evaluate, reason
):
    """As they are found after the experiment was submitted again with more, until they are made
    again."""
    directory = synthetic.experiment(tmp_path, ("complete",))
    run = directory.run(0)
    for name, details in (("train", train), ("evaluate", evaluate)):
        synthetic.status(run.status / f"{name}.json", details=details)
    usable = usability(run, synthetic.resolved_of(directory))
    assert (usable.state, usable.reason) == ("unfinished" if reason else "complete", reason)


def test_the_same_files_give_the_same_bytes(tmp_path):
    contents = []
    for name in ("first", "second"):
        directory = synthetic.experiment(tmp_path / name, ("complete",) * 5, epochs=30)
        run_average(directory)
        assert plot_average.main([f"--outdir={directory.root}"]) == 0
        contents.append(
            {
                path.name: path.read_bytes()
                for path in directory.average.rglob("*")
                if path.is_file()
            }
        )
    assert contents[0] == contents[1]


def test_a_repeat_changes_nothing_and_new_numbers_do(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "complete"))
    run_average(directory)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    run_average(directory)
    assert {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()
    } == before
    synthetic.evaluated(directory.run(1), [1.0] * 20)
    assert run_average(directory)["evaluation"]["min"] == 1


def test_unfinished_runs_are_cut_at_their_checkpoint(tmp_path):
    from steps.directory.usable import training_columns

    directory = synthetic.experiment(tmp_path, ("unfinished",))
    run = directory.run(0)
    newest = run.checkpoint_steps()[-1]
    with run.train_csv.open("a") as file:
        file.write(
            run.train_csv.read_text().splitlines()[-1].replace(f",{newest}", ",99999999") + "\n"
        )
        file.write("197,99999998," + "," * 7 + "\n")
    assert training_columns(run, finished=False)["step"].max() <= newest
    assert training_columns(run, finished=True)["step"].max() > newest


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"used": [0], "evaluation": []}', "{", "[" * 5000]
)
def test_a_damaged_summary_is_named_and_made_again(content, tmp_path, capsys):
    directory = synthetic.experiment(tmp_path, ("complete",))
    run_average(directory)
    summary = directory.average / "summary.json"
    whole = summary.read_bytes()
    write_atomically(summary, content)
    capsys.readouterr()
    assert plot_average.main([f"--outdir={directory.root}"]) == WrongDirectory.exit_code
    printed = capsys.readouterr().err
    assert f"{summary} is damaged" in printed
    assert "delete it, and average makes it again" in printed
    assert "Traceback" not in printed
    summary.unlink()
    run_average(directory)
    assert summary.read_bytes() == whole
