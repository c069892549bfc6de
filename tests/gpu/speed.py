"""Part 3: PPO on Breakout, 8 and 64 environments of 128 steps: its speed beside Stable-Baselines3's
where that is installed, else beside a plain PPO in PyTorch; and where its time goes.

`python -m tests.gpu.speed --device cuda [--seconds 5] [--quick]`. Both take turns in this process, so
that a machine that changes its speed changes both sides of a ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from agents.load import decide, make_trainer
from config.resolve import resolve
from config.resolved import Resolved
from steps.training.resources import gpu_of
from tests.gpu.plain_ppo import plain_ppo

Work = Callable[[], int]
"""Does some, and says how many environment steps of a training that was."""
ROUNDS = 3
HOST_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
SHOWN_KERNELS = 6


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    device, seconds = arguments.device, 0.5 if arguments.quick else arguments.seconds
    many = max(1, min(8, len(os.sched_getaffinity(0))))
    sizes = [(8, 1)] if arguments.quick else [(8, many), (64, many)]
    for environments, threads in sizes:
        given = {"num_envs": str(environments), "threads": str(threads)}
        if arguments.quick:
            given["rollout_length"] = "16"
        compare(experiment(given, device), device, seconds)
    if device == "cuda":
        same_bytes(device)
    return 0


def experiment(given: dict[str, str], device: str) -> Resolved:
    """Breakout's preset, longer than any measurement."""
    return resolve(
        "ppo", {"game": "breakout", "outdir": "/x", "epochs": "1000000", "device": device, **given}
    )


def compare(resolved: Resolved, device: str, seconds: float) -> None:
    """Both sides in turn, then where the time of ours goes."""
    environments, hyper = resolved.environment.count, resolved.hyperparameters
    torch.set_num_threads(resolved.experiment.threads)
    decision = decide(resolved)
    title = f"{environments} x {hyper.rollout_length}, {resolved.experiment.threads} threads"
    print(f"{title}: ours in {decision.precision} ({decision.reason})")
    trainer: Any = make_trainer(resolved, run=0, device=device, precision=decision.precision)
    sides = {"ours": epochs_of(trainer)}
    with contextlib.suppress(ImportError):
        sides["Stable-Baselines3"] = of_stable_baselines3(resolved, device)
    if len(sides) == 1:
        sides["plain PPO"] = of_plain_ppo(resolved, device)
    other = next(name for name in sides if name != "ours")
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        work()  # compiles, allocates
    with watched(device) as used:
        for _ in range(1 if seconds < 1 else ROUNDS):
            for name, work in sides.items():
                rates[name].append(rate(work, seconds, device))
    ratios = [mine / theirs for mine, theirs in zip(rates["ours"], rates[other], strict=True)]
    for name, found in rates.items():
        words = ", ".join(f"{one:.0f}" for one in found)
        print(f"{title}: {name}: {statistics.median(found):.0f} steps/s ({words})")
    print(f"{title}: ours / {other} = {statistics.median(ratios):.2f}")
    print(f"{title}: {used()}")
    where_the_time_goes(title, trainer, device, seconds)
    profiled(title, sides["ours"], device)
    alone = emulators_alone(trainer, seconds)
    share = statistics.median(rates["ours"]) / alone
    print(f"{title}: emulators alone: {alone:.0f} steps/s; ours is {100 * share:.0f} % of it")
    trainer.close()


def epochs_of(trainer: Any) -> Work:
    """An epoch of ours a call."""
    progress, before = trainer.train(), trainer.step

    def epoch() -> int:
        nonlocal before
        before, taken = next(progress).step, before
        return before - taken

    return epoch


def of_plain_ppo(resolved: Resolved, device: str) -> Work:
    """CleanRL's loop, with the settings of ours."""
    return plain_ppo(
        "breakout", resolved.environment.count, resolved.hyperparameters.rollout_length,
        resolved.hyperparameters, device, resolved.experiment.threads,
    )  # fmt: skip


def of_stable_baselines3(resolved: Resolved, device: str) -> Work:
    """As `tests.benchmarks.stable_baselines3_worker` makes it, on the device; raises `ImportError`."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    hyper, count = resolved.hyperparameters, resolved.environment.count
    made = {"frameskip": 1, "repeat_action_probability": 0.25, "full_action_space": False}
    environments = make_atari_env("ALE/Breakout-v5", count, seed=1, env_kwargs=made)
    model = stable_baselines3.PPO(
        "CnnPolicy", VecFrameStack(environments, n_stack=4), n_steps=hyper.rollout_length,
        batch_size=count * hyper.rollout_length // hyper.minibatches, n_epochs=hyper.update_epochs,
        learning_rate=hyper.learning_rate, clip_range=hyper.clip, device=device,
        ent_coef=hyper.entropy_coefficient, vf_coef=hyper.value_coefficient,
    )  # fmt: skip

    def rollout() -> int:
        steps = count * hyper.rollout_length
        model.learn(steps, reset_num_timesteps=False)
        return steps

    return rollout


def emulators_alone(trainer: Any, seconds: float) -> float:
    """Steps a second of the training's own environments with random actions: all groups always have
    something to do, as with a network that takes no time.
    """
    environments, random = trainer.environments, np.random.default_rng(0)
    sizes = [rows.stop - rows.start for rows in environments.groups]

    def send(group: int) -> None:
        actions = random.integers(0, environments.interface.actions, sizes[group])
        environments.send(group, actions)

    def step_all() -> int:
        for group in range(len(sizes)):
            environments.receive(group)
            environments.settle(group)
            send(group)
        return environments.count

    for group in range(len(sizes)):
        send(group)
    return rate(step_all, seconds, "cpu")


def rate(work: Work, seconds: float, device: str) -> float:
    """Environment steps a second, in whole calls."""
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        steps += work()
    finished(device)
    return steps / (time.perf_counter() - started)


def finished(device: str) -> None:
    """Wait for all that was asked of the device."""
    if device == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def watched(device: str) -> Iterator[Callable[[], str]]:
    """How busy the GPU is meanwhile, as its driver says, and how much memory PyTorch took."""
    sample, found, ended = gpu_of(device), list[tuple[Any, Any]](), threading.Event()

    def watch() -> None:
        while sample is not None and not ended.wait(0.5):
            found.append(sample())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()

    def words() -> str:
        if sample is None:
            return "no GPU to watch"
        busy = [percent for percent, _ in found if percent is not None]
        memory = torch.cuda.max_memory_allocated() / 2**20
        told = f"{statistics.fmean(busy):.0f} %" if busy else "unknown (no nvidia-smi)"
        return f"GPU busy {told} (both programs together), {memory:.0f} MiB of its memory at most"

    try:
        yield words
    finally:
        ended.set()
        thread.join()


def where_the_time_goes(title: str, trainer: Any, device: str, seconds: float) -> None:
    """Shares of the wall time of ours: waiting for the emulators, the rest of collecting (networks,
    copies, Python), advantages, learning. Each part waits for the device before it ends.
    """
    spent = Counter[str]()

    def timed(owner: Any, name: str, part: str, waits: bool) -> None:
        original = getattr(owner, name)

        def call(*given: Any) -> Any:
            started = time.perf_counter()
            found = original(*given)
            if waits:
                finished(device)
            spent[part] += time.perf_counter() - started
            return found

        setattr(owner, name, call)

    parts = {"_collect": "collecting", "_batch": "advantages", "_learn": "learning"}
    for name, part in parts.items():
        timed(trainer, name, part, True)
    for name in ("send", "receive", "settle"):
        timed(trainer.environments, name, "emulators", False)
    steps, started = 0, time.perf_counter()
    training = epochs_of(trainer)
    while time.perf_counter() - started < seconds:
        steps += training()
    wall = time.perf_counter() - started
    for owner, names in ((trainer, parts), (trainer.environments, ("send", "receive", "settle"))):
        for name in names:
            delattr(owner, name)
    spent["collecting"] -= spent["emulators"]
    shares = {part: 100 * spent[part] / wall for part in (*parts.values(), "emulators")}
    shares["all else"] = 100 - sum(shares.values())
    words = ", ".join(f"{part} {share:.0f} %" for part, share in shares.items())
    print(f"{title}: where the time goes: {words} of {1e6 * wall / steps:.0f} us a step")


def profiled(title: str, training: Work, device: str) -> None:
    """What an epoch asks of the device: kernels, copies, and how long the CPU waits."""
    if device != "cuda":
        return
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        started = time.perf_counter()
        training()
        finished(device)
        wall_us = 1e6 * (time.perf_counter() - started)
    events = profiler.key_averages()
    on_device = [one for one in events if one.self_device_time_total > 0]
    copies = [one for one in on_device if "emcpy" in one.key]
    kernels = [one for one in on_device if "emcpy" not in one.key]
    busy_us = sum(one.self_device_time_total for one in kernels)
    print(
        f"{title}: profiled epoch of {wall_us / 1000:.0f} ms: kernels {100 * busy_us / wall_us:.0f} % "
        f"of it ({sum(one.count for one in kernels)} calls)"
    )
    for one in copies:
        print(f"{title}: {one.key}: {one.count} x {one.self_device_time_total / one.count:.1f} us")
    for one in events:
        if one.key in HOST_WAITS or one.key == "cudaMemcpyAsync":
            share = 100 * one.self_cpu_time_total / wall_us
            print(f"{title}: the CPU in {one.key}: {one.count} x, {share:.0f} % of the epoch")
    kernels.sort(key=lambda one: -one.self_device_time_total)
    for one in kernels[:SHOWN_KERNELS]:
        share = 100 * one.self_device_time_total / max(busy_us, 1)
        print(f"{title}: kernel {one.key[:60]}: {share:.0f} % of the kernels, {one.count} x")


def same_bytes(device: str) -> None:
    """Whether two trainings with one seed are equal to the last bit, and what it costs to make them."""
    for deterministic in (False, True):
        torch.backends.cudnn.deterministic = deterministic
        digests, rates = set[str](), list[float]()
        for _ in range(2):
            trainer: Any = make_trainer(
                experiment({}, device), run=0, device=device, precision="fp32"
            )
            work, digest = epochs_of(trainer), hashlib.sha256()
            work()
            started = time.perf_counter()
            steps = sum(work() for _ in range(3))
            rates.append(steps / (time.perf_counter() - started))
            for parameter in trainer.network.parameters():
                digest.update(parameter.detach().cpu().numpy().tobytes())
            digests.add(digest.hexdigest())
            trainer.close()
        equal = "equal" if len(digests) == 1 else "DIFFERENT"
        words = ", ".join(f"{one:.0f}" for one in rates)
        print(f"cudnn.deterministic={deterministic}: two trainings are {equal}; {words} steps/s")


if __name__ == "__main__":
    sys.exit(main())
