"""The local engine as a command: exit codes, interruption by signals, and SIGKILL, with real
processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.workflows.local.local_workflows import Document, pod, task, workflow
from tests.waiting import PATIENCE_S, until

SLEEPING = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(3600)"
FAMILY = (
    "import subprocess, sys, os, time;"
    "child = [sys.executable, '-c', 'import time; time.sleep(3600)'];"
    "pids = [subprocess.Popen(child).pid, subprocess.Popen(child, start_new_session=True).pid, os.getpid()];"
    "print('pids', *pids, flush=True); time.sleep(3600)"
)
STUBBORN = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('pid', os.getpid(), flush=True); time.sleep(3600)"
SAVING = (
    "import os, signal, sys, time;"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75));"
    "print('pid', os.getpid(), flush=True); time.sleep(3600)"
)


def start(
    folder: Path, manifest: Document, *arguments: str, ignored: str = ""
) -> subprocess.Popen[str]:
    """ignored: signals that the engine is started to ignore, as `nohup` does."""
    (folder / "w.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "workflows.local",
        str(folder / "w.yaml"),
        "--status",
        str(folder / "status.json"),
    ]
    command += ["--storage", str(folder / "storage"), "--logs", str(folder / "logs"), *arguments]
    if ignored:
        command = ["sh", "-c", f'trap "" {ignored}; exec "$@"', "sh", *command]
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run_to_end(folder: Path, manifest: Document, *arguments: str) -> tuple[int, str]:
    process = start(folder, manifest, *arguments)
    output, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output


def pids(folder: Path, pods: int) -> list[int]:
    """The process numbers that so many pods have printed."""

    def found() -> list[int]:
        lines = [
            line
            for log in (folder / "logs").glob("*.log")
            for line in log.read_text().splitlines()
            if line.startswith("pid")
        ]
        return (
            [int(number) for line in lines for number in re.findall(r"\d+", line)]
            if len(lines) >= pods
            else []
        )

    return list(until(found))


def is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def status(folder: Path) -> Any:
    return json.loads((folder / "status.json").read_text(encoding="utf-8"))


def node(folder: Path, name: str) -> Any:
    return next(node for node in status(folder)["nodes"].values() if node["name"] == name)


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    return output


@pytest.mark.parametrize(
    ("program", "code", "phase"),
    [
        ("pass", 0, "Succeeded"),
        ("import sys; sys.exit(7)", 1, "Failed"),
        ("{{=asInt('x')}}", 1, "Failed"),
    ],
)
def test_exit_codes_tell_the_phase(tmp_path: Path, program: str, code: int, phase: str) -> None:
    ended, output = run_to_end(tmp_path, workflow([task("a", "leaf")], pod("leaf", program)))
    assert (ended, status(tmp_path)["phase"], output.splitlines()[-1].split(":")[1].strip()) == (
        code,
        phase,
        phase,
    )


@pytest.mark.parametrize(
    ("manifest", "arguments", "named"),
    [
        (
            workflow([task("a", "leaf")], pod("leaf", script={"image": "x"})),
            [],
            "spec.templates[leaf].script",
        ),
        (workflow([task("a", "leaf")], pod("leaf")), ["-p", "nothing"], "allowed: -p name=value"),
        (workflow([task("a", "leaf")], pod("leaf")), ["-p", "a=1", "-p", "a=2"], "given twice"),
        (workflow([task("a", "leaf")], pod("leaf")), ["--name", "No Good"], "workflow name"),
    ],
)
def test_what_is_refused_starts_nothing(
    tmp_path: Path, manifest: Document, arguments: list[str], named: str
) -> None:
    code, output = run_to_end(tmp_path, manifest, *arguments)
    assert code == 2
    assert output.startswith("refused: ") and named in output and output.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.yaml"]


def test_hostile_yaml_is_refused(tmp_path: Path) -> None:
    for text in (
        "a: &x [*x]",
        "!!python/object/apply:os.system ['true']",
        "{",
        "- 1",
        "a: 1\na: 2",
        "\x00",
        "[" * 5000,
    ):
        (tmp_path / "bad.yaml").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "workflows.local", str(tmp_path / "bad.yaml")]
        ended = subprocess.run(
            command,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), (
            ended.stderr
        )


def test_a_deadline_by_option(tmp_path: Path) -> None:
    code, _ = run_to_end(
        tmp_path, workflow([task("a", "leaf")], pod("leaf", SLEEPING)), "--deadline", "0.5"
    )
    assert (code, node(tmp_path, "w.a")["message"]) == (1, "Step exceeded its deadline")


@pytest.mark.parametrize(
    "numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM] * 3, [signal.SIGHUP]]
)
def test_an_interrupt_is_argo_stop(tmp_path: Path, numbers: list[signal.Signals]) -> None:
    templates = [
        pod("leaf", SAVING, retryStrategy={"limit": "9", "retryPolicy": "Always"}),
        pod("bye", "import sys; print(sys.argv[1])", "{{workflow.status}}"),
    ]
    process = start(
        tmp_path, workflow([task("a", "leaf"), task("b", "leaf")], *templates, onExit="bye")
    )
    running = pids(tmp_path, pods=2)
    for number in numbers:
        process.send_signal(number)
    finish(process)
    assert process.returncode == 130
    assert all(is_gone(pid) for pid in running)
    ended = status(tmp_path)
    assert (ended["phase"], ended["message"], node(tmp_path, "w.onExit")["phase"]) == (
        "Failed",
        "Stopped with strategy 'Stop'",
        "Succeeded",
    )
    assert len([name for name in ended["nodes"] if name]) == 1 + 2 * 2 + 1, (
        "nothing was tried again"
    )


@pytest.mark.slow
def test_a_second_interrupt_kills(tmp_path: Path) -> None:
    manifest = workflow(
        [task("a", "leaf")],
        pod("leaf", STUBBORN, podSpecPatch='{"terminationGracePeriodSeconds":3600}'),
        pod("bye"),
        onExit="bye",
    )
    process = start(tmp_path, manifest)
    running = pids(tmp_path, pods=1)
    process.send_signal(signal.SIGINT)
    until(lambda: node(tmp_path, "w.a")["phase"] == "Failed")
    time.sleep(2.1)  # a signal that comes earlier is the same wish
    assert not is_gone(running[0]), "the first interrupt leaves the grace period"
    process.send_signal(signal.SIGINT)
    finish(process)
    assert (process.returncode, is_gone(running[0])) == (130, True)


@pytest.mark.parametrize("victim", ["engine", "group", "supervisor"])
def test_sigkill_leaves_no_orphans(tmp_path: Path, victim: str) -> None:
    """Children, grandchildren in sessions of their own, and the pods' folders are gone at once."""
    process = start(
        tmp_path,
        workflow(
            [task("a", "leaf"), task("b", "leaf")],
            pod("leaf", FAMILY if victim != "supervisor" else SLEEPING),
        ),
    )
    running = pids(tmp_path, pods=2)
    supervisor = int(Path(f"/proc/{running[-1]}/stat").read_text().rpartition(")")[2].split()[1])
    if victim == "group":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        os.kill(process.pid if victim == "engine" else supervisor, signal.SIGKILL)
    killed_s = time.monotonic()
    until(lambda: all(is_gone(pid) for pid in [*running, supervisor]))
    assert time.monotonic() - killed_s < 5
    finish(process)
    if victim == "supervisor":
        assert (process.returncode, node(tmp_path, "w.a")["message"]) == (
            1,
            "task 'w.a' errored: the supervisor of the pods was killed",
        )


def test_a_new_submission_goes_on_at_once_after_sigkill(tmp_path: Path) -> None:
    process = start(tmp_path, workflow([task("a", "leaf")], pod("leaf", SLEEPING)))
    pids(tmp_path, pods=1)
    process.kill()
    finish(process)
    code, _ = run_to_end(tmp_path, workflow([task("a", "leaf")], pod("leaf")))
    assert (code, status(tmp_path)["phase"]) == (0, "Succeeded")


def test_importing_the_engine_is_fast_and_light() -> None:
    program = "import sys, workflows.local; print(sorted({'torch', 'hera', 'numpy', 'pandas', 'gymnasium'} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "[]\n"
