"""`make gpu`: in some eight minutes what holds on CUDA, the most valuable first.

    1 checks      the tests that depend on the device (`pytest -m gpu tests/gpu`)
    2 pipeline    CartPole and Breakout from the manifest to the page
    3 speed       PPO on Breakout beside a plain PPO, and where the time goes
    4 others      every other algorithm for some seconds, learners with actors, AlphaZero's network
    5 breakout    Breakout towards 10 million steps with whatever time is left; the next call goes on

It needs no network and no virtual environment, but a Python that has torch, gymnasium and ale-py;
what else is missing is named, and the parts that need it are left out. Every line goes to the
terminal and to `gpu.txt` when it is there, so that a run that is cut off leaves what it had found. A
part that fails, or takes too long, ends none of the others. Exits with 0 where all parts ended well,
1 where one did not, 2 where nothing can run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
NEEDED = (
    "torch",
    "gymnasium",
    "ale_py",
    "numpy",
    "numba",
    "pandas",
    "safetensors",
    "psutil",
    "yaml",
)
USEFUL = {
    "pytest": "part 1 is left out",
    "pytest_timeout": "a test of part 1 that hangs ends with its part",
    "open_spiel": "its games are not tried",
    "tensorboard": "parts 2 and 5 are left out",
    "moviepy": "part 2 is left out",
    "imageio_ffmpeg": "no films, unless IMAGEIO_FFMPEG_EXE names an ffmpeg",
    "matplotlib": "part 2 is left out",
    "pygame": "no film of CartPole",
    "jinja2": "part 2 is left out",
    "grpc": "no learners with actors",
    "cryptography": "no learners with actors",
    "stable_baselines3": "the comparison is with a plain PPO of the benchmark's own",
}
"""What more there may be, and what follows where it is not."""
OF_ACTORS = ("grpc", "cryptography", "tensorboard")
"""What a learner with actors needs."""
OF_PIPELINE = ("tensorboard", "matplotlib", "moviepy", "jinja2")
"""What the steps from training to page need: without one of them, some would be tried in vain."""
QUICK_CHECKS = "processor_s or finite or copy"
LEAST_S = 20.0
"""With less time left, a part is not begun."""
ENDS_S = 5.0


@dataclass(frozen=True)
class Part:
    """What is run, by its command; longest_s: after which it is stopped; needs: modules; by_clock:
    whether it takes `--seconds`, all that is left.
    """

    name: str
    command: tuple[str, ...]
    longest_s: float
    needs: tuple[str, ...] = ()
    by_clock: bool = False


class Report:
    """Lines for the terminal and the file, each written when it is there."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("a", encoding="utf-8")
        self._started = time.monotonic()

    def close(self) -> None:
        """Nothing is told any more."""
        self._file.close()

    def line(self, text: str) -> None:
        """Also on the disk when this returns."""
        stamped = f"{time.monotonic() - self._started:6.1f} s  {text}"
        print(stamped, flush=True)
        self._file.write(f"{stamped}\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="where everything computes; cpu tries the script itself (default %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="run each part for a few seconds, as on a processor"
    )
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="time for all parts together (default 8)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "results" / "gpu",
        metavar="FOLDER",
        help="where gpu.txt and the experiments go (default results/gpu)",
    )
    parser.add_argument(
        "--part", action="append", metavar="NAME", help="run only this part; may be repeated"
    )
    arguments = parser.parse_args(words)
    parts = chosen(table(arguments.device, arguments.out, quick=arguments.quick), arguments.part)
    if parts is None:
        parser.error(
            f"unknown part; allowed: {', '.join(one.name for one in table('cpu', Path()))}"
        )
    missing = absent(NEEDED)
    if missing:
        print(f"nothing can run: this Python has no {', '.join(missing)}", file=sys.stderr)
        return 2
    if arguments.device == "cuda" and not has_cuda():
        print("nothing can run: torch finds no usable GPU; --device cpu tries it", file=sys.stderr)
        return 2
    os.environ["GPU_TESTS_DEVICE"] = arguments.device
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.closing(Report(arguments.out / "gpu.txt")) as report:
        for line in facts(arguments.device):
            report.line(line)
        try:
            return run(parts, report, 60 * arguments.minutes)
        except KeyboardInterrupt:
            report.line("cut off")
            return 130


def table(device: str, out: Path, *, quick: bool = False) -> list[Part]:
    """All parts, in their order."""
    common = ("--device", device, *(("--quick",) if quick else ()))
    python, there = (sys.executable, "-m"), (*common, "--out", str(out))
    checks = (
        *python, "pytest", "tests/gpu", "-m", "gpu", "-v", "-rs", "--tb=short", "--color=no",
        "-c", "tests/gpu/plain.ini", "--rootdir=.", "-p", "no:cacheprovider",
        *(("-k", QUICK_CHECKS) if quick else ()),
        *(("--ignore", "tests/gpu/test_several_learners.py") if absent(OF_ACTORS) else ()),
    )  # fmt: skip
    return [
        Part("checks", checks, 150, ("pytest",)),
        Part("pipeline", (*python, "tests.gpu.pipeline", *there), 120, OF_PIPELINE),
        Part("speed", (*python, "tests.gpu.speed", *common), 180),
        Part("others", (*python, "tests.gpu.others", *there), 220),
        Part(
            "breakout",
            (*python, "tests.gpu.breakout", *there),
            36000,
            ("tensorboard",),
            by_clock=True,
        ),
    ]


def chosen(parts: list[Part], names: list[str] | None) -> list[Part] | None:
    """Those of these names, None where one is unknown; all where none was named."""
    known = {part.name: part for part in parts}
    if not set(names or ()) <= set(known):
        return None
    return [known[name] for name in names or known]


def absent(modules: Sequence[str]) -> list[str]:
    """Those that this Python does not have; nothing is imported."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def has_cuda() -> bool:
    """Asked in another process, which may die of it."""
    probe = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def facts(device: str) -> list[str]:
    """The machine, the versions, what is missing."""
    import torch

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    found = [
        f"commit {commit or 'unknown'}, {time.strftime('%Y-%m-%d %H:%M')}, device {device}",
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}",
    ]
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found.append(
            f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
            f"compute capability {properties.major}.{properties.minor}, CUDA {torch.version.cuda}"
        )
    found += [f"missing: {name}: {USEFUL[name]}" for name in absent(tuple(USEFUL))]
    return found


def run(parts: Sequence[Part], report: Report, seconds: float) -> int:
    """One after the other, each in a process of its own; 1 where one did not end well."""
    ends, failed = time.monotonic() + seconds, list[str]()
    for part in parts:
        left_s = ends - time.monotonic()
        missing = absent(part.needs)
        if missing:
            report.line(f"part {part.name}: left out, no {', '.join(missing)}")
        elif left_s < LEAST_S:
            report.line(f"part {part.name}: left out, {max(0.0, left_s):.0f} s are left")
        elif not well(part, report, min(part.longest_s, left_s)):
            failed.append(part.name)
    report.line(f"failed: {', '.join(failed)}" if failed else "every part that ran ended well")
    return 1 if failed else 0


def well(part: Part, report: Report, longest_s: float) -> bool:
    """Run it; whether it ended by itself, and well."""
    started = time.monotonic()
    report.line(f"part {part.name}: begins, {longest_s:.0f} s at most")
    command = [*part.command, *(("--seconds", f"{longest_s:.0f}") if part.by_clock else ())]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip

    def tell() -> None:
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                report.line(f"  {line.rstrip()}")

    teller = threading.Thread(target=tell, daemon=True)  # what it has started may keep the pipe
    teller.start()
    try:
        code = process.wait(longest_s + ENDS_S * part.by_clock)
        how = f"exit code {code}"
    except subprocess.TimeoutExpired:
        code, how = None, f"stopped after {longest_s:.0f} s"
    finally:
        end(process)
    teller.join(ENDS_S)
    report.line(f"part {part.name}: {how}, {time.monotonic() - started:.1f} s")
    return code == 0


def environment() -> dict[str, str]:
    """Of every part: it finds the project, and says at once what it has to say."""
    path = [str(ROOT), str(ROOT / "tests" / "stranger"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def end(process: subprocess.Popen[str]) -> None:
    """It and all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            continue


if __name__ == "__main__":
    sys.exit(main())
