"""Slurm as the tests use it: commands as a person would type them, and what Slurm says of the jobs
afterwards.

`make test-slurm` starts a small Slurm on this machine and exports what is read here: SLURM_CONF, and SLURM,
the folder with the scripts `up` and `down`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = Path(__file__).with_name("small.yaml")
BEGAN = time.strftime("%Y-%m-%dT%H:%M:%S")
"""The controller remembers jobs for an hour, also those of an earlier run of these tests."""
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


def start(folder: Path, *words: str, module: str = "workflows.submit") -> subprocess.Popen[str]:
    """A command of this project in a folder, in the background."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(
    folder: Path, *words: str, timeout_s: float = 600, module: str = "workflows.submit"
) -> tuple[int, str]:
    """The same, to its end; the exit code and what it printed."""
    with start(folder, *words, module=module) as process:
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
