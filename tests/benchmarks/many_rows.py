"""The steps after training on a large experiment: `python -m tests.benchmarks.many_rows [FOLDER]`
(defect D21 of docs/faults.md).

Makes an experiment of 100 finished runs of 100 000 rows each (1.1 GB of CSV) and says how long
`average`, `plot-average` and `report` take, and reading all of it from Python, and how much memory.
Bounds: 6 times the processor time that pandas alone needs for the same files, in the same minute;
500 MB for the first two, 2.2 GB for reading: the frame itself has 0.9.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from config.resolved import Resolved
from steps.directory.layout import ExperimentDirectory, RunDirectory
from tests import synthetic

STEPS = ("average", "plot_average", "report")
TIMES_PANDAS, LARGEST_BYTES, LARGEST_READ_BYTES = 6.0, 500e6, 2.2e9
READ = "import sys; from steps.results import Results; r = Results(sys.argv[1]); print(len(r.training), len(r.evaluation), len(r.summary))"
PANDAS = "import sys, pathlib, pandas; [pandas.read_csv(one) for one in pathlib.Path(sys.argv[1]).rglob('train.csv')]"
RUNS, ROWS, DIFFERENT = 100, 100_000, 5
"""Only some runs have rows of their own; the others repeat them, which takes the same time to
read."""


@dataclass(frozen=True)
class Took:
    """What one step took; busy_s: processor time, which says more where other programs run."""

    step: str
    seconds: float
    busy_s: float
    peak_bytes: int


def make(root: Path, runs: int, rows: int) -> ExperimentDirectory:
    """A directory of finished runs; nothing is drawn yet."""
    directory = synthetic.experiment(root, ("absent",) * runs, epochs=rows)
    resolved = synthetic.resolved_of(directory)
    tables = [
        synthetic.training_table(np.random.default_rng(seed), rows, resolved)
        for seed in range(min(runs, DIFFERENT))
    ]
    for index in range(runs):
        _finish(directory.run(index), resolved, tables[index % DIFFERENT])
    return directory


def _finish(run: RunDirectory, resolved: Resolved, table: str) -> None:
    run.root.mkdir(parents=True)
    run.train_csv.write_text(table)
    run.resources_csv.write_text(
        synthetic.resources_table(np.random.default_rng(run.index), resolved)
    )
    synthetic.status(
        run.status / "train.json", details={"training_return": 480.0, "evaluate": True}
    )
    synthetic.evaluated(
        run,
        [
            480.0 + run.index % 7 + episode
            for episode in range(resolved.experiment.evaluation_episodes)
        ],
    )
    synthetic.succeed(run, "run")


def measure(directory: ExperimentDirectory, step: str) -> Took:
    """Run one step in a process of its own."""
    return _took(step, ["-m", f"steps.{step}", f"--outdir={directory.root}"])


def measure_results(directory: ExperimentDirectory) -> Took:
    """Read all frames of `steps.results` in a process of its own."""
    return _took("results", ["-c", READ, str(directory.root)])


def measure_pandas(directory: ExperimentDirectory) -> Took:
    """Only read every `train.csv`: what this machine needs for that today."""
    return _took("pandas", ["-c", PANDAS, str(directory.root)])


MEASURING = """
import json, os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=2)
_, ended, used = os.wait4(child.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(ended), used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
"""In a small process of its own: Linux counts as a child's peak what its parent had when it was
started, and a pytest that has imported torch has more than a step may use."""


def _took(step: str, arguments: list[str]) -> Took:
    started_s = time.monotonic()
    small = [sys.executable, "-I", "-S", "-c", MEASURING]
    command = [*small, sys.executable, *arguments]
    measured = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    exit_code, busy_s, peak_kib = json.loads(measured.stdout)
    if exit_code:
        raise SystemExit(f"{step} ended with {exit_code}")
    return Took(step, time.monotonic() - started_s, busy_s, peak_kib * 1024)


def _said(took: Took) -> Took:
    print(
        f"{took.step:<13} {took.seconds:6.1f} s  {took.busy_s:6.1f} s of a core  {took.peak_bytes / 1e6:6.0f} MB",
        flush=True,
    )
    return took


def main(arguments: Sequence[str]) -> int:
    """1 if a step is beyond its bounds."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(arguments[0] if arguments else folder)
        directory = (
            make(root, RUNS, ROWS)
            if not (root / "experiment.yaml").exists()
            else ExperimentDirectory(root)
        )
        size = sum(path.stat().st_size for path in root.rglob("*.csv"))
        print(f"{RUNS} runs of {ROWS:,} rows, {size / 1e9:.2f} GB of CSV", flush=True)
        longest_s = TIMES_PANDAS * _said(measure_pandas(directory)).busy_s
        took = [_said(measure(directory, step)) for step in STEPS]
        took.append(_said(measure_results(directory)))
    beyond = any(one.busy_s > longest_s or one.peak_bytes > LARGEST_READ_BYTES for one in took)
    return int(beyond or any(one.peak_bytes > LARGEST_BYTES for one in took[:-1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
