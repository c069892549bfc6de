"""What `make test-machines` must notice: bytes that differ, what still runs, what a machine does
not have."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import os
import re
import subprocess
import sys
import time
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from tests.machines import __main__ as machines
from tests.machines import conditions, installation, launcher, machine, trial
from tests.machines.conditions import Condition, Setup
from tests.machines.machine import ROOT, Interpreter
from tests.machines.variants import BETWEEN, NEWEST, VARIANTS, Variant, chosen

PYTHON = Interpreter(Path(sys.executable), Path(sys.prefix), (3, 11, 0))


def result(name: str, python: str, content: bytes) -> machines.Result:
    variant = Variant((Condition(name, name, conditions.change_umask),))
    return machines.Result(variant, "ok", python=python, files={"train.csv": content})


def test_other_bytes_of_the_same_python_are_broken() -> None:
    results = [
        result("first", "3.11", b"1"),
        result("other", "3.11", b"2"),
        result("same", "3.11", b"1"),
        result("elsewhere", "3.12", b"3"),
    ]
    machines.compare(results)
    assert [one.verdict for one in results] == [
        "ok",
        "BROKEN: not the bytes of first: train.csv",
        "ok",
        "ok",
    ]


def test_what_cannot_be_had_is_named_and_not_tried(tmp_path: Path) -> None:
    variant = Variant((Condition("moon", "rocket", conditions.change_umask, lambda: "no rocket"),))
    (told,) = machines.Trials(tmp_path, None, 60).run([variant])
    assert told.verdict == "skipped: no rocket"
    assert (
        machines.table([told]).splitlines()[-1] == "| moon | rocket |  | skipped: no rocket | 0 |"
    )


def test_what_outlives_its_command_is_seen_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "GRACE_S", 0.2)
    setup = Setup(tmp_path, None, PYTHON, {"PATH": conditions.PATH})
    setup.clone.mkdir()
    (tmp_path / "tmp").mkdir()
    with pytest.raises(trial.Broken, match="left running"):
        trial.run(
            setup,
            "command",
            "/bin/sh",
            "-c",
            f"sh -c 'while sleep 1; do :; done' {setup.clone}/ & exit 0",
        )
    assert list(trial.processes_of(setup)) == []


def test_every_variant_is_named_once() -> None:
    names = [variant.name for variant in VARIANTS]
    assert len(set(names)) == len(names) >= 24


def test_a_condition_alone_runs_where_it_is_named_or_at_length() -> None:
    usual = {variant.name for variant in chosen([], full=False)}
    assert "umask 077" not in usual and any(name.startswith("umask 077, ") for name in usual)
    assert "umask 077" in {variant.name for variant in chosen(["umask"], full=False)}
    assert chosen([], full=True) == list(VARIANTS)


def test_every_condition_but_a_python_in_between_runs_without_being_asked_for() -> None:
    usual = {one.name for variant in chosen([], full=False) for one in variant.conditions}
    named = {one.name for variant in VARIANTS for one in variant.conditions}
    between = {f"Python 3.{minor}" for minor in BETWEEN}
    assert named - usual <= between
    assert not between & {f"Python 3.{sys.version_info.minor}", f"Python 3.{NEWEST}"}


def test_what_only_computes_exists_and_is_left_out() -> None:
    files = list((ROOT / "tests/unit").rglob("test_*.py"))
    for glob in trial.NOT_TRIED:
        assert list(ROOT.glob(glob.replace("/*/", "/**/"))), glob
    # As pytest matches `--ignore-glob`.
    left_out = {
        path.name
        for path in files
        for glob in trial.NOT_TRIED
        if fnmatch.fnmatch(str(path), os.path.abspath(ROOT / glob))  # noqa: PTH100
    }
    assert {"test_a2c.py", "test_vtrace.py", "test_spaces.py"} <= left_out
    assert len(left_out) < len(files) / 2
    assert not left_out & {"test_umask.py", "test_terminal_safety.py", "test_directory_files.py"}


def test_a_pyenv_folder_that_cannot_be_looked_into_holds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`su` hands a user the PYENV_ROOT of root; as root, a name that is too long is refused by the
    kernel just so."""
    monkeypatch.setenv("PYENV_ROOT", f"/{'x' * 300}")
    assert [path for path in machine.candidates(13) if "xxx" in str(path)] == []


def test_the_topmost_closed_parent_is_found(tmp_path: Path) -> None:
    inside = tmp_path / "closed/inside"
    inside.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    found = launcher.closed_parent(inside)
    assert found is not None and not found.stat().st_mode & 0o001
    assert all(parent.stat().st_mode & 0o001 for parent in found.parents)


def test_a_game_whose_package_is_missing_is_refused_with_one_line(tmp_path: Path) -> None:
    """Python 3.14 has no Box2D: LunarLander cannot be had there, and is refused before anything is
    started or written."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['Box2D'] = None\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [
        sys.executable,
        "-m",
        "workflows.submit",
        "ppo",
        "--local",
        "-p",
        "game=lunarlander",
        "-p",
        "outdir=x",
    ]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert ended.stderr.startswith(
        "refused: game 'lunarlander' cannot be made: it needs the package Box2D"
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(conditions.needs_compiler() is not None, reason="no C compiler")
def test_the_clock_jumps_and_the_steady_one_does_not(tmp_path: Path) -> None:
    ask = "import time; print(time.time(), time.monotonic())"
    library = str(conditions.clock_library(tmp_path))
    answer = subprocess.run(
        [sys.executable, "-c", ask], env={"LD_PRELOAD": library}, capture_output=True, check=True
    ).stdout
    now, steady = map(float, answer.split())
    jump = [0, 3600, 0, -3600][int(steady) // 3 % 4]
    assert abs(now - time.time() - jump) < 60 and abs(steady - time.monotonic()) < 60


def test_a_full_disk_skips_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "NEEDED_BYTES", 2**60)
    elsewhere = Interpreter(Path(sys.executable), Path(sys.prefix), (3, 99, 0))
    asked = Condition("3.99", "", lambda setup: installation.install(elsewhere))
    (tmp_path / "home").mkdir()
    (told,) = machines.Trials(tmp_path, None, 60).run([Variant((asked,))])
    assert re.fullmatch(r"skipped: .* GiB are free on the disk, .* need \d+", told.verdict)
    assert not elsewhere.environment.exists()


class Library(Distribution):
    """An installed package with one file."""

    def __init__(self, folder: Path, name: str, tag: str) -> None:
        self.folder, self.tag = folder, tag
        self.metadata_text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        self.file = f"nvidia/{name}.so"
        (folder / "nvidia").mkdir(parents=True, exist_ok=True)
        (folder / self.file).write_text(name)

    def read_text(self, filename: str) -> str | None:
        texts = {
            "WHEEL": f"Tag: {self.tag}",
            "RECORD": f"{self.file},,\n",
            "METADATA": self.metadata_text,
        }
        return texts.get(filename)

    def locate_file(self, path: Any) -> Any:
        return self.folder / path


@pytest.mark.slow
def test_only_libraries_for_every_python_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Library(tmp_path / "from", "nvidia-cublas", "py3-none-manylinux_2_27_x86_64"),
        Library(tmp_path / "from", "nvidia-other", "cp311-cp311-manylinux_2_27_x86_64"),
        Library(tmp_path / "from", "networkx", "py3-none-any"),
    ]
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)
    python = Interpreter(Path(sys.executable), Path(sys.prefix), sys.version_info[:3])
    installation.share_packages(python)
    shared = python.packages / "nvidia/nvidia-cublas.so"
    assert shared.samefile(tmp_path / "from/nvidia/nvidia-cublas.so")
    assert [path.name for path in shared.parent.iterdir()] == ["nvidia-cublas.so"]


@pytest.mark.slow
def test_a_library_that_cannot_be_linked_is_left_to_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, link = Library(tmp_path / "from", "nvidia-cublas", "py3-none-any"), Path.hardlink_to

    def half(path: Path, target: Any) -> None:
        link(path, target)
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "hardlink_to", half)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [library])
    python = Interpreter(Path(sys.executable), Path(sys.prefix), sys.version_info[:3])
    installation.share_packages(python)
    assert not list((python.packages / "nvidia").iterdir())
