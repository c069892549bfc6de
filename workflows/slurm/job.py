"""Runs one pod in a job of Slurm: `python -I job.py STATE BATCH SECONDS [DESCRIPTOR]`, on a node.

A program of its own, with the standard library only. It waits for its order, for a shared directory may
be late by SECONDS; makes the pod's scratch folders; executes the command with its output in the pod's log;
and leaves how it ended in `ends/`. From DESCRIPTOR it reads the variables as they were before the lines of
`setup`; what these have changed is given to the pod. Of two jobs with the same order, which a submission
without an answer can cause, only the one that first writes its id into `claims/` runs the pod. None begins
when its workflow has ended.

SIGTERM (scancel, a preemption) and SIGUSR1 (the time limit is near) become SIGTERM of the pod. A pod that
was ended by one of them may be begun again by Slurm under the same id; a pod that ended by itself is not
run twice.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

POLL_S = 0.1
CANNOT_EXECUTE = 64
WARNED_EARLY_S = 5.0
WARNED_EARLIEST_S = 60.0
"""Slurm may warn up to a minute too early. A later warning is due, whatever limit this job knows: it may
have been shortened since.
"""
ADDRESS, NODE = "@the-address-of-the-node@", "@the-name-of-the-node@"
"""Stand in an order for what is known on the node only."""
SIOCGIFADDR = 0x8915
GPUS = "CUDA_VISIBLE_DEVICES"
NOT_OF_SETUP = re.compile(rf"(SLURM_|SBATCH_|BASH_FUNC_).*|_|SHLVL|PWD|OLDPWD|{GPUS}", re.DOTALL)
"""Variables that concern the job or its shell alone, and the GPUs, which Slurm gives."""


class Signals:
    """What this job was asked to do."""

    def __init__(self) -> None:
        self.unsent = 0
        self.terminated = False
        self.warned_s: float | None = None
        self.saving = False
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGUSR1, self._warn)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
        self.unsent += 1

    def _warn(self, number: int, frame: FrameType | None) -> None:
        if self.warned_s is None:
            self.warned_s = time.monotonic()


class Ended:
    """A file in `ends/`. Beside the claim stands how often the job that runs the pod had been begun again:
    on a node that was taken for dead an earlier beginning may live on, and must not tell its end.
    """

    def __init__(self, state: Path, key: str) -> None:
        self.path = state / "ends" / f"{key}.json"
        self.latest = state / "claims" / f".{key}.restarts"

    def read(self) -> dict[str, Any] | None:
        """What an earlier beginning of this job left."""
        try:
            said: dict[str, Any] = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        return said

    def is_outdated(self) -> bool:
        """Whether Slurm has begun this job again since."""
        try:
            return int(self.latest.read_text()) > restarts()
        except (OSError, ValueError):
            return False

    def write(self, code: int, signals: Signals, error: str = "") -> None:
        """Leave an end, which appears as a whole, unless it is that of an outdated beginning."""
        if self.is_outdated():
            print(
                f"{self.path.stem} was begun again; the end of this beginning is not told",
                flush=True,
            )
            return
        said = {
            "code": code, "terminated": signals.terminated, "warned": signals.saving, "error": error, "job": job_id(),
            "restarts": restarts(), "host": node(), "at": now(),
        }  # fmt: skip
        write(self.path, json.dumps(said))


def main(state: Path, batch: str, late_s: float, before: int | None = None) -> int:
    """Run the pod. Returns the exit code of its command."""
    signals = Signals()
    began_s = time.monotonic() - past_s()
    setup = {} if before is None else set_since(before)
    index = os.environ.get("SLURM_ARRAY_TASK_ID", "0")
    order = awaited(state / "orders" / batch / f"{index}.json", late_s, signals)
    key = order["key"]
    ended = Ended(state, key)
    if not claimed(state / "claims" / key):
        print(f"{key} belongs to another job, {(state / 'claims' / key).read_text()}", flush=True)
        return 0
    said = ended.read()
    if (state / "verdicts" / f"{key}.json").exists() or (
        said is not None and not said["terminated"] and not said["warned"]
    ):
        print(f"{key} has ended before", flush=True)
        return 0
    if ended.is_outdated() or (state / "closed").exists():
        print(f"{key} was begun again, or its workflow has ended", flush=True)
        return 0
    write(ended.latest, str(restarts()))
    ended.path.unlink(missing_ok=True)
    if order["log"]:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    try:
        code, error = run(order, setup, signals, began_s)
        ended.write(code, signals, error)  # first: the removal may outlast the time limit
    finally:
        if order["scratch"]:
            shutil.rmtree(order["scratch"], ignore_errors=True)
    return code


def awaited(path: Path, late_s: float, signals: Signals) -> dict[str, Any]:
    """Read an order as soon as this node sees it."""
    ends_s = time.monotonic() + late_s
    while True:
        try:
            order: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError):
            if time.monotonic() > ends_s or signals.terminated:
                print(f"{path} has not been seen for {late_s:g} s", flush=True)
                raise
            time.sleep(POLL_S)
            continue
        return order


def claimed(path: Path) -> bool:
    """Whether the pod is this job's, now or since it was begun for the first time."""
    temporary = path.with_name(f".{path.name}.{job_id()}.{os.getpid()}")
    temporary.write_text(job_id())
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)  # also over NFS one link of several succeeds
    temporary.unlink()
    return path.read_text() == job_id()


def run(
    order: dict[str, Any], setup: dict[str, str], signals: Signals, began_s: float
) -> tuple[int, str]:
    """Execute the command and wait for its end. Returns its exit code and why it cannot be executed."""
    try:
        make_folders(order)
        child = subprocess.Popen(
            [replaced(word, order) for word in order["arguments"]],
            env=environment(order, setup),
            cwd=order["folder"],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return CANNOT_EXECUTE, f"{error.strerror}: {error.filename}"
    while child.poll() is None:
        if is_time_to_save(order, signals, began_s):
            signals.unsent += not signals.saving
            signals.saving = True
        if signals.unsent:
            signals.unsent = 0
            signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(POLL_S)
    signal_group(child.pid, signal.SIGKILL)
    code = child.returncode
    return (128 - code if code < 0 else code), ""


def make_folders(order: dict[str, Any]) -> None:
    """Make the pod's folders on this node, for its owner alone. Raises `OSError`, also where the folder
    is someone else's.
    """
    if order["scratch"]:
        scratch = Path(order["scratch"])
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch.chmod(0o700)
    for folder in order["folders"]:
        Path(folder).mkdir(parents=True, exist_ok=True)


def past_s() -> float:
    """How long this job's script had run before this program."""
    try:
        return max(0.0, time.time() - float(os.environ["RL_BEGAN"]))
    except (KeyError, ValueError):
        return 0.0


def is_time_to_save(order: dict[str, Any], signals: Signals, began_s: float) -> bool:
    """Whether the job's limit is near: by its own clock, or by a warning of Slurm, which with a known
    limit is passed on when it is time, but not much later than it came.
    """
    clock_s = time.monotonic()
    warned_s = signals.warned_s
    if order["limit_s"] is None:
        return warned_s is not None
    early_s = float(order["limit_s"] - order["warning_s"]) - (clock_s - began_s)
    if warned_s is None:
        return early_s <= 0
    return early_s <= WARNED_EARLY_S or clock_s - warned_s >= WARNED_EARLIEST_S


def set_since(descriptor: int) -> dict[str, str]:
    """The variables that were set or changed since `env -0` printed them to this descriptor."""
    with open(descriptor, "rb") as file:
        before = file.read().split(b"\0")
    # Python may have set LC_CTYPE in os.environ itself.
    after = Path("/proc/self/environ").read_bytes().split(b"\0")
    changed = [os.fsdecode(entry).partition("=") for entry in after if entry not in before]
    return {name: value for name, _, value in changed if not NOT_OF_SETUP.fullmatch(name)}


def environment(order: dict[str, Any], setup: dict[str, str]) -> dict[str, str]:
    """The pod's variables: those of its order, and the GPUs that Slurm gave to this job. What `setup` has
    set replaces what the order has from the login node, and nothing that is the pod's own.
    """
    values = {GPUS: os.environ.get(GPUS, "") if order["gpus"] else ""}
    for name in ("ROCR_VISIBLE_DEVICES", "PATH"):
        if name in os.environ:
            values[name] = os.environ[name]
    given = {name: replaced(value, order) for name, value in order["environment"].items()}
    values |= given | setup | {name: given[name] for name in order["own"]}
    if order["in_container"]:
        # Apptainer passes these on although it cleans the environment.
        inside = {name: values[name] for name in [*order["inside"], GPUS]}
        values |= {f"APPTAINERENV_{name}": value for name, value in inside.items()}
        if "PATH" in setup:
            values["PATH"] = setup["PATH"]  # where Apptainer is; the image has one of its own
    return values


def replaced(text: str, order: dict[str, Any]) -> str:
    """The text with what is known on the node."""
    if ADDRESS in text:
        text = text.replace(ADDRESS, address(order["address"]))
    return text.replace(NODE, node())


def node() -> str:
    """The node's name, as Slurm knows it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def address(wanted: str) -> str:
    """Where other nodes reach this one."""
    if wanted == "name":
        return socket.gethostname()
    kind, _, interface = wanted.partition(":")
    if kind == "interface":
        return address_of(interface)
    with contextlib.suppress(OSError):
        found = socket.gethostbyname(socket.gethostname())
        if not found.startswith("127."):
            return found
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent; the route decides
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def address_of(interface: str) -> str:
    """The address of a network interface."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("256s", interface.encode()[:15])
        answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, asked)
    return socket.inet_ntoa(answer[20:24])


def job_id() -> str:
    """The id of this job, as squeue shows it."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ["SLURM_JOB_ID"]


def restarts() -> int:
    """How often Slurm has begun this job again."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def signal_group(pid: int, number: int) -> None:
    """Signal the pod's processes, if there are any left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def write(path: Path, text: str) -> None:
    """Write a file that appears at once."""
    temporary = path.with_name(f".{path.name}.{job_id()}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def now() -> str:
    """The time in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat()  # noqa: UP017 - also Python 3.10


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *map(int, sys.argv[4:])))
