"""Defect B12 of docs/faults.md: nothing is written through a symbolic link inside of the output directory, which
may lead anywhere."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from config.errors import ExperimentError, WrongDirectory
from steps import report
from steps.directory.files import refuse_links
from steps.directory.layout import ExperimentDirectory
from steps.results import Results
from tests import synthetic
from tests.fault.conftest import Start, assignments, snapshot

OUTSIDE_OF_RUNS = [
    "runs",
    "average",
    "average/plots",
    "logs",
    "status",
    "owner.json",
    "logs/average.log",
]
INSIDE = [
    "checkpoints",
    "snapshots",
    "snapshot-evaluations",
    "tensorboard",
    "videos",
    "plots",
    "logs",
    "status",
    "train.csv",
    "resources.csv",
    "logs/train.log",
]
FURTHER = [
    "networks",
    "positions",
    "replay",
    "networks/000000000005",
    "checkpoints/000000000005",
    "snapshots/000000000005",
]
"""Folders in which only some algorithms write, and folders inside of folders."""
PLACES = [*OUTSIDE_OF_RUNS, "runs/0", *(f"runs/0/{name}" for name in INSIDE)]


@pytest.mark.parametrize("place", [*PLACES, *(f"runs/0/{name}" for name in FURTHER)])
def test_b12_every_place_that_steps_write_to(tmp_path: Path, place: str) -> None:
    directory = ExperimentDirectory(tmp_path / "x")
    (tmp_path / "elsewhere").mkdir()
    link = directory.root / place
    link.parent.mkdir(parents=True)
    refuse_links(directory, 0)
    refuse_links(directory, 1)
    for target in (tmp_path / "elsewhere", tmp_path / "nowhere"):
        link.symlink_to(target)
        with pytest.raises(WrongDirectory, match=rf"^{link} is a symbolic link"):
            refuse_links(directory, 0)
        if place.startswith("runs/"):
            refuse_links(directory, 1)
            refuse_links(directory)
        link.unlink()


@pytest.mark.parametrize("place", PLACES)
def test_a_file_in_the_place_of_a_directory_and_the_other_way_round(
    tmp_path: Path, place: str
) -> None:
    directory = ExperimentDirectory(tmp_path / "x")
    path = directory.root / place
    if is_file := path.suffix != "":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        path.touch()
    with pytest.raises(WrongDirectory, match=rf"^{path} is {'a' if is_file else 'no'} directory"):
        refuse_links(directory, 0)


@pytest.mark.parametrize(
    "place",
    [
        "runs/0",
        "runs/0/train.csv",
        *(
            pytest.param(place, marks=pytest.mark.slow)
            for place in ("runs", "runs/0/checkpoints", "runs/0/logs", "runs/0/logs/train.log")
        ),
    ],
)
def test_b12_a_training_refuses_before_it_writes(start: Start, tmp_path: Path, place: str) -> None:
    outdir, elsewhere = tmp_path / "x", tmp_path / "elsewhere"
    assert start("steps.prepare", assignments(outdir)).end() == 0
    target = elsewhere / "target"
    elsewhere.mkdir()
    if place.endswith((".csv", ".log")):
        target.write_text("precious")
    else:
        target.mkdir()
    (outdir / place).parent.mkdir(parents=True, exist_ok=True)
    (outdir / place).symlink_to(target)
    before = snapshot(tmp_path)
    train = start("steps.train", ["--outdir", str(outdir), "--run", "0"])
    assert train.end() == 4, train.text
    assert f"train: {outdir / place} is a symbolic link" in train.text
    assert train.text.count("\n") == 1
    after = snapshot(tmp_path)
    assert {path: after[path] for path in before} == before
    assert [path for path in after if path not in before and not path.startswith("output-")] == []


@pytest.mark.parametrize("place", ["logs", "status", "owner.json"])
def test_b12_prepare_refuses_before_it_writes(start: Start, tmp_path: Path, place: str) -> None:
    outdir, target = tmp_path / "x", tmp_path / "elsewhere"
    outdir.mkdir()
    target.mkdir()
    (outdir / place).symlink_to(target)
    prepare = start("steps.prepare", assignments(outdir), {"EXPERIMENT_OWNER": "first"})
    assert prepare.end() == 4, prepare.text
    assert f"prepare: {outdir / place} is a symbolic link" in prepare.text
    assert [path.name for path in outdir.iterdir()] == [place]
    assert not list(target.iterdir())


def test_a_link_to_the_output_directory_itself_is_followed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "x").symlink_to(tmp_path / "large-disk")
    assert start("steps.prepare", assignments(tmp_path / "x")).end() == 0
    assert (tmp_path / "large-disk" / "experiment.yaml").is_file()


READ = [
    "experiment.yaml", "owner.json", "average/summary.json", "status/average.json",
    "runs/0/train.csv", "runs/0/evaluation.csv", "runs/0/resources.csv", "runs/0/status/train.json",
    "runs/0/status/evaluate.json", "runs/0/status/play.json", "runs/0/logs/train.log",
]  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", READ)
def test_a_fifo_in_the_place_of_a_file_holds_no_reader_up(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Opening one waits until somebody writes into it."""
    directory = synthetic.experiment(tmp_path / "x", ("complete",))
    synthetic.finish(directory, draw=False)
    path = directory.root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with contextlib.suppress(ExperimentError, OSError):
        results = Results(directory.root)
        list(results.runs)
        _ = results.training, results.evaluation
    assert report.main([f"--outdir={directory.root}"]) in (0, 1, 2, 4, 5)
    assert "Traceback" not in capsys.readouterr().err
