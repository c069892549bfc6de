"""Run from a folder where a `config.py`, a `config/` or an `agents/` lies that is not ours
(defect B14 of docs/faults.md)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import synthetic
from tests.outside import ROOT, outside


def modules(folder: Path) -> None:
    for name in ("config", "agents"):
        (folder / f"{name}.py").write_text("raise SystemExit('a foreign module was imported')\n")


def packages(folder: Path) -> None:
    for name in ("config", "agents"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            "raise SystemExit('a foreign package was imported')\n"
        )


def folders_without_code(folder: Path) -> None:
    for name in ("config", "agents", "steps", "workflows"):
        (folder / name).mkdir()
        (folder / name / "errors.py").write_text(
            "raise SystemExit('a foreign module was imported')\n"
        )


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=outside(),
        capture_output=True,
        text=True,
        timeout=120,
    )


FOREIGN = pytest.mark.parametrize("foreign", [modules, packages, folders_without_code])


@FOREIGN
def test_b14_submit_takes_its_own_packages(foreign: Callable[[Path], None], tmp_path: Path) -> None:
    foreign(tmp_path)
    done = run(
        tmp_path,
        "workflows.submit",
        "ppo",
        "--local",
        "-p",
        "game=cartpole",
        "-p",
        "outdir=results/x",
        "--dry-run",
    )
    assert done.returncode == 0, done.stderr
    assert "CartPole-v1" in done.stdout


@FOREIGN
def test_b14_a_step_takes_its_own_packages(foreign: Callable[[Path], None], tmp_path: Path) -> None:
    foreign(tmp_path)
    synthetic.experiment(tmp_path / "results", ("complete",))
    done = run(tmp_path, "steps.average", "--outdir=results")
    assert done.returncode == 0, done.stderr
    assert "n = 1 of 1 runs" in done.stdout


@pytest.mark.slow
def test_b14_a_game_in_the_working_directory_is_found_beside_a_foreign_config(
    tmp_path: Path,
) -> None:
    modules(tmp_path)
    (tmp_path / "mygame.py").write_text((ROOT / "tests/own_games.py").read_text())
    done = run(
        tmp_path,
        "workflows.submit",
        "ppo",
        "--local",
        "-p",
        "game=mygame:Bandit",
        "-p",
        "outdir=results/x",
        "--dry-run",
    )
    assert done.returncode == 0, done.stderr
    assert "mygame:Bandit" in done.stdout
    refused = run(
        tmp_path,
        "workflows.submit",
        "ppo",
        "--local",
        "-p",
        "game=mygame:Nothing",
        "-p",
        "outdir=results/x",
        "--dry-run",
    )
    assert refused.returncode == 2 and "mygame" in refused.stderr, (
        "the probe imports our own packages, too"
    )
