"""The supervisor of local pods dies, cannot start a process, or cannot start itself: a failed
attempt, never an engine that hangs."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from config.errors import ExperimentError
from tests.fault.test_local_interruptions import (
    SLEEPING,
    finish,
    is_gone,
    node,
    pids,
    start,
    status,
)
from tests.outside import ROOT
from tests.unit.workflows.local.local_workflows import pod, task, workflow
from tests.waiting import PATIENCE_S, until
from workflows.local import run
from workflows.local.errors import LostPod
from workflows.local.machine import supervision

ONCE = "import os, sys, time; print('pid', os.getpid(), flush=True);time.sleep(3600 if sys.argv[1] == '0' else 0)"
UNTIL = "import os, sys, time; print('pid', os.getpid(), flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
KILLED = "the supervisor of the pods was killed"


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a3_a_new_supervisor_after_one_was_killed(tmp_path: Path) -> None:
    """Defect A3 of docs/faults.md: the attempt is in Error and tried again; it used to be waited for for ever."""
    retried = pod(
        "retried", ONCE, "{{retries}}", retryStrategy={"limit": "2", "retryPolicy": "Always"}
    )
    process = start(tmp_path, workflow([task("a", "retried"), task("b", "retried")], retried))
    running = pids(tmp_path, pods=2)
    os.kill(parent(running[0]), signal.SIGKILL)
    output = finish(process)
    assert (process.returncode, [is_gone(pid) for pid in running]) == (0, [True, True]), output
    for name in "ab":
        first, second = node(tmp_path, f"w.{name}(0)"), node(tmp_path, f"w.{name}(1)")
        assert (first["phase"], first["message"], second["phase"]) == ("Error", KILLED, "Succeeded")


def test_a3_the_exit_handler_runs_after_the_supervisor_was_killed(tmp_path: Path) -> None:
    process = start(
        tmp_path, workflow([task("a", "leaf")], pod("leaf", SLEEPING), pod("bye"), onExit="bye")
    )
    os.kill(parent(pids(tmp_path, pods=1)[0]), signal.SIGKILL)
    finish(process)
    assert (process.returncode, node(tmp_path, "w.a")["message"]) == (
        1,
        f"task 'w.a' errored: {KILLED}",
    )
    assert node(tmp_path, "w.onExit")["phase"] == "Succeeded"


def test_a3_a_pod_that_finds_no_free_descriptor_is_tried_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    """A full table of processes or descriptors: it used to end the supervisor, with everything that
    ran."""
    go, gate = tmp_path / "go", tmp_path / "gate"
    tasks = [
        task("long", "long"),
        task("gate", "gate"),
        task("b", "retried", depends="gate.Succeeded"),
    ]
    retry = {"limit": "200", "retryPolicy": "Always", "backoff": {"duration": "200ms"}}
    process = start(
        tmp_path,
        workflow(
            tasks,
            pod("long", UNTIL, str(go)),
            pod("gate", UNTIL, str(gate)),
            pod("retried", retryStrategy=retry),
        ),
    )
    running = pids(tmp_path, pods=2)
    supervisor = parent(running[0])
    soft, hard = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, hard))
    gate.touch()
    until(
        lambda: any(
            "no process can be started" in one.get("message", "")
            for one in status(tmp_path)["nodes"].values()
        )
    )
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: node(tmp_path, "w.b")["phase"] == "Succeeded")
    go.touch()
    finish(process)
    assert process.returncode == 0 and node(tmp_path, "w.long")["phase"] == "Succeeded"


def test_a3_a_supervisor_that_does_not_answer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> int:
        owner = supervision.Processes(tmp_path / "scratch")
        await owner.open()
        os.kill(owner._supervisor.pid, signal.SIGSTOP)
        monkeypatch.setattr(supervision, "ANSWER_S", 0.2)
        with pytest.raises(LostPod, match="has not answered"):
            await owner.start(["true"], dict(os.environ), tmp_path, None)
        monkeypatch.undo()
        until(lambda: owner._supervisor.poll() is not None)
        while owner._is_alive:  # its end is heard in a moment
            await asyncio.sleep(0.005)
        await owner.open()
        ended = await (await owner.start(["true"], dict(os.environ), tmp_path, None)).wait()
        await owner.close()
        return ended

    assert asyncio.run(scenario()) == 0
    assert list(tmp_path.iterdir()) == []


def test_a3_a_python_that_needs_its_library_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of a cluster, a shared libpython: the supervisor runs where the engine runs."""
    monkeypatch.setattr("sys.executable", str(needs_library_path(tmp_path)))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert (
        run(workflow([task("a", "leaf")], pod("leaf")), logs=tmp_path / "logs").phase == "Succeeded"
    )


def test_a3_a_supervisor_that_cannot_start_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(needs_library_path(tmp_path)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with pytest.raises(
        ExperimentError, match="the supervisor of the pods does not start: exit code 127"
    ):
        run(workflow([task("a", "leaf")], pod("leaf")))
    assert [path.name for path in tmp_path.iterdir()] == ["python"], "its temporary folder is gone"


def needs_library_path(folder: Path) -> Path:
    """An interpreter that cannot be loaded without LD_LIBRARY_PATH."""
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\n[ -n "$LD_LIBRARY_PATH" ] || exit 127\nexec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("ignored", ["HUP INT", ""], ids=["nohup", "terminal"])
def test_a4_signals_that_came_ignored_stay_so(tmp_path: Path, ignored: str) -> None:
    """Defect A4 of docs/faults.md: `nohup python -m workflows.local …` and the terminal is closed."""
    go = tmp_path / "go"
    process = start(
        tmp_path, workflow([task("a", "leaf")], pod("leaf", UNTIL, str(go))), ignored=ignored
    )
    pids(tmp_path, pods=1)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    if ignored:
        go.touch()
    finish(process)
    assert process.returncode == (0 if ignored else 130)


def test_a4_whoever_goes_on_signalling_changes_nothing_in_the_end(tmp_path: Path) -> None:
    """While it cleans up and while the interpreter ends, too: it used to die of the signal, without
    its exit code."""
    process = start(tmp_path, workflow([task("a", "leaf")], pod("leaf", SLEEPING)))
    pids(tmp_path, pods=1)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert process.returncode == 130
    assert finish(process).splitlines()[-1].startswith("w: Failed")


SIGNALLED_ELSEWHERE = """
import json, signal, sys, threading, time
from pathlib import Path
from workflows import local

def signal_this_thread():
    while not list(Path(sys.argv[2]).glob("*/*.log")) + list(Path(sys.argv[2]).glob("*.log")):
        time.sleep(0.01)
    time.sleep(0.5)  # until the loop has nothing to do but wait
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=signal_this_thread).start()
manifest = json.loads(Path(sys.argv[1]).read_text())
status = local.run(manifest, name="w", storage=Path(sys.argv[3]), logs=Path(sys.argv[2]))
print(status.phase, status.interrupted)
"""


def test_a_signal_that_reaches_another_thread_or_comes_just_before_the_loop_waits(
    tmp_path: Path,
) -> None:
    """It was seen at the next event, which in a training is its end. A signal to another thread is
    never seen by the waiting main thread, so it shows the same without luck."""
    manifest = tmp_path / "w.json"
    manifest.write_text(json.dumps(workflow([task("a", "leaf")], pod("leaf", SLEEPING))))
    folders = [str(tmp_path / name) for name in ("logs", "storage")]
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_ELSEWHERE, str(manifest), *folders],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.stdout.splitlines()[-1:] == ["Failed True"], ended.stderr


def test_a4_sigterm_still_stops_what_nohup_started(tmp_path: Path) -> None:
    process = start(
        tmp_path, workflow([task("a", "leaf")], pod("leaf", SLEEPING)), ignored="HUP INT"
    )
    pids(tmp_path, pods=1)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert process.returncode == 130


def test_c20_a_pod_dies_with_its_supervisor_when_nobody_else_can_kill_it(tmp_path: Path) -> None:
    """Defect C20 of docs/faults.md: only PR_SET_PDEATHSIG is left when the engine stands still."""
    process = start(tmp_path, workflow([task("a", "leaf")], pod("leaf", SLEEPING)))
    (running,) = pids(tmp_path, pods=1)
    process.send_signal(signal.SIGSTOP)
    os.kill(parent(running), signal.SIGKILL)
    until(lambda: is_gone(running))
    process.send_signal(signal.SIGCONT)
    finish(process)
    assert process.returncode == 1
