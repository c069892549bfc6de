"""One variant from its clone to its verdict."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.machines.conditions import Setup
from tests.machines.machine import ROOT

LAUNCHER = Path(__file__).with_name("launcher.py")
RUNS = 2
PARAMETERS = {
    "game": "cartpole", "runs": RUNS, "epochs": 40, "evaluation_episodes": 5,
    "device": "cpu", "precision": "fp32", "outdir": "results/cartpole",
}  # fmt: skip
"""Short, and with nothing that the machine decides: the files of all variants are compared byte by
byte."""
PIPELINE = (
    "-m",
    "workflows.submit",
    "ppo",
    "--local",
    *(f"-p={name}={value}" for name, value in PARAMETERS.items()),
)
IN_PARALLEL = ("--numprocesses", "2", "--dist", "worksteal")
COMPUTED = (
    "a2c", "action_masks", "alphazero", "async_sac", "central_*", "config_presets",
    "connect_four_value", "dqn_*", "elo", "gumbel", "impala_*", "learning", "learning_together",
    "lstm", "mutants", "n_step", "newest_network", "no_velocity", "optimisers", "policy_weights",
    "ppo_*", "preset_sources*", "priorities", "r2d2_*", "recurrent_*", "replay", "replay_queue",
    "residual_network", "sac_*", "search", "search_strength", "selfplay_*", "sequence_replay", "spaces",
    "td3_*", "torsos*", "training_environments", "twin_critic_*", "unrolls", "vtrace",
    "weights_buffer",
)  # fmt: skip
"""test_….py below tests/unit that only compute: losses, networks, searches, replays, presets. No user,
locale, limit, clock or path reaches them, so `make test` runs them and a strange machine does not;
a file that is new runs on both."""
NOT_TRIED = tuple(f"tests/unit/*/test_{name}.py" for name in COMPUTED)
"""For pytest, which takes them as relative to the folder in which it runs: the clone."""
QUICK = "not slow and not cluster and not slurm and not gpu"
ALL_QUICK_TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *IN_PARALLEL, "-m", QUICK)
QUICK_TESTS = (
    *ALL_QUICK_TESTS[:-2],
    *(f"--ignore-glob={glob}" for glob in NOT_TRIED),
    *ALL_QUICK_TESTS[-2:],
)
NO_BROWSER = (*QUICK_TESTS[:-1], f"{QUICK_TESTS[-1]} and not browser")
"""Under a limit of the address space: Chromium reserves more than any machine has."""
COMPARED = tuple(
    f"runs/{run}/{name}.csv" for run in range(RUNS) for name in ("train", "evaluation")
)
LIMIT_S = 600.0
TESTS_LIMIT_S = 2400.0
"""Other variants share the machine, which may be slow."""
GRACE_S = 20.0


class Broken(Exception):
    """What a variant shows not to work."""


def make_clone(setup: Setup) -> None:
    """A clone of what is committed, with an environment of its own."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(setup.clone)]
        subprocess.run(command, check=True, capture_output=True, umask=setup.umask)
    else:
        ignored = shutil.ignore_patterns(
            ".venv*",
            "results",
            "storage",
            "build",
            "*.egg-info",
            "__pycache__",
            ".*_cache",
            ".hypothesis",
        )
        shutil.copytree(ROOT, setup.clone, ignore=ignored)
    if not setup.with_git:
        shutil.rmtree(setup.clone / ".git", ignore_errors=True)
    (setup.folder / "tmp").mkdir()
    if setup.thin_venv:
        make_venv(setup, setup.clone / ".venv")
    if setup.uid is not None:
        subprocess.run(["chown", "-R", f"{setup.uid}:{setup.uid}", setup.folder], check=True)


def make_venv(setup: Setup, venv: Path) -> None:
    """One that takes its packages from the interpreter's own environment: a tenth of a second
    instead of minutes."""
    subprocess.run(
        [setup.python.program, "-I", "-m", "venv", "--without-pip", venv],
        check=True,
        umask=setup.umask,
    )
    packages = next(venv.glob("lib/python3.*/site-packages"))
    (packages / "project.pth").write_text(
        f"{setup.clone}\n{setup.python.packages}\n", encoding="utf-8"
    )
    if setup.blocked:
        lines = [f"sys.modules[{module!r}] = None" for module in setup.blocked]
        (packages / "blocked.py").write_text("\n".join(["import sys", *lines, ""]))
        (packages / "blocked.pth").write_text("import blocked\n")
    if setup.preload:
        (packages / "preloaded.py").write_text(PRELOAD.format(library=str(setup.preload)))
        (packages / "preloaded.pth").write_text("import preloaded\n")


PRELOAD = """import os, sys
if os.environ.get("LD_PRELOAD") != {library!r}:
    os.environ["LD_PRELOAD"] = {library!r}
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
"""
"""In every process, as the local engine hands no LD_PRELOAD to its pods."""


def run(setup: Setup, name: str, *command: str) -> tuple[int, str]:
    """Exit code and output of a command under all conditions of the setup; `Broken` if it does not
    end, or if something outlives it."""
    variables = {"TMPDIR": str(setup.folder / "tmp")}
    if name == "tests":  # as `make test` does
        variables["OMP_NUM_THREADS"] = "1"
    described = {
        "command": command, "environment": setup.environment | variables,
        "directory": str(setup.clone), "reachable": reachable(setup),
    } | {name: getattr(setup, name) for name in ("uid", "umask", "cores", "limits", "mounts", "terminal", "closed")}  # fmt: skip
    description = setup.folder / f"{name}.json"
    description.write_text(json.dumps(described), encoding="utf-8")
    output = setup.folder / f"{name}.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-I", LAUNCHER, description],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    limit_s = TESTS_LIMIT_S if name == "tests" else LIMIT_S
    try:
        code = process.wait(limit_s)
        wait_for_the_end(setup, name)
    except subprocess.TimeoutExpired:
        raise Broken(f"{name} still ran after {limit_s:.0f} s: {last_lines(output)}") from None
    finally:
        kill_left_over(setup)
        process.wait()
    return code, output.read_text(encoding="utf-8", errors="replace")


def reachable(setup: Setup) -> list[str]:
    """Folders that another user must be able to read, where a closed parent is in the way."""
    if setup.uid is None:
        return []
    needed = [setup.python.prefix, setup.python.packages]
    return [
        str(folder)
        for folder in needed
        if any(not parent.stat().st_mode & 0o001 for parent in folder.parents)
    ]


def check_pipeline(setup: Setup) -> dict[str, bytes]:
    """Run the whole experiment; the compared files, or `Broken` with what is missing."""
    code, output = run(setup, "pipeline", setup.program, *PIPELINE)
    if code:
        raise Broken(f"exit code {code}: {tail(output)}")
    outdir = setup.clone / str(PARAMETERS["outdir"])
    if not (outdir / "report.html").is_file():
        raise Broken(f"no report.html: {tail(output)}")
    evaluation = json.loads((outdir / "average/summary.json").read_text(encoding="utf-8"))[
        "evaluation"
    ]
    if evaluation["n"] != RUNS or not math.isfinite(evaluation["mean"]):
        raise Broken(f"evaluation over {evaluation['n']} runs, mean {evaluation['mean']}")
    if left := [path.name for path in (setup.folder / "tmp").iterdir()]:
        raise Broken(f"left in TMPDIR: {', '.join(left)}")
    for path in COMPARED:
        if len(list(csv.reader((outdir / path).open(encoding="utf-8")))) < 3:
            raise Broken(f"{path} is empty")
    return {path: (outdir / path).read_bytes() for path in COMPARED}


def check_refused(setup: Setup, game: str) -> None:
    """A game that cannot be had here is refused with one line and exit code 2."""
    command = (
        setup.program,
        "-m",
        "workflows.submit",
        "ppo",
        "--local",
        f"-p=game={game}",
        "-p=outdir=results/refused",
    )
    code, output = run(setup, "refused", *command)
    if code != 2 or len(output.strip().splitlines()) != 1 or game not in output:
        raise Broken(f"game={game} without its package: exit code {code}: {tail(output)}")


def check_quick_tests(setup: Setup) -> str:
    """Run the quick tests; their last line."""
    code, output = run(
        setup, "tests", setup.program, *(NO_BROWSER if "AS" in setup.limits else QUICK_TESTS)
    )
    if code:
        failed = [
            line for line in output.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))
        ]
        summary = output.strip().splitlines()[-1:]
        raise Broken("\n".join([f"exit code {code}: {' '.join(summary)}", *dict.fromkeys(failed)]))
    return output.strip().splitlines()[-1].strip("= ")


def check_make_run(setup: Setup) -> None:
    """The README's command in the fresh clone, the installation included."""
    code, output = run(
        setup, "make", shutil.which("make") or "make", "run", f"PYTHON={setup.python.program}"
    )
    if code or not (setup.clone / "results/cartpole/report.html").is_file():
        raise Broken(f"make run ended with {code}: {tail(output)}")


def tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-12:])


def last_lines(output: Path) -> str:
    return tail(output.read_text(encoding="utf-8", errors="replace"))


def wait_for_the_end(setup: Setup, name: str) -> None:
    """Of what the command has started; `Broken` if something still runs seconds later."""
    end = time.monotonic() + GRACE_S
    while left := list(processes_of(setup)):
        if time.monotonic() > end:
            lines = [
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")[-200:]
                for pid in left
            ]
            raise Broken(f"{name} left running: {'; '.join(lines)}")
        time.sleep(0.05)


def kill_left_over(setup: Setup) -> None:
    """Kill every process of this variant, told by its clone's path in the command line, until none
    is left."""
    while processes := list(processes_of(setup)):
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def processes_of(setup: Setup) -> Iterator[int]:
    """Their pids; a zombie has no command line."""
    marker = os.fsencode(setup.folder) + b"/"
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if marker in (process / "cmdline").read_bytes():
                    yield int(process.name)
