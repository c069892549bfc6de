"""Nothing from elsewhere steers the terminal: exceptions, servers, status files, the last lines of
logs (defect B14 of docs/faults.md)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import BadInput, on_one_line
from steps import average
from steps.command.attempt import one_line
from steps.directory.status import read_status
from tests import synthetic
from workflows.dag.layout import Layout
from workflows.dag.tasks import Task
from workflows.progress.reasons import reason
from workflows.progress.view import ProgressView

HOSTILE = "no\x1b[2J\x1b]0;title\x07 access\r\n\u202eand\x9b1m more"
PLAIN = r"no\x1b[2J\x1b]0;title\x07 access \u202eand\x9b1m more"


class Screen(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@given(st.text())
def test_b14_a_line_is_one_and_has_nothing_that_is_not_printable(text: str) -> None:
    line = on_one_line(text)
    assert line.isprintable() and len(line.splitlines()) <= 1
    assert on_one_line(line) == line


def test_b14_what_is_plain_stays_as_it_is() -> None:
    for text in ("run 1  train  43 %  return 123.4", "Ärger mit ✔ und 日本", "", r"C:\new"):
        assert on_one_line(text) == text
    assert on_one_line(HOSTILE) == PLAIN
    assert one_line(BadInput(HOSTILE)) == PLAIN


@pytest.mark.parametrize("terminal", [True, False])
def test_b14_the_live_view(terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    synthetic.status(tmp_path / "status/average.json", state="failed", exit_code=1, reason=HOSTILE)
    node: dict[str, Any] = {
        "id": "w-1",
        "name": "w.average",
        "displayName": "average",
        "type": "Retry",
        "phase": "Failed",
        "message": HOSTILE,
    }
    pending = node | {"id": "w-2", "name": "w.prepare", "phase": "Pending"}
    out = Screen(terminal)
    layout = Layout(
        inside=(Layout(name="prepare", step="prepare"), Layout(name="average", step="average"))
    )
    with ProgressView(
        workflow="w", layout=layout, resolved=None, directory=tmp_path, out=out
    ) as view:
        view.say(HOSTILE)
        view.update({"phase": "Failed", "message": HOSTILE, "nodes": {"w-1": node, "w-2": pending}})
    assert "[2J" in out.getvalue()
    for unwanted in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e", "\r"):
        assert unwanted not in out.getvalue()


def test_b14_a_reason_of_a_log_or_a_status(tmp_path: Path) -> None:
    log = tmp_path / "pod.log"
    log.write_text("before\nplay of run 0: failed: \x1b[2Jno\x07\n")
    assert (
        reason(Task("play", "failed", "main: Error", log=str(log)), None)
        == r"\x1b[2Jno\x07 (main: Error)"
    )
    synthetic.status(tmp_path / "train.json", state="failed", exit_code=1, reason=HOSTILE)
    status = read_status(tmp_path / "train.json")
    assert status is not None and status.reason == PLAIN


def test_b14_a_step_that_repeats_the_reason_of_a_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = synthetic.experiment(tmp_path, ("complete", "failed"), min_runs=1)
    synthetic.status(
        directory.run(1).status / "train.json", state="failed", exit_code=1, reason=HOSTILE
    )
    assert average.main([f"--outdir={tmp_path}"]) == 0
    printed = capfd.readouterr().out
    assert f"run 1: failed: train: {PLAIN}" in printed and "\x1b" not in printed


def test_b14_the_traceback_of_an_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    synthetic.experiment(tmp_path, ("complete",))

    def fails(run: object, resolved: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(average, "read_run", fails)
    assert average.main([f"--outdir={tmp_path}"]) == 1
    out, err = capfd.readouterr()
    log = (tmp_path / "logs/average.log").read_text()
    assert "\x1b" not in out + err + log
    assert (
        "    raise RuntimeError(HOSTILE)" in err + log
        and f"average: failed: RuntimeError: {PLAIN}" in err
    )
