"""The actors' own command: in its words, through the manifest and the local engine, to a process."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from config.cluster import load_cluster
from config.errors import BadInput
from config.resolve import resolve
from tests.actors_alone import run_actors
from tests.outside import ROOT, outside
from workflows.dag import render

WRAPPER = """#!/bin/sh
exec {python} -c 'import os, sys
print("wrapper", sys.argv[1:], flush=True)
os.execvp(sys.argv[2], sys.argv[2:])' "$@"
"""
"""No script of Python's own: the path of an interpreter in a first line may have no blank."""
TELL = "import json, os, sys; print(json.dumps([sys.executable, sys.argv[1:], 'ACTOR_COMMAND' in os.environ]))"


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who has `with-display` on the PATH, and no `python` before it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "with-display").write_text(WRAPPER.format(python=shlex.quote(sys.executable)))
    (folder / "with-display").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_its_words_are_those_of_a_shell_in_one_form() -> None:
    def read(text: str) -> str | None:
        return resolve("impala", {"actor_command": text}).actors.actor_command

    assert read("") is None
    assert read("xvfb-run  -a python -m steps.train") == "xvfb-run -a python -m steps.train"
    assert read("""run --title "two words" it\\'s""") == """run --title 'two words' 'it'"'"'s'"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("xvfb-run 'a", "No closing quotation"), ("run \\", "No escaped character"),
        ("  ", "no word in it"), ("run $(id)", r"'\$\(' and"), ("run {a}", "braces"),
    ],
)  # fmt: skip
def test_bad_quoting_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=f"'actor_command' cannot be .*{why}") as refused:
        resolve("impala", {"actor_command": text})
    assert "\n" not in str(refused.value)
    words = ["-m", "workflows.submit", "impala", "--dry-run", "-p", f"actor_command={text}"]
    ended = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=outside(), text=True, capture_output=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1, ended.stderr


def test_it_reaches_the_actors_and_nobody_else_through_their_environment() -> None:
    for algorithm, told in (("impala", ["train-actor"]), ("ppo", [])):
        manifest = render.build_manifest(algorithm, load_cluster())
        leaves = [one for one in manifest["spec"]["templates"] if "container" in one]
        value = {"name": "ACTOR_COMMAND", "value": "{{inputs.parameters.actor_command}}"}
        assert [one["name"] for one in leaves if value in one["container"]["env"]] == told


def test_the_local_engine_starts_actors_by_it(tmp_path: Path, on_path: dict[str, str]) -> None:
    """Found on the PATH, without a shell; `python` in it is the interpreter of the engine."""
    command = f"with-display 'two  words; $HOME' python -c {json.dumps(TELL)}"
    code, printed = run_actors(
        tmp_path, environment=on_path, actors="2", outdir="/storage/x", actor_command=command
    )
    assert code == 0, printed
    wrapped = [line for line in printed.splitlines() if line.startswith("wrapper")]
    assert len(wrapped) == 2 and all("'two  words; $HOME', 'python'" in line for line in wrapped)
    told = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    for executable, options, again in told:
        assert Path(executable).samefile(sys.executable) and not again
        assert options[0].endswith("/x") and options[1:3] == ["--run=0", "--role=actor"]
    assert sorted(options[3] for _, options, _ in told) == ["--member=0", "--member=1"]


def test_a_program_that_is_not_there_is_bad_input(tmp_path: Path, on_path: dict[str, str]) -> None:
    code, printed = run_actors(
        tmp_path, environment=on_path, actors="1", outdir="/storage/x", actor_command="gone -a"
    )
    assert "main: Error (exit code 2)" in printed, printed
    assert "train: parameter 'actor_command', 'gone -a': No such file or directory" in printed
    assert code == 0, "how an actor ends is nobody's failure"


def test_without_one_an_actor_is_started_as_ever(tmp_path: Path) -> None:
    _, printed = run_actors(tmp_path, environment={}, actors="1", outdir="/storage/x")
    assert "train: no directory" in printed and "prepare makes it" in printed, printed
