"""Faults 25, 31, 33, 52, 55, 58 and 61–67 at the door: `prepare` refuses with one line, exit code 2
(4), and writes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from config import pipeline
from steps import prepare as step
from steps.directory import files
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from tests.fault.conftest import Start, assignments, snapshot
from tests.outside import OF_A_WORKFLOW, ROOT, outside

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_A_WORKFLOW:
        monkeypatch.delenv(name, raising=False)


def refused(capture: Capture, code: int, *words: str, argv: list[str]) -> str:
    assert step.main(argv) == code
    line = capture.readouterr().err
    assert line.count("\n") == 1, line
    for word in words:
        assert word in line
    return line


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("game", "brekout", ["breakout"]),
        ("game", "breakout; rm -rf /", ["game"]),
        ("game", "$(id)", ["game"]),
        ("game", "breakout\nid", ["game"]),
        ("game", "'+exit()+'", ["game"]),
        ("game", "{{workflow.name}}", ["game"]),
        ("game", "tests.fault.nothing:Missing", ["tests.fault.nothing"]),
        ("runs", "0", ["runs", "256"]),
        ("runs", "1000000000", ["runs", "256"]),
        ("runs", "1e3", ["runs"]),
        ("runs", "true", ["runs"]),
        ("runs", "nan", ["runs"]),
        ("runs", "", ["runs"]),
        ("seed", str(2**70), ["seed"]),
        ("learning_rate", "nan", ["learning_rate"]),
        ("lerning_rate", "0.1", ["learning_rate"]),
        ("device", "gpu", ["device", "cuda"]),
        ("min_runs", "2", ["min_runs"]),
    ],
)
def test_parameters(
    tmp_path: Path, capsys: Capture, name: str, value: str, words: list[str]
) -> None:
    by_hand = assignments(tmp_path / "x", **{name: value})
    refused(capsys, 2, *words, argv=by_hand)
    entries = [
        dict(zip(("name", "value"), word.split("=", 1), strict=True)) for word in by_hand[3::2]
    ]
    refused(capsys, 2, *words, argv=["--algorithm", "ppo", "--parameters", json.dumps(entries)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[1]",
        '[{"name": "runs", "value": 3}]',
        "[" * 100_000,
        '[{"name": "runs"}]' * 20_000,
        "9" * 5000,
    ],
)
def test_parameters_that_are_no_list(tmp_path: Path, capsys: Capture, text: str) -> None:
    refused(capsys, 2, "--parameters", argv=["--algorithm", "ppo", "--parameters", text])


def test_a_game_whose_package_is_missing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Box2D has no wheel for Python 3.14; nothing else suffers."""
    monkeypatch.setitem(sys.modules, "Box2D", None)
    argv = assignments(tmp_path / "x", game="lunarlander", minibatches=4)
    refused(
        capsys,
        2,
        "game 'lunarlander' cannot be made: it needs the package Box2D",
        "allowed: any other game",
        argv=argv,
    )
    assert not list(tmp_path.iterdir())
    assert step.main(assignments(tmp_path / "x")) == 0


def test_unknown_algorithm(capsys: Capture) -> None:
    refused(capsys, 2, "did you mean 'ppo'", argv=["--algorithm", "pppo", "-p", "game=cartpole"])


@pytest.mark.parametrize(
    "outdir", ["../x", "{root}/../x", "/etc/x", "{root}", "{root}/link/x", "{root}/a\0b"]
)
def test_outdir_stays_below_the_storage(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, outdir: str
) -> None:
    root = tmp_path / "storage"
    root.mkdir()
    (root / "link").symlink_to("/usr")
    monkeypatch.setenv("STORAGE", str(root))
    refused(capsys, 2, "outdir", argv=assignments(Path(outdir.format(root=root))))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "storage"]


def test_an_algorithm_that_would_lie_among_its_results(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened the results later would be refused."""
    own = tmp_path / "own_algorithm_within.py"
    own.write_text("from config.algorithms.ppo import ALGORITHM\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    argv = [*assignments(outdir=tmp_path), "--algorithm=own_algorithm_within:ALGORITHM"]
    refused(capsys, 4, "among the results", "own_algorithm_within:ALGORITHM", argv=argv)
    assert {one.name for one in tmp_path.iterdir()} <= {own.name, "__pycache__"}


def test_other_parameters_in_the_same_directory(
    start: Start, tmp_path: Path, capsys: Capture
) -> None:
    assert start("steps.prepare", assignments(tmp_path / "x")).end() == 0
    before = snapshot(tmp_path)
    line = refused(
        capsys,
        4,
        "seed: 0 in the directory, 1 now",
        argv=assignments(tmp_path / "x", seed=1, clip=0.1),
    )
    assert "hyperparameters.clip: 0.2 in the directory, 0.1 now" in line
    assert snapshot(tmp_path) == before


def test_parameters_outside_of_the_identity_are_taken_over(start: Start, tmp_path: Path) -> None:
    assert start("steps.prepare", assignments(tmp_path / "x", runs=2)).end() == 0
    first = read_experiment(ExperimentDirectory(tmp_path / "x"))
    environment = {"OUTPUTS": str(tmp_path / "outputs"), "EXPERIMENT_IMAGE": "rl:new"}
    again = start("steps.prepare", assignments(tmp_path / "x", runs=4, min_runs=3), environment)
    assert again.end() == 0, again.text
    record = read_experiment(ExperimentDirectory(tmp_path / "x"))
    assert (record.resolved.experiment.runs, record.resolved.min_runs, record.image) == (
        4,
        3,
        "rl:new",
    )
    assert (record.started, record.identity_hash) == (first.started, first.identity_hash)
    changed = record.history[0]["changed"]
    assert changed["parameters.experiment.runs"] == [2, 4]
    assert changed["image"] == [None, "rl:new"]
    assert json.loads((tmp_path / "outputs" / "runs").read_text()) == [0, 1, 2, 3]


def test_versions_and_source_are_recorded_without_importing_torch(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "steps.prepare", *assignments(tmp_path / "x")],
        cwd=ROOT,
        env=outside(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    imported = {
        line.rpartition("|")[2].strip()
        for line in process.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert not imported & {"torch", "pandas", "matplotlib", "tensorboard", "Box2D"}
    record = read_experiment(ExperimentDirectory(tmp_path / "x"))
    assert {"python", "torch", "gymnasium", "ale-py"} <= set(record.versions)


def test_storage_without_links_or_renames(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(files.os, "link", refuse)
    refused(capsys, 2, "hard links", argv=assignments(tmp_path / "x"))
    monkeypatch.setattr(files.Path, "replace", refuse)
    refused(capsys, 2, "cannot rename", argv=assignments(tmp_path / "x"))
    assert not list(tmp_path.iterdir())


def test_full_storage(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_FREE_BYTES", 2**62)
    refused(capsys, 2, "bytes free", argv=assignments(tmp_path / "x"))
    assert not list(tmp_path.iterdir())


def test_directory_that_we_may_not_write(start: Start, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)  # whatever the umask
    step = start("steps.prepare", assignments(closed / "x"), unprivileged=True)
    assert step.end() == 2, step.text
    assert (
        f"cannot write {closed / 'x'}: {closed} has mode 0555 and belongs to uid {os.geteuid()}, this is uid"
        in step.text
    )
    assert not list(closed.iterdir())
    step = start("steps.prepare", assignments(closed), unprivileged=True)
    assert step.end() == 2, step.text
    assert not list(closed.iterdir())
    assert start("steps.prepare", assignments(tmp_path / "x")).end() == 0
    (tmp_path / "x").chmod(0o555)
    train = start("steps.train", ["--outdir", str(tmp_path / "x"), "--run", "0"], unprivileged=True)
    assert train.end() == 2, train.text
    assert "has mode 0555" in train.text


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=() if step.name in ("train", "report") else pytest.mark.slow)
        for step in pipeline.STEPS
        if step.name != pipeline.PREPARE
    ],
    ids=lambda step: step.name,
)
def test_steps_without_a_prepared_directory(
    start: Start, tmp_path: Path, step: pipeline.Step
) -> None:
    run = ["--run", "0"] if step.in_run else []
    missing = start(step.module, ["--outdir", str(tmp_path / "missing"), *run])
    assert missing.end() == 2, missing.text
    assert "prepare makes it" in missing.text
    (tmp_path / "empty").mkdir()
    empty = start(step.module, ["--outdir", str(tmp_path / "empty"), *run])
    assert empty.end() == 2, empty.text
    assert not list((tmp_path / "empty").iterdir())


def test_run_that_does_not_exist(start: Start, tmp_path: Path) -> None:
    assert start("steps.prepare", assignments(tmp_path / "x", runs=2)).end() == 0
    train = start("steps.train", ["--outdir", str(tmp_path / "x"), "--run", "2"])
    assert train.end() == 2, train.text
    assert "the experiment has the runs 0 to 1" in train.text
    assert not (tmp_path / "x" / "runs").exists()


def test_cuda_without_a_gpu(start: Start, tmp_path: Path) -> None:
    assert start("steps.prepare", assignments(tmp_path / "x", device="cuda")).end() == 0
    train = start(
        "steps.train", ["--outdir", str(tmp_path / "x"), "--run", "0"], {"CUDA_VISIBLE_DEVICES": ""}
    )
    assert train.end() == 2, train.text
    assert "no usable GPU" in train.text
