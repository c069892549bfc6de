"""Fault 60 and defect C20 of docs/faults.md: another image or other code, between submissions or between attempts, is
recorded and said."""

from __future__ import annotations

import signal
from pathlib import Path

from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from tests.fault.conftest import Start, assignments

OLD = {"EXPERIMENT_IMAGE": "registry.example/rl:1", "EXPERIMENT_SOURCE": "0123"}
NEW = {"EXPERIMENT_IMAGE": "registry.example/rl:2", "EXPERIMENT_SOURCE": "4567-changed"}


def test_c20_another_image_or_code_between_submissions(start: Start, tmp_path: Path) -> None:
    first = start("steps.prepare", assignments(tmp_path / "x"), OLD)
    assert first.end() == 0
    assert "warning" not in first.text
    second = start("steps.prepare", assignments(tmp_path / "x"), NEW)
    assert second.end() == 0
    for name, before, now in (
        ("image", "registry.example/rl:1", "registry.example/rl:2"),
        ("source.commit", "0123", "4567"),
        ("source.changed", False, True),
    ):
        assert (
            f"warning: {name} has changed since an earlier submission: {before!r} -> {now!r}"
            in second.text
        )
    changed = read_experiment(ExperimentDirectory(tmp_path / "x")).history[0]["changed"]
    assert changed["image"] == ["registry.example/rl:1", "registry.example/rl:2"]


def test_c20_other_code_between_attempts(start: Start, tmp_path: Path) -> None:
    outdir = tmp_path / "x"
    assert start("steps.prepare", assignments(outdir)).end() == 0
    arguments = ["--outdir", str(outdir), "--run", "0"]
    first = start(
        "steps.train", arguments, OLD | {"EXPERIMENT_FAULT": "after_rename:2:checkpoints"}
    )
    assert first.end() == -signal.SIGKILL
    assert "warning" not in first.text
    second = start("steps.train", arguments, NEW)
    assert second.end() == 0, second.text
    assert "warning: source is 4567-changed here, the checkpoint was made with 0123" in second.text
