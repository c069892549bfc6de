"""Breakout beside Stable-Baselines3, for `make learning`: the same game, steps and evaluation.

Ours has its preset, theirs the settings of rl-baselines3-zoo (`stable_baselines3_breakout.py`). All
schedules end with this budget. 20 whole games in the game's own reward, with the most probable
actions (greedy) and with sampled ones, with and without sticky actions.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import fmean
from typing import Any

from config.resolve import resolve
from tests.benchmarks.experiments import POLICIES, Experiment, run_together
from tests.benchmarks.throughput import REFERENCE_PYTHON
from tests.benchmarks.verdicts import Compared, Outcome

WORKER = Path(__file__).with_name("stable_baselines3_breakout.py")
RUNS = 2
EPOCHS = 200
STICKY_ACTIONS = (0.25, 0.0)
EPISODES = 20


def train(outdir: Path, seed: int) -> bool:
    """Everything that is not there yet; whether all of it succeeded."""
    succeeded = [experiment.run() for experiment in experiments(outdir, seed)]
    if not all(succeeded):
        return False
    for experiment in experiments(outdir, seed):
        for policy in POLICIES:
            experiment.evaluate(policy)
    return train_reference(outdir, seed)


def experiments(outdir: Path, seed: int) -> list[Experiment]:
    """Ours, in the order of `STICKY_ACTIONS`."""
    return [
        Experiment(
            algorithm="ppo",
            directory=outdir / "ours" / name(sticky_actions),
            given=given(sticky_actions, seed),
            runs=RUNS,
            evaluations=outdir / "evaluations",
        )
        for sticky_actions in STICKY_ACTIONS
    ]


def given(sticky_actions: float, seed: int) -> dict[str, str]:
    """Our parameters."""
    return {
        "game": "breakout",
        "epochs": str(EPOCHS),
        "sticky_actions": str(sticky_actions),
        "evaluation_episodes": str(EPISODES),
        "seed": str(seed),
    }


def name(sticky_actions: float) -> str:
    return f"breakout-sticky-{sticky_actions:g}"


def train_reference(outdir: Path, seed: int) -> bool:
    """Theirs: with and without sticky actions side by side, one thread each, seed after seed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return all(
        run_together(
            [command(outdir, sticky_actions, seed + run) for sticky_actions in STICKY_ACTIONS],
            environment,
        )
        for run in range(RUNS)
    )


def command(outdir: Path, sticky_actions: float, seed: int) -> list[str]:
    """It looks itself what there is, and makes the rest."""
    asked = reference_settings(sticky_actions, seed)
    folder = reference_folder(outdir, sticky_actions, seed)
    words = [str(REFERENCE_PYTHON), str(WORKER), str(folder)]
    for name, value in {**asked, "episodes": EPISODES}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    print("$", *words, flush=True)
    return words


def reference_settings(sticky_actions: float, seed: int) -> dict[str, Any]:
    """What decides the agent: as many steps as ours."""
    steps = resolve("ppo", given(sticky_actions, seed)).total_steps
    return {"sticky_actions": sticky_actions, "steps": steps, "seed": seed}


def reference_folder(outdir: Path, sticky_actions: float, seed: int) -> Path:
    return outdir / "stable-baselines3" / f"{name(sticky_actions)}-seed-{seed}"


def comparisons(outdir: Path, seed: int) -> list[Compared]:
    """One row for each way to play and to choose actions."""
    rows = []
    for experiment, sticky_actions in zip(experiments(outdir, seed), STICKY_ACTIONS, strict=True):
        for policy in POLICIES:
            ours = experiment.outcome(policy)
            theirs = reference_outcome(outdir, sticky_actions, seed, policy)
            game = f"Breakout, sticky actions {sticky_actions:g}"
            rows.append(Compared(game=game, policy=policy, ours=ours, theirs=theirs))
    return rows


def reference_outcome(outdir: Path, sticky_actions: float, seed: int, policy: str) -> Outcome:
    """What there is of theirs; a result that was asked for otherwise is none."""
    scores, missing, steps = [], [], None
    for one in range(seed, seed + RUNS):
        result = read_result(reference_folder(outdir, sticky_actions, one) / "result.json")
        returns = result.get("evaluation", {}).get(policy, {}).get("returns", [])
        as_asked = result.get("asked") == reference_settings(sticky_actions, one)
        if as_asked and len(returns) == EPISODES:
            scores.append(fmean(returns))
            steps = result["training"]["steps"]
        else:
            missing.append(f"Stable-Baselines3, seed {one}: no {policy} evaluation")
    return Outcome(wanted=RUNS, scores=tuple(scores), steps=steps, missing=tuple(missing))


def read_result(path: Path) -> dict[str, Any]:
    """What the worker wrote; empty before that."""
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return result
