"""The parameters of a training that learns from its workers' games against themselves (topology
`self-play`). None of them can change what a result means: workers come and go while a run trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from config.actors import check_gpus, gpus_of, per_gpu_of
from config.ladder import canonical_opponents
from config.parameters import parameter

MOST_WORKERS = 512


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How many workers one run has, and how long each side waits for the other."""

    roles: ClassVar[tuple[str, str]] = ("trainer", "worker")
    """The role that learns, then the role that plays games. The trainer reports the result of the
    training step.
    """

    workers: int = parameter(
        2,
        low=1,
        high=MOST_WORKERS,
        identity=False,
        help="worker processes of a run, each playing games_per_worker games for the trainer; "
        "may change when submitted again",
    )
    worker_gpus: int = gpus_of("worker", MOST_WORKERS, "the networks run on CPUs")
    workers_per_gpu: int = per_gpu_of("worker", MOST_WORKERS)
    reconnect_timeout: int = parameter(
        300,
        low=1,
        high=86_400,
        unit="s",
        identity=False,
        help="time after which a worker that finds no network, or whose games are not "
        "collected, exits, frees its resources and is restarted",
    )
    no_data_timeout: int = parameter(
        600,
        low=1,
        high=86_400,
        unit="s",
        identity=False,
        help="time after which a trainer that receives no games exits and is restarted",
    )

    opponents: str | None = parameter(
        None,
        optional=True,
        identity=False,
        canonical=canonical_opponents,
        form="names of players, package.module:Name or DIRECTORY[:run], with commas between",
        help="further opponents of the trained agent in evaluation, besides the ladder: "
        "players by name, players of your own, or agents of other experiments; may change "
        "when submitted again",
    )

    @property
    def helpers(self) -> int:
        """Number of processes that do not learn."""
        return self.workers

    @property
    def learners(self) -> int:
        """Number of processes that learn."""
        return 1

    @property
    def gpus(self) -> int:
        """Number of GPUs for all workers together."""
        return self.worker_gpus

    def check(self) -> None:
        """Raise `BadInput` for values that do not go together."""
        check_gpus("worker", self.workers, self.worker_gpus, self.workers_per_gpu)
