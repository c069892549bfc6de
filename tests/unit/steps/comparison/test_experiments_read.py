"""Our own experiments and studies in a comparison: the same runs and reasons as in their averages."""

from __future__ import annotations

import csv
import importlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from config import pipeline
from config.errors import BadInput
from steps import average
from steps.comparison.readers import read
from steps.directory.cost import repeated_steps
from steps.directory.files import write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.status import read_status
from steps.directory.tables import format_table, read_columns
from tests import synthetic

STATES = (
    "complete", "failed", "paused", "unfinished", "absent", "skipped", "unevaluated", "complete"
)  # fmt: skip


def test_the_runs_are_those_of_the_averages(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, STATES, epochs=20, evaluate_above=480)
    (entry,) = read(str(tmp_path))
    assert average.main([f"--outdir={tmp_path}"]) == 0
    with (made.average / "evaluation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [one.score is not None for one in entry.runs] == [
        row["status"] == "complete" for row in rows
    ]
    for one, row in zip(entry.runs, rows, strict=True):
        assert one.name == row["run"] and one.steps == int(row["step"])
        assert one.episodes == int(row["episodes"])
        assert (one.score is None) == (row["return_mean"] == "")
        if one.score is not None:
            assert one.score == float(row["return_mean"]) and one.left_out == ""
        else:
            assert one.left_out == f"{row['status']}: {row['reason']}"
    assert entry.scores == [one.score for one in entry.used] and entry.used


def test_an_entry_says_what_the_experiment_is(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete",) * 2, epochs=20)
    resolved = synthetic.resolved_of(made)
    (entry,) = read(str(tmp_path))
    assert (entry.label, entry.game, entry.made_by) == ("ppo", "cartpole", "rl-training-dag")
    assert (entry.steps, entry.frames) == (resolved.total_steps, 1)
    assert entry.evaluation == "20 greedy episodes of the final policy" and not entry.in_training
    assert entry.page is None and entry.conditions == {} and entry.settings == {}
    made.report_html.write_text("<title>ppo</title>")
    (named,) = read(f"{tmp_path}:label=PPO (ours)")
    assert (named.label, named.page) == ("PPO (ours)", made.report_html)


def test_what_decides_an_atari_return_is_said(tmp_path: Path) -> None:
    synthetic.experiment(tmp_path, ("absent",), epochs=5, game="breakout", sticky_actions="0")
    (entry,) = read(str(tmp_path))
    assert (entry.frames, entry.evaluation) == (4, "20 sampled episodes of the final policy")
    assert entry.conditions == {
        "sticky_actions": "0",
        "full_action_set": "false",
        "noop_max": "30",
        "fire_after_life_loss": "true",
    }


def test_curves_are_those_of_the_files(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete", "unfinished"), epochs=20)
    run = made.run(0)
    columns = ("epoch", "step", "frame", "episodes", "return_mean")
    rows = [(0, 0, 0, 3, 20.0), (10, 2560, 2560, 3, 200.0), (20, 5120, 5120, 3, 490.0)]
    listed = [dict(zip(columns, row, strict=True)) for row in rows]
    write_atomically(run.evaluation_curve_csv, format_table(columns, listed))
    (entry,) = read(str(tmp_path))
    one, other = entry.runs
    table = read_columns(run.train_csv)
    ended = ~np.isnan(table["return_mean"])
    assert one.training.steps.tolist() == table["step"][ended].tolist()
    assert one.training.values.tolist() == table["return_mean"][ended].tolist()
    assert one.policy.steps.tolist() == [0, 2560, 5120]
    assert one.policy.values.tolist() == [20.0, 200.0, 490.0]
    # resources.csv of `synthetic`: 5600 steps in 2 s, of which the training makes 5120.
    assert one.times.steps.tolist() == np.round(one.training.steps / 5600 * 2000).tolist()
    assert other.training.steps[-1] <= 10 * 256, "only what a checkpoint covers"


def test_damaged_files_leave_runs_out(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete",) * 5, epochs=20)
    made.run(0).train_csv.write_bytes(b"\xff\xfe\x00")
    made.run(1).resources_csv.write_text("wall_s,step\nsoon,1\n")
    (made.run(2).root / "evaluation.csv").write_text("episode,seed,return,length\n0,1,inf,1\n")
    (made.run(3).status / "train.json").write_text("{")
    far = f"epoch,step,frame,episodes,return_mean\n1,{'9' * 400},1,1,5.0\n"
    made.run(4).evaluation_curve_csv.write_text(far)
    made.run(4).train_csv.write_text("step,return_mean\n1e30,5.0\n2,6.0\n")
    (entry,) = read(str(tmp_path))
    assert [bool(one.left_out) for one in entry.runs] == [False, False, True, True, False]
    assert "evaluation.csv has 1 of 20 episodes" in entry.runs[2].left_out
    assert len(entry.runs[0].training) == 0 and entry.runs[1].cost.gpu_h is None
    assert len(entry.runs[4].policy) == len(entry.runs[4].training) == 0


@pytest.mark.timeout(60)
def test_a_fifo_holds_nobody_up(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete",), epochs=20)
    for path in (
        made.run(0).train_csv,
        made.run(0).resources_csv,
        made.run(0).evaluation_curve_csv,
    ):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    (entry,) = read(str(tmp_path))
    assert len(entry.runs[0].training) == len(entry.runs[0].policy) == 0


def study(root: Path, **cells: dict[str, str]) -> Path:
    for name, given in cells.items():
        place = root / "experiments" / name.replace("_", "-")
        synthetic.experiment(place, ("complete",) * 2, epochs=20, **given)
    return root


def test_a_study_is_all_its_experiments(tmp_path: Path) -> None:
    study(
        tmp_path,
        ppo_cartpole={},
        ppo_acrobot={"game": "acrobot"},
        ppo_lambda_1_cartpole={"gae_lambda": "1"},
        ppo_lambda_1_acrobot={"game": "acrobot", "gae_lambda": "1"},
    )
    (tmp_path / "experiments" / "never-prepared").mkdir()
    found = {
        (entry.directory.name, entry.game): dict(entry.settings) for entry in read(str(tmp_path))
    }
    assert list(found) == [
        ("ppo-acrobot", "acrobot"),
        ("ppo-cartpole", "cartpole"),
        ("ppo-lambda-1-acrobot", "acrobot"),
        ("ppo-lambda-1-cartpole", "cartpole"),
    ]
    assert found["ppo-lambda-1-cartpole", "cartpole"] == {"gae_lambda": "1"}
    assert found["ppo-lambda-1-acrobot", "acrobot"] == {"gae_lambda": "1"}
    assert set(found["ppo-cartpole", "cartpole"]) == {"gae_lambda"}, (
        "what presets decide differently for each game is no setting of the study"
    )
    assert found["ppo-cartpole", "cartpole"] != {"gae_lambda": "1"}


def test_one_label_for_a_whole_study_is_refused(tmp_path: Path) -> None:
    study(tmp_path, a={}, b={"seed": "1"})
    with pytest.raises(BadInput, match="is a study with 2 experiments, which cannot all have"):
        read(f"{tmp_path}:label=PPO")
    assert all(entry.settings == {} for entry in read(str(tmp_path))), "a seed is no setting"


def test_a_damaged_experiment_is_named(tmp_path: Path) -> None:
    study(tmp_path, a={}, b={})
    record = tmp_path / "experiments" / "b" / "experiment.yaml"
    record.write_text("format: 1\n")
    with pytest.raises(BadInput, match=r"b/experiment\.yaml has no entry 'identity'"):
        read(str(tmp_path))


def test_code_that_came_with_a_study_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies beside the experiment that names it, and the study's folder is on Python's path."""
    study(tmp_path, a={})
    (tmp_path / "came_with_it.py").write_text("raise SystemExit('run')\n")
    record = tmp_path / "experiments" / "a" / "experiment.yaml"
    record.write_text(
        record.read_text().replace("algorithm: ppo", "algorithm: came_with_it:ALGORITHM")
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(BadInput, match="among the results, where it is never imported from"):
        read(str(tmp_path))
    assert "came_with_it" not in sys.modules


def resources(
    run: RunDirectory, name: str, rows: list[tuple[float, int, float, float | None]]
) -> None:
    columns = ("wall_s", "step", "cpu_percent", "gpu_percent")
    listed = [dict(zip(columns, row, strict=True)) for row in rows]
    write_atomically(run.root / name, format_table(columns, listed))


def test_cost_is_what_the_tables_have_measured(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete",) * 2, epochs=20)
    run = made.run(0)
    resources(
        run, "resources.csv", [(1800, 100, 100, 50), (3600, 200, 300, 70), (5400, 300, 0, None)]
    )
    resources(run, "resources-actor-0.csv", [(3600, 200, 50, None)])
    synthetic.status(run.status / "train-actor-0.json")
    (entry,) = read(str(tmp_path))
    cost = entry.runs[0].cost
    assert cost.processor_h == pytest.approx(0.5 * 1 + 0.5 * 3 + 1 * 0.5)
    assert cost.gpu_h == pytest.approx(1.0)
    assert (cost.preemptions, cost.repeated_h) == (0, 0)
    made.run(1).resources_csv.unlink()
    again = read(str(tmp_path))[0].runs[1].cost
    assert again.processor_h == pytest.approx(19.25 / 3600), "the duration in the status"
    assert again.gpu_h is None


LOG = """\
--- train of run 0, attempt 1, 2026-11-28T12:27:57+00:00, vm:32596
training 20 epochs from the start: cpu, fp32 (no usable GPU), 1 threads
epoch 3 of 20, step 768 of 5120, return -1370.8, 150.2 steps/s
--- train of run 0, attempt 2, 2026-11-28T12:28:18+00:00, vm:2183
the last attempt was killed at about step 1280; it had used 628404224 bytes of memory
training 20 epochs from step 512: cpu, fp32 (no usable GPU), 1 threads
epoch 8 of 20, step 2048 of 5120, return -1311.8
train of run 0: preempted at step 2304, continues from 2304
--- train of run 0, attempt 3, 2026-11-28T12:28:18+00:00, vm:2184
training 20 epochs from step 2304: cpu, fp32 (no usable GPU), 1 threads
epoch 20 of 20, step 5120 of 5120, return -1002.1, 344.0 steps/s
"""


def test_repeated_hours_are_those_of_the_steps_that_were_done_again(tmp_path: Path) -> None:
    assert repeated_steps(LOG.splitlines()) == 1280 - 512
    made = synthetic.experiment(tmp_path, ("complete",), epochs=20)
    run = made.run(0)
    resources(run, "resources.csv", [(3600, 2560, 100, None), (7200, 5120, 100, None)])
    write_atomically(run.logs / "train.log", LOG)
    status = read_status(run.status / f"{pipeline.TRAIN}.json")
    assert status is not None
    fields = json.loads((run.status / "train.json").read_text()) | {"attempt": 3}
    (run.status / "train.json").write_text(json.dumps(fields))
    cost = read(str(tmp_path))[0].runs[0].cost
    assert cost.preemptions == 2
    assert cost.repeated_h == pytest.approx(768 / 5120 * 2)
    shutil.rmtree(run.logs)
    assert read(str(tmp_path))[0].runs[0].cost.repeated_h is None
