"""The parameters that every algorithm shares: what to run, how often, where, and how the result is
measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from config import VERSION, webhook
from config.memory import MEMORY
from config.parameters import parameter
from config.tracking import FORM, canonical

IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}"
KUBERNETES_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
LONGEST_TRAINING = 10**11
"""In environment steps. The name of a checkpoint has room for twelve digits."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: a directory, a game, N independent training runs, and their evaluation."""

    game: str = parameter(
        "cartpole",
        form="a short name, a gymnasium id, or package.module: before a Name or an id",
        help="environment to learn",
    )
    outdir: str = parameter(
        "/storage/experiment",
        form="a path below the storage mount",
        help="directory of the experiment's results",
        identity=False,
    )
    start_from: str | None = parameter(
        None,
        optional=True,
        form="a path below the storage mount",
        help="directory of an earlier experiment of the same algorithm: run i starts from the "
        "weights of its run i (runs wrap around if it has fewer); empty: random weights",
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
        help="usable runs needed for the experiment to succeed; empty: all of them",
    )
    trial_timeout: float = parameter(
        60.0,
        low=1,
        high=3600,
        unit="s",
        identity=False,
        help="time that prepare gives an environment of your own to be made, reset and stepped for "
        "an episode, at most 200 steps",
    )
    seed: int = parameter(
        0,
        low=0,
        high=2**31 - 1,
        help="seed from which every random generator of every run is derived",
    )
    epochs: int | None = parameter(
        None,
        low=1,
        high=10**9,
        optional=True,
        unit="epochs",
        help="length of a training; empty: the length in the game's preset; may grow when "
        "submitted again, unless another parameter depends on the length",
    )
    steps: int | None = parameter(
        None,
        low=1,
        high=LONGEST_TRAINING,
        exponents=True,
        optional=True,
        unit="steps",
        help="length of a training in steps of all environments together, in place of epochs; "
        "rounded up to whole epochs",
    )
    threads: int = parameter(
        1,
        low=1,
        high=256,
        help="torch threads of a training process; never taken from the machine's processor count",
    )
    device: str = parameter(
        "auto",
        choices=("auto", "cpu", "cuda"),
        help="device that training computes on; auto: cuda if a GPU is available",
    )
    precision: str = parameter(
        "auto",
        choices=("auto", "fp32", "bf16"),
        help="floating-point precision of training; auto: bf16 where a measurement shows that "
        "it is faster",
    )
    evaluation_episodes: int = parameter(
        20,
        low=1,
        high=10_000,
        unit="episodes",
        later=True,
        help="evaluation episodes of each trained agent, each with a fresh seed; for "
        "self-play, games against each player of the ladder",
    )
    evaluation_policy: str | None = parameter(
        None, choices=("greedy", "sample"), optional=True, later=True,
        help="whether evaluation takes the most probable action (greedy) or samples one; "
"empty: sample for Atari, greedy otherwise",
    )  # fmt: skip
    evaluate_above: float | None = parameter(
        None,
        optional=True,
        later=True,
        help="evaluate and film only if the mean return of the last 100 training episodes "
        "reaches this value; empty: always",
    )
    video_episodes: int = parameter(
        1,
        low=0,
        high=10,
        unit="episodes",
        later=True,
        help="evaluation episodes of each trained agent that are filmed",
    )
    evaluations: int = parameter(
        0,
        low=0,
        high=1000,
        form="0, or an integer from 2 to 1000",
        help="snapshots of the policy, evenly over the training from its first to its last epoch, "
        "which are evaluated when it has ended; 0: only the final policy. May change when submitted "
        "again, but snapshots of epochs that are over cannot be taken later",
        identity=False,
    )
    snapshot_episodes: int = parameter(
        10,
        low=1,
        high=10_000,
        unit="episodes",
        help="evaluation episodes of each snapshot (see evaluations), on seeds of their own; for "
        "self-play, games against each player of the ladder",
        identity=False,
    )
    log_interval: int = parameter(
        1, low=1, high=10**6, unit="epochs", help="epochs summarised in one row of train.csv"
    )
    checkpoint_interval: int | None = parameter(
        None,
        low=1,
        high=10**9,
        optional=True,
        unit="epochs",
        identity=False,
        help="epochs between two checkpoints; empty: at most 2 % of the training, of its first "
        "length if it has grown",
    )
    track: str | None = parameter(
        None,
        optional=True,
        form=FORM,
        canonical=canonical,
        help="trackers that follow the experiment: its curves, evaluation, parameters, films and "
        "report are sent there by pods of their own; may change when submitted again",
        identity=False,
    )
    gpus: int = parameter(
        1,
        low=0,
        high=1,
        form="0 or 1, because a training computes on one GPU at most",
        help="GPUs of a training pod",
        identity=False,
    )
    runs_per_gpu: int = parameter(
        1,
        low=1,
        high=64,
        identity=False,
        help="largest number of training pods that use the same GPU, for trainings that leave "
        "most of it idle; more than 1 needs a GPU resource that the cluster shares",
    )
    training_memory: str = parameter(
        "4Gi",
        help="memory of a training pod, both requested and its limit; the replay must fit into it",
        identity=False,
        **MEMORY,
    )
    gpu_image: str = parameter(
        f"rl:{VERSION}-gpu",
        pattern=IMAGE,
        form="an image reference",
        help="container image of training pods",
        identity=False,
    )
    cpu_image: str = parameter(
        f"rl:{VERSION}-cpu",
        pattern=IMAGE,
        form="an image reference",
        help="container image of all other pods",
        identity=False,
    )
    claim: str = parameter(
        "storage",
        pattern=KUBERNETES_NAME,
        form="a Kubernetes name",
        help="persistent volume claim that is mounted as the storage",
        identity=False,
    )
    notify: str | None = parameter(
        None,
        optional=True,
        identity=False,
        secret=True,
        canonical=webhook.checked,
        form=webhook.FORM,
        help=webhook.HELP,
    )
