"""The parameters that every algorithm shares: what to run, how often, where, and how the result is
measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from config import VERSION
from config.memory import MEMORY
from config.parameters import parameter

IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}"
KUBERNETES_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: a directory, a game, N independent training runs, and their evaluation."""

    game: str = parameter(
        "cartpole",
        form="a short name, a gymnasium id, or package.module: before a Name or an id",
        help="what to learn",
    )
    outdir: str = parameter(
        "/storage/experiment",
        form="a path below the storage mount",
        help="directory of the results",
        identity=False,
    )
    start_from: str | None = parameter(
        None,
        optional=True,
        form="a path below the storage mount",
        help="directory of an experiment of this algorithm: run i begins with the weights of its run i, counted again from 0 "
        "where it has fewer; empty: with random ones",
    )
    runs: int = parameter(
        1,
        low=1,
        high=256,
        help="independent training runs; may grow when submitted again",
        identity=False,
    )
    min_runs: int | None = parameter(
        None,
        low=1,
        high=256,
        optional=True,
        identity=False,
        help="usable runs that make a success; empty: all of them",
    )
    seed: int = parameter(
        0, low=0, high=2**31 - 1, help="every generator of every run is derived from it"
    )
    epochs: int | None = parameter(
        None,
        low=1,
        high=10**9,
        optional=True,
        unit="epochs",
        help="length of a training; empty: the preset's for this game",
    )
    threads: int = parameter(
        1, low=1, high=256, help="torch's threads in training; never detected from the machine"
    )
    device: str = parameter(
        "auto",
        choices=("auto", "cpu", "cuda"),
        help="where training computes; auto: cuda if there is one",
    )
    precision: str = parameter(
        "auto", choices=("auto", "fp32", "bf16"), help="auto: bf16 where a probe shows it is faster"
    )
    evaluation_episodes: int = parameter(
        20,
        low=1,
        high=10_000,
        unit="episodes",
        help="fresh and seeded, for each trained agent; after self-play games against each player of the ladder",
    )
    evaluation_policy: str | None = parameter(
        None, choices=("greedy", "sample"), optional=True,
        help="the most probable action, or a sampled one; empty: sample for Atari, greedy elsewhere",
    )  # fmt: skip
    evaluate_above: float | None = parameter(
        None,
        optional=True,
        help="evaluate and film only if the last 100 training episodes return this much on average; empty: always",
    )
    video_episodes: int = parameter(
        1, low=0, high=10, unit="episodes", help="to film of each trained agent"
    )
    log_interval: int = parameter(
        1, low=1, high=10**6, unit="epochs", help="in one row of train.csv"
    )
    checkpoint_interval: int | None = parameter(
        None,
        low=1,
        high=10**9,
        optional=True,
        unit="epochs",
        help="from one checkpoint to the next; empty: at most 2 % of the training",
    )
    gpus: int = parameter(
        1,
        low=0,
        high=1,
        form="0 or 1, because a training computes on one GPU at most",
        help="GPUs of a training pod",
        identity=False,
    )
    training_memory: str = parameter(
        "4Gi",
        help="memory of a training pod, requested and limited; a replay must fit into it",
        identity=False,
        **MEMORY,
    )
    gpu_image: str = parameter(
        f"rl:{VERSION}-gpu",
        pattern=IMAGE,
        form="an image reference",
        help="image of training pods",
        identity=False,
    )
    cpu_image: str = parameter(
        f"rl:{VERSION}-cpu",
        pattern=IMAGE,
        form="an image reference",
        help="image of all other pods",
        identity=False,
    )
    claim: str = parameter(
        "storage",
        pattern=KUBERNETES_NAME,
        form="a Kubernetes name",
        help="volume claim of the storage mount",
        identity=False,
    )
