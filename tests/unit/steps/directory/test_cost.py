"""What an experiment has cost, against tables whose integral is known, and where it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from config.numbers import hours
from steps import average, report
from steps.directory.cost import Cost, experiment_cost, total
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory
from steps.directory.tables import format_table
from steps.page.cost import said_of_cost
from tests import synthetic

COLUMNS = ("wall_s", "step", "cpu_percent", "gpu_percent")
LOG = """\
training 20 epochs from the start: cpu, fp32
epoch 10 of 20, step 2560 of 5120
training 20 epochs from step 1280: cpu, fp32
epoch 20 of 20, step 5120 of 5120
"""


def made(root: Path, *rows: tuple[float | None, ...]) -> ExperimentDirectory:
    """Two runs with these resources; the first was killed once, after step 2560, saved at 1280."""
    directory = synthetic.experiment(root, ("complete",) * 2, epochs=20)
    table = format_table(COLUMNS, [dict(zip(COLUMNS, row, strict=True)) for row in rows])
    for index in range(2):
        write_atomically(directory.run(index).resources_csv, table)
    first = directory.run(0)
    write_atomically(first.logs / "train.log", LOG)
    fields = json.loads((first.status / "train.json").read_text()) | {"attempt": 2}
    (first.status / "train.json").write_text(json.dumps(fields))
    return directory


def test_an_experiment_costs_its_trainings_and_its_other_steps(tmp_path: Path) -> None:
    directory = made(tmp_path, (3600, 2560, 100, 50), (7200, 5120, 200, 70))
    synthetic.status(directory.run(0).status / "play.json", duration_s=1800.0)
    synthetic.status(directory.run(0).status / "evaluate-snapshots-part-0.json", duration_s=900.0)
    cost = experiment_cost(directory, 2)
    others_s = 1.2 + 2 * 2.5 + 1800 + 900  # prepare, evaluations, the film, the snapshots
    assert cost.processor_h == pytest.approx(2 * 3 + others_s / 3600)
    assert cost.gpu_h == pytest.approx(4)
    assert cost.preemptions == 1
    assert cost.repeated_h == pytest.approx(1280 / 5120 * 3), "a quarter of the run's three hours"


def test_the_summary_and_the_page_say_it(tmp_path: Path) -> None:
    directory = made(tmp_path, (3600, 2560, 100, 50), (7200, 5120, 200, 70))
    assert average.main([f"--outdir={directory.root}"]) == 0
    summary = json.loads((directory.average / "summary.json").read_text())["cost"]
    assert summary == {"processor_h": 6.0, "gpu_h": 4.0, "preemptions": 1, "repeated_h": 0.75}
    report.main([f"--outdir={directory.root}"])
    page = directory.report_html.read_text()
    said = said_of_cost(experiment_cost(directory, 2))
    assert (
        said
        == "4 GPU-hours, 6.002 CPU-hours; 0.75 CPU-hours of training done twice after 1 interruption"
    )
    assert said in page


def test_a_number_that_is_not_finite_is_unknown(tmp_path: Path) -> None:
    directory = made(tmp_path, (3600, 2560, float("inf"), None))
    assert average.main([f"--outdir={directory.root}"]) == 0, "JSON has no infinity"
    cost = json.loads((directory.average / "summary.json").read_text())["cost"]
    assert cost["processor_h"] is None
    assert total([Cost(processor_h=float("nan")), Cost(processor_h=2.0)]) == Cost(processor_h=2.0)


def test_nothing_is_said_of_what_is_unknown() -> None:
    assert said_of_cost(Cost()) == ""
    assert said_of_cost(Cost(processor_h=0.5, gpu_h=0.0)) == "0.50 CPU-hours"
    again = said_of_cost(Cost(processor_h=0.5, preemptions=2))
    assert again == "0.50 CPU-hours; an unknown part of training done twice after 2 interruptions"
    assert [hours(one) for one in (0.25, 12.5, 0.001, 0)] == ["0.25", "12.5", "under 0.01", "0.00"]
