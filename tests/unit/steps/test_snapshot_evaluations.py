"""Evaluations of the whole training: the curve of a run, its best snapshot, their averages, what is
read of them, and evaluations that are asked for too late."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from config.errors import BadInput
from config.measures import RETURN
from steps import average, evaluate, plot_average
from steps.directory import continuing, owner, processes
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.tables import format_table
from steps.evaluations.curve import Point, best_of, columns, read_best
from steps.policy import snapshot_step
from steps.results import Results
from steps.statistics.curves import against_time, curve, wall_ms
from tests import synthetic


def write_curve(run: RunDirectory, means: Sequence[float], late: int = 0) -> None:
    """A curve of these means after epochs 0, 10, …, its steps `late` too late."""
    rows = []
    for number, mean in enumerate(means):
        step = 2560 * number + late
        cells = (10 * number, step, step, 10, mean, 1.0, mean - 1, mean + 1, mean)
        rows.append(dict(zip(columns(RETURN), cells, strict=True)))
    write_atomically(run.evaluation_curve_csv, format_table(columns(RETURN), rows))


def write_best(run: RunDirectory, step: int, returns: Sequence[float]) -> None:
    rows = [{"step": step, "episode": i, "return": value} for i, value in enumerate(returns)]
    write_atomically(run.best_snapshot_csv, format_table(("step", "episode", "return"), rows))


@pytest.fixture
def directory(tmp_path: Path) -> ExperimentDirectory:
    """Three complete runs and a failed one. The second has a snapshot less, the third has none."""
    made = synthetic.experiment(tmp_path, ("complete",) * 3 + ("failed",), evaluations=4)
    synthetic.finish(made, draw=False)
    write_curve(made.run(0), [10, 30, 20, 40])
    write_curve(made.run(1), [20, 50, 50], late=2)
    write_curve(made.run(3), [900] * 4)
    write_best(made.run(0), 7680, [30, 40])
    return made


def test_the_best_snapshot_is_the_earliest_of_the_highest() -> None:
    points = [Point(epoch=e, step=e, episodes=1, mean=m) for e, m in enumerate((1.0, 7.0, 7.0))]
    assert best_of(points, RETURN).epoch == 1


def test_averages_are_taken_where_every_complete_run_has_a_snapshot(
    directory: ExperimentDirectory,
) -> None:
    outdir = f"--outdir={directory.root}"
    assert average.main([outdir]) == 0
    with (directory.average / "evaluation-curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["step"], row["n"]) for row in rows] == [
        ("0", "1", "2"), ("10", "2561", "2"), ("20", "5121", "2"),
    ]  # fmt: skip
    assert [float(row["mean"]) for row in rows] == [15, 40, 35], "the failed run is left out"
    # Student's t with one degree of freedom: 12.706 times sd / sqrt(2).
    half = 12.706204736 * math.sqrt(200) / math.sqrt(2)
    assert float(rows[1]["high"]) == pytest.approx(40 + half)
    assert plot_average.main([outdir]) == 0
    assert (directory.average / "plots/evaluation-curve.svg").is_file()
    assert (directory.average / "plots/training-hours.svg").is_file()


def test_the_result_is_that_of_the_final_policies(directory: ExperimentDirectory) -> None:
    before = (directory.average / "summary.json").read_bytes()
    write_curve(directory.run(0), [10, 9000, 20, 40])
    assert average.main([f"--outdir={directory.root}"]) == 0
    assert (directory.average / "summary.json").read_bytes() == before


def test_results_know_the_best_snapshot_and_what_it_scored_again(
    directory: ExperimentDirectory,
) -> None:
    frame = Results(directory.root).evaluation_curve
    assert len(frame) == 4 + 3 + 4
    (best,) = frame[frame["best"]].to_dict("records")
    assert (best["run"], best["epoch"], best["return_mean"]) == (0, 30, 40)
    assert best["again_mean"] == 35
    assert frame["again_mean"].notna().sum() == 1
    found = read_best(directory.run(0), RETURN)
    assert found is not None and (found.chosen, found.again, found.episodes) == (40, 35, 2)
    assert read_best(directory.run(1), RETURN) is None


def test_a_snapshot_is_named_best_or_by_its_step(directory: ExperimentDirectory) -> None:
    resolved = synthetic.resolved_of(directory)
    run = directory.run(0)
    for step in (0, 2560):
        run.snapshot(step).mkdir(parents=True)
    assert snapshot_step(run, resolved, "best") == 7680
    assert snapshot_step(run, resolved, "2560") == 2560
    with pytest.raises(BadInput, match="no snapshot '17' of run 0; allowed: best, 0, 2560"):
        snapshot_step(run, resolved, "17")
    with pytest.raises(BadInput, match="evaluation-curve makes it"):
        snapshot_step(directory.run(1), resolved, "best")


def test_evaluations_of_a_training_that_kept_no_snapshot_are_refused(
    directory: ExperimentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Already by `workflows.submit`, before a workflow begins."""
    resolved = synthetic.resolved_of(directory)
    trained = {1: resolved.epochs}
    monkeypatch.setattr(continuing, "trained_epochs", lambda run: trained.get(run.index, 0))
    with pytest.raises(BadInput, match="'evaluations' cannot be 4: run 1 was trained with"):
        continuing.held_experiment(directory, resolved)
    directory.run(1).snapshot(0).mkdir(parents=True)
    assert continuing.held_experiment(directory, resolved) is not None


def test_by_hand_snapshots_are_evaluated_beside_the_workflow_that_trains(
    directory: ExperimentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The final policy is not: that table is the workflow's."""
    monkeypatch.delenv("EXPERIMENT_OWNER", raising=False)
    workflow = owner.Owner(uid="u", workflow="training", process=processes.identity())
    owner.claim(directory.owner_json, workflow)
    arguments = [f"--outdir={directory.root}", "--run=0"]
    assert evaluate.main([*arguments, "--snapshots"]) == 0
    assert evaluate.main(arguments) == 4


def test_a_step_was_reached_at_an_even_speed_between_two_samples() -> None:
    resources = {
        "step": np.array([0.0, 100.0, 100.0, 300.0]),
        "wall_s": np.array([1.0, 2.0, 5.0, 6.0]),
    }
    steps = np.array([50.0, 100.0, 200.0, 300.0])
    assert wall_ms(steps, resources).tolist() == [1000, 2000, 4000, 6000]
    one = against_time(curve(steps, [1, 2, 3, 4]), resources)
    assert one.steps.tolist() == [1000, 2000, 4000, 6000] and one.values.tolist() == [1, 2, 3, 4]
    assert len(against_time(one, {})) == 0
