"""Slurm as the tests use it: commands as a person would type them, and what Slurm says of the jobs
afterwards.

`make test-slurm` starts a small Slurm on this machine and exports what is read here: SLURM_CONF, and SLURM,
the folder with the scripts `up` and `down`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SMALL = Path(__file__).with_name("small.yaml")
BEGAN = time.strftime("%Y-%m-%dT%H:%M:%S")
"""The controller remembers jobs for an hour, also those of an earlier run of these tests."""
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sacct")
FIELD = re.compile(r"(\S+?)=(\S*)")


@dataclass(frozen=True)
class Job:
    """What `scontrol show job` says of a job."""

    id: str
    fields: dict[str, str]

    @property
    def name(self) -> str:
        return self.fields["JobName"]

    @property
    def state(self) -> str:
        return self.fields["JobState"]

    @property
    def seconds(self) -> float:
        """Between its start and its end."""
        began, ended = (
            time.mktime(time.strptime(self.fields[name], "%Y-%m-%dT%H:%M:%S"))
            for name in ("StartTime", "EndTime")
        )
        return ended - began

    @property
    def has_gpu(self) -> bool:
        return "gres/gpu" in self.fields.get("TRES", "") or "gpu" in self.fields.get(
            "TresPerNode", ""
        )


def why_not() -> str | None:
    """The reason why Slurm cannot be used, or None where it is up."""
    if not os.environ.get("SLURM_CONF"):
        return "no Slurm: SLURM_CONF is not set; `make test-slurm` starts one"
    if shutil.which("sinfo") is None:
        return "no Slurm: sinfo is not installed"
    try:
        answer = subprocess.run(
            ["sinfo", "--noheader"], capture_output=True, text=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired as error:
        return f"no Slurm: {error}"
    return None if answer.returncode == 0 else f"no Slurm: {answer.stderr.strip()[:200]}"


def command(*words: str, check: bool = True) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if check and ended.returncode:
        raise AssertionError(f"{' '.join(words)}: {ended.stdout[-500:]}{ended.stderr[-500:]}")
    return ended.stdout


def start(
    folder: Path,
    *words: str,
    module: str = "workflows.submit",
    variables: Mapping[str, str] | None = None,
    user: pwd.struct_passwd | None = None,
) -> subprocess.Popen[str]:
    """A command of this project in a folder, in the background. user: whose it is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **({} if user is None else as_user(user)),
    )


def as_user(user: pwd.struct_passwd) -> dict[str, Any]:
    """Arguments of `Popen`."""
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def run(
    folder: Path,
    *words: str,
    timeout_s: float = 600,
    module: str = "workflows.submit",
    variables: Mapping[str, str] | None = None,
    user: pwd.struct_passwd | None = None,
) -> tuple[int, str]:
    """The same, to its end; the exit code and what it printed."""
    with start(folder, *words, module=module, variables=variables, user=user) as process:
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            raise AssertionError(f"still running after {timeout_s} s:\n{out[-3000:]}") from None
    return process.returncode, out


def parameters(**given: object) -> list[str]:
    return [word for name, value in given.items() for word in ("-p", f"{name}={value}")]


def jobs(name: str = "") -> list[Job]:
    """The jobs that these tests have submitted, of workflows whose names begin so."""
    found = []
    for record in command("scontrol", "show", "job", "--oneliner").splitlines():
        fields = dict(FIELD.findall(record))
        is_ours = fields.get("JobName", "").startswith(name) and "JobId" in fields
        if is_ours and fields["SubmitTime"] >= BEGAN:
            found.append(Job(fields["JobId"], fields))
    return found


def queued() -> list[str]:
    return command("squeue", "--noheader", "--array", "--format=%i").split()


def empty_the_queue() -> None:
    if ids := queued():
        command("scancel", *ids, check=False)
        wait_for("an empty queue", lambda: not queued(), timeout_s=60)


def wait_for(what: str, is_there: Callable[[], object], *, timeout_s: float = 120) -> None:
    ends_s = time.monotonic() + timeout_s
    while not is_there():
        if time.monotonic() > ends_s:
            raise AssertionError(f"no {what} within {timeout_s:g} s")
        time.sleep(0.1)


def running(name: str, template: str) -> list[str]:
    """The ids of running jobs of a template."""
    listed = command("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i|%j")
    pairs = [line.split("|") for line in listed.splitlines()]
    return [id_ for id_, job in pairs if re.match(rf"{name}-{template}-\d+\.", job)]


def submissions(name: str) -> list[str]:
    """The names of all submissions of a workflow, arrays once each."""
    ids = {}
    for job in jobs(name):
        ids[job.fields.get("ArrayJobId", job.id)] = job.name
    return list(ids.values())


def noted_calls(folder: Path) -> dict[str, str]:
    """Variables with which each call of Slurm's commands is noted before it is made, in `folder/calls`."""
    folder.mkdir()
    for name in COMMANDS:
        if (real := shutil.which(name)) is not None:
            wrapper = folder / name
            wrapper.write_text(
                f'#!/bin/sh\necho "{name} $(date +%s.%N)" >> "{folder}/calls"\nexec {real} "$@"\n'
            )
            wrapper.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def questions(folder: Path) -> list[float]:
    """When Slurm was asked something, of the noted calls."""
    lines = [line.split() for line in (folder / "calls").read_text().splitlines()]
    return [float(at) for name, at in lines if name in ("squeue", "scontrol", "sacct")]


def state() -> Path:
    """The folder of the cluster's own files."""
    return Path(os.environ["SLURM_CONF"]).parent


def stop_daemon(name: str, number: signal.Signals = signal.SIGTERM) -> None:
    """End the controller, or a node, and wait until it is gone. Its jobs go on."""
    pid = int((state() / f"run/{name}.pid").read_text())
    os.kill(pid, number)
    wait_for(f"end of {name}", lambda: not Path(f"/proc/{pid}").exists(), timeout_s=30)


@contextlib.contextmanager
def controller_with(**settings: object) -> Iterator[None]:
    """The controller with other settings of slurm.conf, meanwhile."""
    conf = Path(os.environ["SLURM_CONF"])
    before = conf.read_text()
    kept = [line for line in before.splitlines() if line.partition("=")[0] not in settings]
    given = [f"{name}={value}" for name, value in settings.items()]
    try:
        _restart_controller("\n".join([*kept, *given, ""]))
        yield
    finally:
        _restart_controller(before)


def _restart_controller(content: str) -> None:
    conf = Path(os.environ["SLURM_CONF"])
    stop_daemon("slurmctld")
    conf.write_text(content)
    command("slurmctld", "-f", str(conf))
    # It refuses GPUs until their nodes have registered.
    ask = ["sbatch", "--test-only", "--partition=gpu", "--gres=gpu:1", "--wrap=true"]
    wait_for("nodes", lambda: subprocess.run(ask, check=False, capture_output=True).returncode == 0)


@contextlib.contextmanager
def nodes_that_see_late(folder: Path, seconds: int, sign: Path) -> Iterator[None]:
    """Nodes for which a folder is empty until so many seconds after a file exists."""
    nodes = [
        path.stem.removeprefix("slurmd-") for path in sorted((state() / "run").glob("slurmd-*.pid"))
    ]
    for node in nodes:
        stop_daemon(f"slurmd-{node}")
    script = "\n".join(
        [
            "set -e",
            "mount --make-rprivate /",
            f"mount -t tmpfs none {folder}",
            *(f"slurmd -f $SLURM_CONF -N {node}" for node in nodes),
            f"while [ ! -e {sign} ]; do sleep 0.1; done",
            f"sleep {seconds}",
            f"umount --lazy {folder}",
        ]
    )
    late = subprocess.Popen(["unshare", "--mount", "sh", "-c", script])
    try:
        wait_for("nodes", lambda: len(_idle_nodes()) == len(nodes), timeout_s=60)
        yield
    finally:
        late.kill()
        late.wait()
        for node in nodes:
            stop_daemon(f"slurmd-{node}")
            command("slurmd", "-f", os.environ["SLURM_CONF"], "-N", node)
        wait_for("nodes", lambda: len(_idle_nodes()) == len(nodes), timeout_s=60)


def _idle_nodes() -> set[str]:
    words = ["sinfo", "--noheader", "--Node", "--states=idle,mixed,allocated", "--format=%N %T"]
    lines = [line.split() for line in command(*words).splitlines()]
    return {node for node, state in lines if not state.endswith("*")}
