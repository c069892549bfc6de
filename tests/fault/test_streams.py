"""Defect C15 of docs/faults.md: standard streams that are closed, and readers that have left or stand still.
Nothing else may suffer."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.outside import ROOT, outside
from tests.unit.steps.command.command_step import PRINTED
from tests.unit.steps.command.test_command_main import begun, log, status, wait_for_log
from tests.unit.workflows.local.local_workflows import pod, task, workflow
from tests.unit.workflows.test_submit_local import TINY
from tests.waiting import PATIENCE_S

CLOSED = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")


def closed(folder: Path, *arguments: str) -> int:
    """The exit code of a module that is started without standard streams."""
    command = [*CLOSED, sys.executable, "-m", *arguments]
    ended = subprocess.run(command, cwd=folder, env=outside(), timeout=PATIENCE_S)
    return ended.returncode


def test_c15_a_step_without_streams_keeps_its_log_and_does_not_copy_it(tmp_path: Path) -> None:
    assert (
        closed(
            ROOT,
            "tests.unit.steps.command.command_step",
            "--outdir",
            str(tmp_path),
            "--do",
            "print",
        )
        == 0
    )
    said = log(tmp_path)
    for line in PRINTED:
        assert said.count(line) == 1
    assert (
        closed(
            ROOT,
            "tests.unit.steps.command.command_step",
            "--outdir",
            str(tmp_path),
            "--do",
            "print",
        )
        == 0
    ), "a repeat"


@pytest.mark.parametrize(
    ("what", "state"), [("nothing", "succeeded"), ("print", "succeeded"), ("skip", "skipped")]
)
def test_c15_a_step_whose_reader_has_left_ends_well(tmp_path: Path, what: str, state: str) -> None:
    for _ in ("first", "repeat"):
        with begun(tmp_path, what) as process:
            leave(process)
            assert (process.wait(PATIENCE_S), status(tmp_path).state) == (0, state)


@pytest.mark.parametrize("what", ["sleep", pytest.param("ignore", marks=pytest.mark.slow)])
def test_c15_a_step_whose_reader_has_left_ends_after_sigterm(tmp_path: Path, what: str) -> None:
    with begun(tmp_path, what) as process:
        wait_for_log(tmp_path, f"doing {what}", process)
        leave(process)
        process.send_signal(signal.SIGTERM)
        assert (process.wait(PATIENCE_S), status(tmp_path).state) == (75, "preempted")


@pytest.mark.slow
def test_c15_a_step_whose_reader_stands_still_ends(tmp_path: Path) -> None:
    """A full pipe: what does not fit in it is in the log."""
    with begun(tmp_path, "flood") as process:
        assert process.wait(PATIENCE_S) == 0
    assert log(tmp_path).count("x") >= 2_000_000 and "average: succeeded in" in log(tmp_path)


def leave(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


@pytest.mark.parametrize("code", [0, 7])
def test_c15_the_engine_without_streams_or_reader(tmp_path: Path, code: int) -> None:
    manifest = workflow(
        [task("a", "leaf")], pod("leaf", f"import sys; print('said'); sys.exit({code})")
    )
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(manifest))
    arguments = ["workflows.local", str(tmp_path / "w.yaml"), "--logs", str(tmp_path / "logs")]
    expected = 1 if code else 0
    assert closed(ROOT, *arguments) == expected
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait(PATIENCE_S)) == ("", expected)
    process.stderr.close()


def test_c15_submit_without_streams(tmp_path: Path) -> None:
    assert closed(tmp_path, "workflows.submit", "--list") == 0
    assert closed(tmp_path, "workflows.submit", "no-such-algorithm") == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_c15_a_whole_experiment_without_streams(tmp_path: Path) -> None:
    assert closed(tmp_path, "workflows.submit", *TINY, "-p", "outdir=x") == 0
    assert (tmp_path / "x/report.html").is_file()
