"""What is asked of a GPU, measured in one call of at most ten minutes, the most valuable first:

    ppo            PPO on Breakout, 8 and 64 environments of 128 steps, in turns with Stable-Baselines3
                   and with a plain PPO, and beside the rate of the emulators alone
    leanrl         LeanRL's fastest PPO from a checkout of it, its three ways to run, with ours after each
    actors         IMPALA on Breakout, and the same with central inference, beside the emulators
    returns        PPO's returns after 200,000 steps, runs on the GPU beside runs on the processor

`python -m tests.gpu.goals --out FOLDER [--leanrl CHECKOUT] [--minutes 9.5] [--device cpu --quick]`
leaves `goals.json`, which is written again after every figure: a call that is cut off leaves what it
had found. What is not installed is left out, with the reason. Exits with 1 where a part failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from agents.load import decide, make_trainer
from config.resolved import Resolved
from steps.directory.layout import ExperimentDirectory
from tests.gpu.__main__ import OF_ACTORS, absent, facts, has_cuda
from tests.gpu.others import with_actors
from tests.gpu.speed import (
    Work,
    emulators_alone,
    epochs_of,
    experiment,
    of_plain_ppo,
    of_stable_baselines3,
    rate,
)

SIZES = (8, 64)
RETURN_STEPS = 200_000
RUNS = 4
"""On either device, each in a process of its own."""
ENDS_S = 20.0
LEANRL = "leanrl/ppo_atari_envpool_torchcompile.py"
LEANRL_WAYS = {
    "eager": (),
    "cudagraphs": ("--cudagraphs",),
    "compile, cudagraphs": ("--compile", "--cudagraphs"),
}
LEANRL_NEEDS = ("envpool", "gym", "tensordict", "tqdm", "tyro", "wandb")
SPEED = re.compile(r"speed:\s*([\d.]+) sps")


class Found:
    """All figures, on the disk as soon as they are known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._figures: dict[str, Any] = {}
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, value: Any) -> None:
        self._figures[name] = value
        print(f"{name}: {json.dumps(value)}", flush=True)
        written = self._path.with_suffix(".part")
        written.write_text(json.dumps(self._figures, indent=1) + "\n")
        written.replace(self._path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="folder of goals.json")
    parser.add_argument("--leanrl", type=Path, help="a checkout of LeanRL")
    parser.add_argument(
        "--minutes", type=float, default=9.5, help="time for all figures (default %(default)s)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure each figure for a few seconds"
    )
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not has_cuda():
        print("nothing can be measured: torch finds no usable GPU", file=sys.stderr)
        return 2
    ends = time.monotonic() + 60 * arguments.minutes
    found = Found(arguments.out / "goals.json")
    found.add("machine", facts(arguments.device))
    failed = 0
    parts: dict[str, Callable[[], None]] = {
        "ppo": lambda: beside_others(found, arguments.device, quick=arguments.quick),
        "leanrl": lambda: beside_leanrl(found, arguments.device, arguments.leanrl),
        "actors": lambda: with_actors_beside(
            found, arguments.device, arguments.out, quick=arguments.quick
        ),
        "returns": lambda: returns(found, arguments.device, ends - ENDS_S, quick=arguments.quick),
    }
    for name, part in parts.items():
        started = time.monotonic()
        try:
            part()
        except Exception as error:
            failed = 1
            traceback.print_exc()
            found.add(f"{name}: failed", f"{type(error).__name__}: {error}")
        found.add(f"{name}: seconds", round(time.monotonic() - started, 1))
    return failed


def resolved_of(environments: int, device: str, *, quick: bool = False) -> Resolved:
    """Breakout's preset with one of torch's threads: the emulators have the processors on a GPU."""
    given = {"num_envs": str(environments)}
    return experiment({**given, "rollout_length": "16"} if quick else given, device)


def trainer_of(resolved: Resolved, device: str) -> Any:
    torch.set_num_threads(resolved.experiment.threads)
    precision = decide(resolved).precision
    return make_trainer(resolved, run=0, device=device, precision=precision)


def beside_others(found: Found, device: str, *, quick: bool) -> None:
    """Medians of rounds in which all take turns."""
    seconds, rounds = (0.5, 1) if quick else (4.0, 3)
    processors = len(os.sched_getaffinity(0))
    for environments in SIZES[:1] if quick else SIZES:
        resolved = resolved_of(environments, device, quick=quick)
        trainer = trainer_of(resolved, device)
        sides: dict[str, Work] = {"ours": epochs_of(trainer)}
        try:
            sides["Stable-Baselines3"] = of_stable_baselines3(resolved, device)
        except ImportError as error:
            found.add(f"ppo {environments}: Stable-Baselines3 is left out", str(error))
        many = replace(resolved.experiment, threads=min(processors, environments))
        sides["plain PPO"] = of_plain_ppo(replace(resolved, experiment=many), device)
        torch.set_num_threads(resolved.experiment.threads)
        for work in sides.values():
            # CUDA graphs are recorded at the second call of a shape, and compared at the third.
            for _ in range(1 if quick else 3):
                work()
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, work in sides.items():
                rates[name].append(round(rate(work, seconds, device), 1))
        found.add(f"ppo {environments}: steps/s", rates)
        for name in [one for one in sides if one != "ours"]:
            ratios = [mine / one for mine, one in zip(rates["ours"], rates[name], strict=True)]
            found.add(f"ppo {environments}: ours / {name}", round(statistics.median(ratios), 3))
        alone = emulators_alone(trainer, seconds)
        share = statistics.median(rates["ours"]) / alone
        found.add(f"ppo {environments}: emulators alone, steps/s", round(alone, 1))
        found.add(f"ppo {environments}: ours / emulators alone", round(share, 3))
        trainer.close()


def beside_leanrl(found: Found, device: str, checkout: Path | None) -> None:
    """LeanRL's script as it is, one way after the other, and ours in the same minute."""
    missing = absent(LEANRL_NEEDS)
    if checkout is None or missing or device != "cuda":
        why = f"no {', '.join(missing)}" if missing else "no --leanrl, or no GPU"
        found.add("leanrl is left out", why)
        return
    trainer = trainer_of(resolved_of(8, device), device)
    ours = epochs_of(trainer)
    for _ in range(3):
        ours()
    for way, options in LEANRL_WAYS.items():
        command = [sys.executable, str(checkout / LEANRL), "--total-timesteps", "100000", *options]
        ended = subprocess.run(
            command, cwd=checkout, env={**os.environ, "WANDB_MODE": "disabled"},
            capture_output=True, text=True, errors="replace", timeout=150, check=False,
        )  # fmt: skip
        speeds = [float(one) for one in SPEED.findall(ended.stderr + ended.stdout)]
        if not speeds:
            found.add(f"leanrl, {way}: failed", (ended.stderr.splitlines() or ["?"])[-1])
            continue
        # The first interval may hold what is compiled late.
        theirs = statistics.median(speeds[1:] or speeds)
        mine = rate(ours, 4.0, device)
        found.add(f"leanrl, {way}: steps/s, and ours", [theirs, round(mine, 1)])
        found.add(f"leanrl, {way}: ours / LeanRL", round(mine / theirs, 3))
    trainer.close()


def with_actors_beside(found: Found, device: str, out: Path, *, quick: bool) -> None:
    """The intervals of a training with actors, the later half of them, beside as many emulators."""
    missing = absent((*OF_ACTORS, "pandas"))
    if missing:
        found.add("actors are left out", f"no {', '.join(missing)}")
        return
    import pandas

    small = {"unroll_length": "10", "batch_size": "4", "epoch_updates": "2"} if quick else {}
    trainer = trainer_of(resolved_of(8 if quick else 64, device, quick=quick), device)
    alone = emulators_alone(trainer, 0.5 if quick else 4.0)
    trainer.close()
    found.add("actors: emulators alone, steps/s", round(alone, 1))
    for inference in ("actor", "learner"):
        given = {"game": "breakout", "inference": inference, **small}
        folder = out.resolve() / f"goals-impala-{inference}"
        said = with_actors("impala", given, folder, device, 1.0 if quick else 25.0)
        rows = pandas.read_csv(ExperimentDirectory(folder).run(0).resources_csv)
        rates = rows["steps_per_second"].dropna()
        name = f"impala, inference={inference}"
        found.add(f"{name}: ended", said)
        if len(rates):
            # In the first ones everything starts.
            later = float(rates[len(rates) // 2 :].median())
            found.add(f"{name}: steps/s", round(later, 1))
            found.add(f"{name}: / emulators alone", round(later / alone, 3))


def returns(found: Found, device: str, ends: float, *, quick: bool) -> None:
    """All runs at once, so that both devices have the same time; one that has not come so far says
    how far it came.
    """
    steps, runs = (256, 1) if quick else (RETURN_STEPS, RUNS)
    places = [(where, run) for where in dict.fromkeys((device, "cpu")) for run in range(runs)]
    left_s = ends - time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(places), mp_context=context) as pool:
        futures = [pool.submit(return_of_run, where, run, steps, left_s) for where, run in places]
        for (where, run), future in zip(places, futures, strict=True):
            found.add(f"returns, {where}, run {run}", future.result())


def return_of_run(device: str, run: int, steps: int, longest_s: float) -> dict[str, float]:
    """The mean of the last 100 episodes' returns after so many steps, of Breakout's preset in fp32."""
    ends = time.monotonic() + longest_s
    resolved = resolved_of(8, device)
    torch.set_num_threads(resolved.experiment.threads)
    trainer: Any = make_trainer(resolved, run=run, device=device, precision="fp32")
    ended = list[float]()
    for progress in trainer.train():
        ended += progress.returns
        if progress.step >= steps or time.monotonic() > ends:
            break
    reached = trainer.step
    trainer.close()
    last = ended[-100:]
    mean = statistics.fmean(last) if last else float("nan")
    return {"steps": reached, "episodes": len(ended), "return of the last 100": round(mean, 3)}


if __name__ == "__main__":
    sys.exit(main())
