"""A Slurm of one file, for failures and late answers: `sbatch`, `squeue`, `scancel`, `scontrol` and `sacct` as far as
the executor uses them, on PATH. Jobs are processes of this machine; what goes wrong is written into the
folder of SCRIPTED_SLURM:

    failures   a number: so many calls of sbatch still fail; with `after` they fail after the job has arrived
    late       seconds that sbatch takes to answer, after the job has arrived
    not-tested `sbatch --test-only` refuses everything
    refusal    what sbatch says to every submission
    held       jobs wait as long as it is there
    largest    number of jobs for which the queue has room at once
    down       squeue fails as long as it is there
    forgets    ended jobs are not listed
    accounting sacct knows ended jobs
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sacct")
ROOT = Path(os.environ.get("SCRIPTED_SLURM", "."))


class ScriptedSlurm:
    """The test's side."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir(parents=True)
        (root / "jobs").mkdir()
        for command in COMMANDS:
            program = self.bin / command
            program.write_text(
                f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" {command} "$@"\n'
            )
            program.chmod(0o755)

    def set(self, name: str, value: object = "") -> None:
        (self.root / name).write_text(str(value))

    def unset(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def calls(self, command: str) -> list[float]:
        """When a command was called."""
        path = self.root / f"{command}.calls"
        return [float(line) for line in path.read_text().split()] if path.exists() else []

    def jobs(self) -> dict[str, dict[str, object]]:
        found = sorted((self.root / "jobs").glob("*.json"), key=lambda path: path.stat().st_mtime)
        return {path.stem: json.loads(path.read_text()) for path in found}

    def end(self, job: str, state: str) -> None:
        """End a job as Slurm itself does when its node fails, say: its processes die at once."""
        known = read(self.root, job)
        write(self.root, job, known | {"state": state})
        kill(known, signal.SIGKILL)

    def begin_again(self, job: str) -> None:
        """Requeue a job: SIGTERM, then the same id once more."""
        known = read(self.root, job)
        kill(known, signal.SIGTERM)
        write(self.root, job, known | {"state": "PENDING", "restarts": 1, "pid": 0})
        launch(self.root, job)


def read(root: Path, job: str) -> dict[str, object]:
    known: dict[str, object] = json.loads((root / "jobs" / f"{job}.json").read_text())
    return known


def write(root: Path, job: str, known: dict[str, object]) -> None:
    path = root / "jobs" / f"{job}.json"
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(known))
    temporary.replace(path)


def kill(known: dict[str, object], number: int) -> None:
    if known["pid"]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(str(known["pid"])), number)


def launch(root: Path, job: str) -> None:
    words = [sys.executable, "-I", "-S", __file__, "run", job]
    environment = {**os.environ, "SCRIPTED_SLURM": str(root)}
    in_the_background = ["sh", "-c", 'setsid "$@" < /dev/null > /dev/null 2>&1 &', "sh", *words]
    subprocess.run(in_the_background, env=environment, check=True)


def run(job: str) -> None:
    """Wait while jobs are held, run the script, note its end."""
    while (ROOT / "held").exists() or "reason" in read(ROOT, job):
        time.sleep(0.02)
        if read(ROOT, job)["state"] != "PENDING":
            return
    known = read(ROOT, job)
    base, _, index = job.partition("_")
    values = {"SLURM_JOB_ID": base, "SLURMD_NODENAME": "scripted"}
    if index:
        values |= {"SLURM_ARRAY_JOB_ID": base, "SLURM_ARRAY_TASK_ID": index}
    if known["restarts"]:
        values["SLURM_RESTART_COUNT"] = str(known["restarts"])
    script = ROOT / "jobs" / f"{job}.sh"
    script.write_text(str(known["script"]))
    process = subprocess.Popen(
        ["bash", str(script)], env={**os.environ, **values}, start_new_session=True
    )
    write(ROOT, job, known | {"state": "RUNNING", "pid": process.pid})
    code = process.wait()
    ended = read(ROOT, job)
    if ended["state"] == "RUNNING" and ended["pid"] == process.pid:
        state = "CANCELLED" if ended.get("cancelled") else "COMPLETED" if code == 0 else "FAILED"
        write(ROOT, job, ended | {"state": state, "code": code})


def sbatch(arguments: list[str]) -> int:
    refusal = ROOT / "refusal"
    if refusal.exists():
        print(f"sbatch: error: {refusal.read_text()}", file=sys.stderr)
        return 1
    if "--test-only" in arguments:
        if (ROOT / "not-tested").exists():
            print("sbatch: error: allocation failure: invalid partition", file=sys.stderr)
            return 1
        said = "Job 1 to start at 2026-01-01T00:00:00 using 1 processors on nodes n in partition p"
        print(f"sbatch: {said}", file=sys.stderr)
        return 0
    failures = ROOT / "failures"
    after = (ROOT / "after").exists()
    left = int(failures.read_text()) if failures.exists() else 0
    if left:
        failures.write_text(str(left - 1))
    if left and not after:
        print("sbatch: error: Unable to contact slurm controller", file=sys.stderr)
        return 1
    given = dict(one.removeprefix("--").partition("=")[::2] for one in arguments)
    count = int(given["array"].partition("-")[2]) + 1 if "array" in given else 0
    largest = ROOT / "largest"
    if largest.exists() and count > int(largest.read_text()):
        print(
            "sbatch: error: Job violates accounting/QOS policy (job submit limit)", file=sys.stderr
        )
        return 1
    base = 1
    while True:
        try:
            (ROOT / f"id-{base}").mkdir()
            break
        except FileExistsError:
            base += 1
    script = sys.stdin.read()
    for job in [f"{base}_{index}" for index in range(count)] or [str(base)]:
        job_state = {"name": given["job-name"], "state": "PENDING", "pid": 0, "code": 0}
        write(ROOT, job, {**job_state, "restarts": 0, "script": script, "options": arguments})
        launch(ROOT, job)
    if left:
        print("sbatch: error: Socket timed out on send/recv operation", file=sys.stderr)
        return 1
    if (ROOT / "late").exists():
        time.sleep(float((ROOT / "late").read_text()))
    print(base)
    return 0


def squeue(arguments: list[str]) -> int:
    if (ROOT / "down").exists():
        print("slurm_load_jobs error: Unable to contact slurm controller", file=sys.stderr)
        return 1
    of_one = next((one.partition("=")[2] for one in arguments if one.startswith("--jobs=")), "")
    if of_one:
        print(read(ROOT, of_one)["state"])
        return 0
    for path in (ROOT / "jobs").glob("*.json"):
        known = json.loads(path.read_text())
        is_over = known["state"] not in ("PENDING", "RUNNING")
        if not (is_over and (ROOT / "forgets").exists()):
            print(f"{path.stem}|{known['state']}|{known.get('reason')}|{known['name']}")
    return 0


def scancel(arguments: list[str]) -> int:
    options = [one for one in arguments if one.startswith("-")]
    for job in (one for one in arguments if not one.startswith("-")):
        known = read(ROOT, job)
        is_pending = known["state"] == "PENDING"
        number = next((one.partition("=")[2] for one in options if "--signal" in one), "")
        if is_pending and not number:
            write(ROOT, job, known | {"state": "CANCELLED"})
        elif known["state"] == "RUNNING" and "--state=PENDING" not in options:
            if not number:
                write(ROOT, job, known | {"cancelled": True})
            kill(known, getattr(signal, f"SIG{number or 'TERM'}"))
    return 0


def scontrol(arguments: list[str]) -> int:
    code = int(str(read(ROOT, arguments[-1])["code"]))
    print(f"JobId={arguments[-1]} ExitCode={max(code, 0)}:{max(-code, 0)}")
    return 0


def sacct(arguments: list[str]) -> int:
    if not (ROOT / "accounting").exists():
        print("Slurm accounting storage is disabled", file=sys.stderr)
        return 1
    job = next(one.partition("=")[2] for one in arguments if one.startswith("--jobs="))
    known = read(ROOT, job)
    by_whom = " by 0" if known["state"] == "CANCELLED" else ""
    print(f"{known['state']}{by_whom}|{max(int(str(known['code'])), 0)}:0")
    return 0


def main(command: str, arguments: list[str]) -> int:
    with (ROOT / f"{command}.calls").open("a") as file:
        file.write(f"{time.monotonic()}\n")
    if command == "run":
        run(arguments[0])
        return 0
    if command == "squeue":
        return squeue(arguments)
    return {"sbatch": sbatch, "scancel": scancel, "scontrol": scontrol, "sacct": sacct}[command](
        arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
