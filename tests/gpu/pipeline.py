"""Part 2: the whole pipeline, from the manifest in the repository: training on the device, evaluation,
film and plots on the processor, average, page.

`python -m tests.gpu.pipeline --device cuda --out FOLDER [--quick]`; exits with 1 where something is
missing at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steps.directory.layout import ExperimentDirectory
from steps.results import Results
from tests.gpu.__main__ import absent

ROOT = Path(__file__).parents[2]
EPOCHS = {"cartpole": 100, "breakout": 15}
"""Of some 20 seconds, with everything around them."""
QUICK = {"cartpole": 4, "breakout": 1}
LONGEST_S = 90
DRAWN_BY = {"cartpole": "pygame"}
"""What draws a game, where that is a package of its own; without it there is no film."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    failed = 0
    for game, epochs in (QUICK if arguments.quick else EPOCHS).items():
        folder = arguments.out.resolve() / f"pipeline-{game}"
        shutil.rmtree(folder, ignore_errors=True)
        failed += not ran(game, epochs, folder, arguments.device)
    return 1 if failed else 0


def ran(game: str, epochs: int, folder: Path, device: str) -> bool:
    """One experiment; prints what it left, and whether that is all."""
    asked = "cpu" if device == "cpu" else "auto"
    parameters = {
        "game": game, "outdir": folder, "epochs": epochs, "runs": 1, "device": asked,
        "evaluation_episodes": 4, "video_episodes": 1,
    }  # fmt: skip
    command = [sys.executable, "-m", "workflows.local", "workflows/manifests/ppo.yaml"]
    command += ["--storage", str(folder.parent), "--deadline", str(LONGEST_S)]
    for name, value in parameters.items():
        command += ["-p", f"{name}={value}"]
    started = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"{game}: exit code {ended.returncode} after {time.monotonic() - started:.1f} s")
    found = dict(left(game, folder, device))
    for name, (there, words) in found.items():
        print(f"{game}: {name}: {words if there else f'MISSING ({words})'}")
    complete = ended.returncode == 0 and all(there for there, _ in found.values())
    if not complete:
        print("\n".join((ended.stdout + ended.stderr).splitlines()[-25:]))
    return complete


def left(game: str, folder: Path, device: str) -> Iterator[tuple[str, tuple[bool, str]]]:
    """What should be there -> whether it is, and in words."""
    directory = ExperimentDirectory(folder)
    run = directory.run(0)
    compute = read(directory.compute_json)
    words = f"{compute.get('device')}, {compute.get('precision')} ({compute.get('reason')})"
    yield "computes on", (compute.get("device") == device, words)
    yield "the page", (directory.report_html.exists(), f"{size(directory.report_html)} bytes")
    films = sorted(run.videos.glob("*.mp4"))
    drawn_by = DRAWN_BY.get(game)
    if drawn_by and absent((drawn_by,)):
        yield "a film", (True, f"left out, no {drawn_by}")
    else:
        yield "a film", (any(map(size, films)), ", ".join(f"{size(one)} bytes" for one in films))
    plots = [size(one) for one in sorted(folder.rglob("*.png"))]
    yield "plots", (len(plots) >= 3 and all(plots), f"{len(plots)} of {sum(plots)} bytes")
    yield "durations", (True, durations(directory))
    try:
        results = Results(folder)
        returns = results.evaluation["return"]
        rate = last_rate(run.resources_csv)
    except Exception as error:  # whatever it is, the other lines are worth more
        yield "evaluation", (False, str(error))
        return
    yield "evaluation", (len(returns) > 0, f"{len(returns)} episodes, mean {returns.mean():.1f}")
    yield "training", (True, rate)


def durations(directory: ExperimentDirectory) -> str:
    """Seconds of every task."""
    statuses = [
        *directory.run(0).status.glob("*.json"),
        *(directory.root / "status").glob("*.json"),
    ]
    found = {path.stem: read(path).get("duration_s") for path in sorted(statuses)}
    return ", ".join(f"{name} {seconds}" for name, seconds in found.items())


def last_rate(path: Path) -> str:
    """Of the last rows of `resources.csv`."""
    import pandas

    rows = pandas.read_csv(path)
    rates = rows["steps_per_second"].dropna()
    used = rows["gpu_percent"].dropna()
    memory = rows["gpu_memory_bytes"].dropna()
    words = f"{rates.max():.0f} steps/s at most" if len(rates) else "too short for a rate"
    if len(used):
        words += f", GPU {used.mean():.0f} % busy, {memory.max() / 2**20:.0f} MiB"
    return words


def read(path: Path) -> dict[str, Any]:
    """A JSON file; empty where there is none."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document


def size(path: Path) -> int:
    """In bytes; 0 where there is nothing."""
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
