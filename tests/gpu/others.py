"""Part 4: every other algorithm for some seconds; learners with actors in processes of their own, as
their steps start them; the rate of AlphaZero's network.

`python -m tests.gpu.others --device cuda --out FOLDER [--seconds 10] [--quick]`. An algorithm that
fails is named and does not end the others; exits with 1 then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.load import decide, make_self_play_trainer, make_trainer
from agents.networks.board_games import evaluator
from config.described import parameters
from config.resolve import resolve
from steps.directory.layout import ExperimentDirectory
from tests.gpu.__main__ import OF_ACTORS, absent
from tests.gpu.pipeline import last_rate, read
from tests.gpu.speed import epochs_of, finished, rate

ROOT = Path(__file__).parents[2]
SHORTER = {"learning_starts": "1000", "replay_size": "20000"}
"""Replays that are learnt from within seconds."""
ALONE = {
    "a2c breakout": ("a2c", {"game": "breakout"}),
    "ppo-lstm breakout": ("ppo-lstm", {"game": "breakout"}),
    "dqn breakout": ("dqn", {"game": "breakout", **SHORTER}),
    "sac pendulum": ("sac", {"game": "pendulum", "learning_starts": "1000"}),
    "td3 pendulum": ("td3", {"game": "pendulum", "learning_starts": "1000"}),
    "ppo cartpole": ("ppo", {"game": "cartpole"}),
}  # fmt: skip
WITH_ACTORS = {
    "impala breakout": ("impala", {"game": "breakout"}),
    "impala breakout, central inference": ("impala", {"game": "breakout", "inference": "learner"}),
    "r2d2 breakout": ("r2d2", {"game": "breakout", **SHORTER, "epoch_updates": "20"}),
    "async-sac pendulum": ("async-sac", {"game": "pendulum"}),
}
QUICK = {
    "learning_starts": "100", "rollout_length": "16", "batch_size": "4", "epoch_updates": "2",
    "epoch_steps": "200", "sequence_length": "16", "unroll_length": "10", "burn_in": "4",
    "normalise_observations": "false",
}  # fmt: skip
"""As far as an algorithm has them: for a processor."""
BATCHES = (64, 256, 1024)
MOST_ACTORS = 8
SAVES_S, GIVES_UP_S = 30, 60


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else arguments.seconds
    out, device, failed = arguments.out.resolve(), arguments.device, 0
    if arguments.quick:
        for algorithm, given in (*ALONE.values(), *WITH_ACTORS.values()):
            known = {info.name for info in parameters(algorithm)}
            given |= {name: value for name, value in QUICK.items() if name in known}
    for name, (algorithm, given) in ALONE.items():
        failed += not told(name, lambda a=algorithm, g=given: alone(a, g, device, seconds))
    failed += not told("alphazero connect-four", lambda: alphazero(device, seconds))
    missing = absent(OF_ACTORS)
    if missing:
        print(f"learners with actors: left out, no {', '.join(missing)}")
        return 1 if failed else 0
    for name, (algorithm, given) in WITH_ACTORS.items():
        folder = out / name.replace(",", "").replace(" ", "-")
        failed += not told(
            name, lambda a=algorithm, g=given, f=folder: with_actors(a, g, f, device, seconds)
        )
    return 1 if failed else 0


def told(name: str, measure: Any) -> bool:
    """Print what was measured, or how it failed."""
    try:
        print(f"{name}: {measure()}")
    except Exception as error:
        print(f"{name}: FAILED: {type(error).__name__}: {error}")
        print("\n".join(traceback.format_exc().splitlines()[-9:]))
        return False
    return True


def alone(algorithm: str, given: dict[str, str], device: str, seconds: float) -> str:
    """A trainer in this process."""
    parameters = {"outdir": "/x", "epochs": "1000000", "device": device, **given}
    resolved = resolve(algorithm, parameters)
    torch.set_num_threads(resolved.experiment.threads)
    decision = decide(resolved)
    trainer: Any = make_trainer(resolved, run=0, device=device, precision=decision.precision)
    work, learns = epochs_of(trainer), 0
    starts = int(given.get("learning_starts", "0"))
    while learns <= starts:
        learns += max(1, work())
    found = rate(work, seconds, device)
    trainer.close()
    return f"{found:.0f} steps/s in {decision.precision}"


def with_actors(
    algorithm: str, given: dict[str, str], folder: Path, device: str, seconds: float
) -> str:
    """A learner and its actors, until they are stopped as Kubernetes stops them."""
    shutil.rmtree(folder, ignore_errors=True)
    actors = max(2, min(MOST_ACTORS, len(os.sched_getaffinity(0)) - 1))
    given = {"actors": str(actors), "runs": "1", "device": device, **given}
    if device == "cpu":
        given["gpus"] = "0"
    prepare = [sys.executable, "-m", "steps.prepare", "--algorithm", algorithm]
    for name, value in {"outdir": str(folder), **given}.items():
        prepare += ["-p", f"{name}={value}"]
    subprocess.run(prepare, cwd=ROOT, check=True, capture_output=True, text=True)
    train = [sys.executable, "-m", "steps.train", "--outdir", str(folder), "--run", "0"]
    logs, members = folder / "members.log", list[subprocess.Popen[bytes]]()
    with logs.open("wb") as log:
        for role in ("learner", *[f"actor {member}" for member in range(actors)]):
            words = role.split()
            command = [*train, "--role", words[0]]
            if len(words) == 2:
                command += ["--member", words[1]]
                hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
            else:
                hidden = dict(os.environ)
            members.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=hidden, stdout=log, stderr=log, start_new_session=True
                )
            )
        try:
            wait_for_rows(ExperimentDirectory(folder), members[0], seconds)
        finally:
            codes = stopped(members)
    compute = read(ExperimentDirectory(folder).compute_json)
    run = ExperimentDirectory(folder).run(0)
    if codes[0] != 75 or not run.checkpoint_steps():
        tail = "\n".join(logs.read_text(errors="replace").splitlines()[-12:])
        raise RuntimeError(f"the learner ended with {codes[0]}, not 75 and a checkpoint:\n{tail}")
    words = f"{actors} actors, {last_rate(run.resources_csv)}"
    return f"{words}; {compute.get('device')}, {compute.get('precision')}; preempted and saved"


def wait_for_rows(directory: ExperimentDirectory, learner: Any, seconds: float) -> None:
    """Until it has trained for so long, or has ended."""
    table, gives_up = directory.run(0).train_csv, time.monotonic() + seconds + GIVES_UP_S
    while not (table.exists() and len(table.read_bytes().splitlines()) > 1):
        if learner.poll() is not None or time.monotonic() > gives_up:
            return
        time.sleep(0.2)
    ends = time.monotonic() + seconds
    while learner.poll() is None and time.monotonic() < ends:
        time.sleep(0.2)


def stopped(members: list[subprocess.Popen[bytes]]) -> list[int | None]:
    """Exit codes after SIGTERM, the learner's first."""
    for member in members:
        member.send_signal(signal.SIGTERM)
    ends = time.monotonic() + SAVES_S
    for member in members:
        try:
            member.wait(max(0.1, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            member.kill()
            member.wait()
    return [member.returncode for member in members]


def alphazero(device: str, seconds: float) -> str:
    """Positions a second that the preset's network answers in batches, and learns from."""
    resolved = resolve("alphazero", {"game": "connect-four", "outdir": "/x", "device": device})
    trainer: Any = make_self_play_trainer(resolved, run=0, device=device, precision="fp32")
    game, ask, words = trainer.game, evaluator(trainer.average), list[str]()
    for batch in BATCHES:
        positions = game.start(batch)
        planes, legal = game.encode(positions), game.legal(positions)

        def answer(given: Any = (planes, legal), batch: int = batch) -> int:
            ask(*given)
            return batch

        answer()
        words.append(f"{rate(answer, min(2.0, seconds), device):.0f} in batches of {batch}")
    count = resolved.hyperparameters.batch_size
    batch_rows = learnable(trainer, count)

    def learn() -> int:
        trainer._update(batch_rows)
        return count

    learn()
    finished(device)
    learnt = rate(learn, min(2.0, seconds), device)
    return f"{', '.join(words)} positions/s; learns from {learnt:.0f} positions/s"


def learnable(trainer: Any, count: int) -> Any:
    """A batch of positions after one move each."""
    from agents.selfplay.positions import columns_of, packed_states

    game, generator = trainer.game, np.random.default_rng(0)
    states = game.play(game.start(count), generator.integers(0, game.actions, count))
    rows = {
        name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in columns_of(game).items()
    }
    rows |= {"state": packed_states(states), "legal": game.legal(states)}
    rows["policy"][:, game.actions // 2] = 1
    rows["full"][:] = True
    return trainer._batch(rows)


if __name__ == "__main__":
    sys.exit(main())
