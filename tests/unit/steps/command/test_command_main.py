"""What every step shares, with real processes: exit codes, log, status, repeats, stops."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config import errors
from steps.directory.status import Status, read_status
from tests.outside import ROOT, outside
from tests.unit.steps.command.command_step import PRINTED
from tests.waiting import PATIENCE_S, until


@contextlib.contextmanager
def begun(
    outdir: Path, what: str, *arguments: str, interrupt: Any = signal.SIG_DFL, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A step that has been started, and is killed if the test ends before it. interrupt: how it finds
    SIGINT, whatever the shell did that started the tests.
    """
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.steps.command.command_step",
            "--outdir",
            str(outdir),
            "--do",
            what,
            *arguments,
        ],
        cwd=ROOT,
        env=outside(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(outdir: Path, what: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    with begun(outdir, what, *arguments, **environment) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def status(outdir: Path) -> Status:
    found = read_status(outdir / "status" / "average.json")
    assert found is not None
    return found


def log(outdir: Path) -> str:
    return (outdir / "logs" / "average.log").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "ExperimentError",
        "BadInput",
        "Diverged",
        "NoProgress",
        "WrongDirectory",
        "Incomplete",
        "Preempted",
    ],
)
def test_each_error_has_its_code_and_one_line(tmp_path: Path, name: str) -> None:
    code, _, err = run(tmp_path, name)
    state = "preempted" if name == "Preempted" else "failed"
    assert code == getattr(errors, name).exit_code
    assert err == f"average: {state}: message of {name}\n"
    assert (status(tmp_path).state, status(tmp_path).exit_code, status(tmp_path).reason) == (
        state,
        code,
        f"message of {name}",
    )
    assert log(tmp_path).endswith(err)


def test_a_bug_is_1_with_its_traceback_in_the_log_and_one_line_in_the_status(
    tmp_path: Path,
) -> None:
    code, out, err = run(tmp_path, "bug")
    assert (code, err) == (1, "average: failed: ZeroDivisionError: two lines\n")
    assert "Traceback" in log(tmp_path)
    assert "Traceback" in out
    assert status(tmp_path).reason == "ZeroDivisionError: two lines"


def test_the_log_holds_everything_and_the_pod_shows_it(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "print")
    assert code == 0
    for line in PRINTED:
        assert line in log(tmp_path)
        assert line in out


def test_attempts_are_appended_and_counted(tmp_path: Path) -> None:
    run(tmp_path, "bug")
    run(tmp_path, "crash")
    assert status(tmp_path).state == "running", "a killed attempt cannot say more"
    left_over = tmp_path / "status" / ".average.json.0.tmp"
    left_over.touch()
    run(tmp_path, "nothing")
    assert not left_over.exists()
    assert status(tmp_path).attempt == 3
    assert [
        line.split(",")[1] for line in log(tmp_path).splitlines() if line.startswith("---")
    ] == [
        " attempt 1",
        " attempt 2",
        " attempt 3",
    ]


def test_a_success_and_what_it_says(tmp_path: Path) -> None:
    code, _, _ = run(tmp_path, "nothing", OUTPUTS=str(tmp_path / "outputs"))
    found = status(tmp_path)
    assert code == 0
    assert (found.task, found.state, found.exit_code, found.details) == (
        "average",
        "succeeded",
        0,
        {"product": "1"},
    )
    assert found.duration_s is not None
    assert found.duration_s >= 0
    assert (tmp_path / "outputs" / "state").read_text() == "succeeded"


def files(outdir: Path) -> dict[str, Any]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in outdir.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(("what", "state"), [("nothing", "succeeded"), ("skip", "skipped")])
def test_a_repeat_changes_nothing_and_writes_its_outputs(
    tmp_path: Path, what: str, state: str
) -> None:
    outdir, outputs = tmp_path / "x", tmp_path / "outputs"
    outdir.mkdir()
    assert run(outdir, what)[0] == 0
    before = files(outdir)
    code, out, err = run(outdir, what, OUTPUTS=str(outputs))
    assert (code, err) == (0, "")
    assert f"average: {state} before" in out
    assert files(outdir) == before
    assert (outputs / "state").read_text() == state


def test_other_inputs_or_missing_products_are_work(tmp_path: Path) -> None:
    run(tmp_path, "nothing")
    run(tmp_path, "nothing", "--input", "2")
    assert (status(tmp_path).attempt, status(tmp_path).details) == (2, {"product": "2"})
    (tmp_path / "incomplete").touch()
    run(tmp_path, "nothing", "--input", "2")
    assert status(tmp_path).attempt == 3


def test_a_failed_step_is_done_again(tmp_path: Path) -> None:
    run(tmp_path, "bug")
    assert run(tmp_path, "nothing")[0] == 0


def test_nothing_is_written_where_nothing_was_prepared(tmp_path: Path) -> None:
    code, _, err = run(tmp_path / "missing", "nothing")
    assert (code, err) == (2, f"average: no directory {tmp_path / 'missing'}: prepare makes it\n")
    assert not list(tmp_path.iterdir())


def test_help_and_wrong_arguments(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "nothing", "--help")
    assert code == 0
    assert "--outdir" in out
    assert "Do one of several things." in out
    assert run(tmp_path, "nothing", "--surprise")[0] == 2
    assert not list(tmp_path.iterdir())


def wait_for_log(outdir: Path, text: str, process: subprocess.Popen[str]) -> None:
    path = outdir / "logs" / "average.log"
    until(lambda: path.exists() and text in log(outdir), process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_a_flag_until_the_very_end(tmp_path: Path, number: int) -> None:
    with begun(tmp_path, "sleep") as process:
        wait_for_log(tmp_path, "doing sleep", process)
        while process.poll() is None:
            process.send_signal(number)
            time.sleep(0.002)
    assert process.returncode == 75
    assert status(tmp_path).state == "preempted"


def test_a4_an_interrupt_that_was_ignored_before_stays_ignored(tmp_path: Path) -> None:
    """As `nohup … &` starts it in a script; Ctrl-C in the terminal reaches the whole group."""
    with begun(tmp_path, "sleep", interrupt=signal.SIG_IGN) as process:
        wait_for_log(tmp_path, "doing sleep", process)
        ignored = next(
            line
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
            if line.startswith("SigIgn")
        )
        assert int(ignored.split()[1], 16) >> (signal.SIGINT - 1) & 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 75


@pytest.mark.slow
def test_a_step_that_does_not_look_is_ended_in_seconds(tmp_path: Path) -> None:
    with begun(tmp_path, "ignore") as process:
        wait_for_log(tmp_path, "doing ignore", process)
        process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75
    assert time.monotonic() - asked < 15
    assert "it did not look within 5 s" in err
    assert (status(tmp_path).state, status(tmp_path).exit_code) == ("preempted", 75)


def test_a1_a_step_that_only_waits_notices_the_next_attempt(tmp_path: Path) -> None:
    """It writes nothing for long, so that only its keeper can see it; the lease says how often that
    looks."""
    (tmp_path / "owner.json").write_text(json.dumps({"uid": "uid", "lease_s": 1.2}))
    attempt = tmp_path / "status" / ".average.attempt"
    with begun(tmp_path, "sleep", EXPERIMENT_OWNER="uid") as process:
        wait_for_log(tmp_path, "doing sleep", process)
        signs_s = [attempt.stat().st_mtime]
        for _ in range(4):
            until(lambda: attempt.stat().st_mtime > signs_s[-1], process)
            signs_s.append(attempt.stat().st_mtime)
        # The first one comes at the start in any case. A slow disk holds up some, and not all.
        waits_s = [after - before for before, after in itertools.pairwise(signs_s[1:])]
        assert 0.1 < min(waits_s) < 2, waits_s
        attempt.write_text("the next one")
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    assert "another attempt of this step has started since" in err
    assert status(tmp_path).state == "running", "not ours to write"


@pytest.mark.parametrize("what", ["bug", "nothing", "BadInput"])
def test_a1_whatever_ends_an_attempt_that_was_shut_out_it_ends_with_4(
    tmp_path: Path, what: str
) -> None:
    """The error of such an attempt is a consequence: the next one may have removed what it was
    working with."""
    outputs = tmp_path / "outputs"
    code, _, err = run(tmp_path, what, "--shut-out", OUTPUTS=str(outputs))
    assert (code, status(tmp_path).state) == (4, "running")
    assert "another attempt of this step has started since" in err
    assert not outputs.exists()


def test_a2_an_older_attempt_may_sweep_a_temporary_away(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "swept")
    assert code == 0, err
    assert status(tmp_path).state == "succeeded" and status(tmp_path).details["noted"] == 1


def test_a_terminal_that_has_gone_does_not_stop_the_work(tmp_path: Path) -> None:
    with begun(tmp_path, "nothing") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        process.wait(PATIENCE_S)
    assert status(tmp_path).state == "succeeded"
    assert "doing nothing" in log(tmp_path)


def test_a_step_without_torch_starts_fast(tmp_path: Path) -> None:
    """In processor time, because a loaded machine is slow: the modules that every step imports,
    numpy not among them."""
    before = os.times()
    code, _, _ = run(tmp_path, "nothing")
    after = os.times()
    assert code == 0
    assert (
        after.children_user + after.children_system - before.children_user - before.children_system
        < 1.0
    )


def test_the_status_file_is_json_for_others(tmp_path: Path) -> None:
    run(tmp_path, "bug")
    document = json.loads((tmp_path / "status" / "average.json").read_text())
    assert set(document) >= {
        "task",
        "state",
        "started",
        "ended",
        "duration_s",
        "exit_code",
        "reason",
        "attempt",
        "host",
        "details",
    }
