"""The wheel that `pip install .` makes: complete, at work in another folder, and removed again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from config import VERSION
from tests.outside import ROOT

PACKAGES = ("agents", "config", "steps", "workflows")
TINY = {
    "game": "cartpole", "runs": "1", "epochs": "2", "evaluation_episodes": "2", "outdir": "out",
}  # fmt: skip


def ran(folder: Path, *command: str | Path) -> str:
    """What a command prints; it finds nothing of this checkout by way of the environment."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.slow
def test_an_installed_wheel_works_anywhere_and_leaves_no_trace(tmp_path: Path) -> None:
    """pip takes the build's own packages from the index; the dependencies are those of this
    environment.
    """
    source, away, environment = (tmp_path / name for name in ("source", "away", "environment"))
    away.mkdir()
    source.mkdir()
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    ran(tmp_path, *pip, "wheel", "--no-deps", "--wheel-dir", ".", "./source")
    [wheel] = tmp_path.glob("*.whl")

    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin/python"
    packages = Path(
        ran(away, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    before = files(environment)
    into = (*pip, "--python", python)
    ran(away, *into, "install", "--no-deps", wheel)

    assert str(packages) in ran(away, python, "-c", "import agents; print(agents.__file__)")
    parameters = [word for name, value in TINY.items() for word in ("-p", f"{name}={value}")]
    ran(away, python, "-m", "workflows.submit", "ppo", "--local", *parameters)
    assert (away / "out/report.html").exists()
    ran(away, python, "-m", "workflows.submit", "--list")
    (away / "mygame.py").write_text((ROOT / "tests/own_games.py").read_text())
    command = environment / "bin/rl-dag"
    assert ran(away, command, "--version") == f"rl-training-dag {VERSION}\n"
    own = ran(away, command, "ppo", "--local", "--dry-run", "-p", "game=mygame:Bandit")
    assert "mygame:Bandit" in own, "found beside the caller, as by python -m"
    check_foreign_packages(away, python, packages)
    ran(away, *into, "uninstall", "--yes", "rl-training-dag")
    assert files(environment) == before


def check_foreign_packages(away: Path, python: Path, packages: Path) -> None:
    """A package of the index called `agents`, installed over ours, and a person's own `config.py`."""
    ours = packages / "agents/__init__.py"
    before = ours.read_bytes()
    ours.write_text("class Agent: ...\n")
    for command in (("workflows.submit", "--list"), ("steps.evaluate", "--outdir=x", "--run=0")):
        code, said = refused(away, python, "-m", *command)
        assert code == 2
        assert f"{ours} was overwritten by another package" in said
    ours.write_bytes(before)
    own = away / "config.py"
    own.write_text("class Env: ...\n")
    code, said = refused(away, python, "-m", "workflows.submit", "ppo", "-p", "game=config:Env")
    assert code == 2
    assert f"{own} is hidden by {packages / 'config'}" in said
    own.unlink()


def refused(folder: Path, *command: str | Path) -> tuple[int, str]:
    """The exit code, and the one line on stderr."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    return ended.returncode, ended.stderr
