"""Part 5: PPO on Breakout towards 10 million steps, for as long as there is time; the next call with
the same folder goes on where this one was stopped.

`python -m tests.gpu.breakout --device cuda --out FOLDER --seconds 60 [--quick]`
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from steps.directory.layout import ExperimentDirectory
from tests.gpu.pipeline import last_rate

ROOT = Path(__file__).parents[2]
STEPS = 10_000_000
PREEMPTED = 75
SAVES_S = 30.0
"""So long before its end the training is told to stop."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0, help="until all is saved")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.seconds - SAVES_S
    directory = ExperimentDirectory(arguments.out.resolve() / "breakout-10m")
    steps_of_epoch = 8 * 128
    given = {
        "game": "breakout", "outdir": directory.root, "runs": 1, "device": arguments.device,
        "epochs": -(-STEPS // steps_of_epoch), "checkpoint_interval": 50, "log_interval": 10,
        "threads": min(8, len(os.sched_getaffinity(0))),
    }  # fmt: skip
    if arguments.device == "cpu":
        given["gpus"] = 0
    if arguments.quick:
        given |= {"rollout_length": 16, "checkpoint_interval": 1, "log_interval": 1}
    prepare = [sys.executable, "-m", "steps.prepare", "--algorithm", "ppo"]
    for name, value in given.items():
        prepare += ["-p", f"{name}={value}"]
    subprocess.run(prepare, cwd=ROOT, check=True)
    before = told(directory, "before")
    training = subprocess.Popen(
        [sys.executable, "-m", "steps.train", "--outdir", str(directory.root), "--run", "0"],
        cwd=ROOT,
    )
    # A loaded processor may need minutes to get as far as a checkpoint.
    waits = arguments.quick
    while training.poll() is None and (waits or time.monotonic() < ends):
        time.sleep(0.2)
        waits = waits and newest(directory) <= before
    if training.poll() is None:
        training.send_signal(signal.SIGTERM)
    code = training.wait()
    after = told(directory, "now")
    if code not in (0, PREEMPTED) or (code == PREEMPTED and after <= before):
        print(f"the training ended with {code} and did not get further")
        return 1
    return 0


def newest(directory: ExperimentDirectory) -> int:
    """The step of the newest checkpoint; 0 where there is none."""
    return max(directory.run(0).checkpoint_steps(), default=0)


def told(directory: ExperimentDirectory, when: str) -> int:
    """Where the training is, printed; returns its last checkpoint's step."""
    run, step = directory.run(0), newest(directory)
    words = f"{when}: {step:,} of {STEPS:,} steps"
    if run.train_csv.exists():
        import pandas

        rows = pandas.read_csv(run.train_csv)
        returns = rows["return_mean"].dropna()
        if len(returns):
            words += f"; mean return of the last row {returns.iloc[-1]:.1f}"
    if run.resources_csv.exists():
        words += f"; {last_rate(run.resources_csv)}"
    print(words, flush=True)
    return step


if __name__ == "__main__":
    sys.exit(main())
