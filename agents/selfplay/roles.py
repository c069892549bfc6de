"""The roles of self-play, workers and trainer, and what they exchange. `steps.training` carries it
through the run's directory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from agents.interfaces import Progress, Resumable, State

if TYPE_CHECKING:
    from agents.selfplay.policy import SelfPlayPolicy
    from config.resolved import Resolved

Rows = dict[str, np.ndarray]
"""Positions, by column: see `agents.selfplay.positions`."""


class Played(NamedTuple):
    """One game of a worker with itself. rows: its positions in order. score: player 0's, 100 won,
    50 drawn, 0 lost.
    """

    rows: Rows
    score: float


class Games(NamedTuple):
    """Several games, as they reach the trainer. rows: of all of them; scores, lengths [games];
    worker: its number; played_s, waited_s: how long it played for them, and how long it waited for
    the trainer meanwhile.
    """

    rows: Rows
    scores: list[float]
    lengths: list[int]
    worker: int
    played_s: float
    waited_s: float


class Published(NamedTuple):
    """A network that plays: that of the trainer after so many generations; state: what
    `agents.selfplay.policy.load` takes.
    """

    generation: int
    state: State


Newest = Callable[[], Published | None]
"""The network that was published last, None if that was given before."""
Take = Callable[[float], Games | None]
"""The next games, waited for so many seconds; None: there are none."""


class SelfPlayTrainer(Resumable, Protocol):
    """A training whose experience comes from workers, in other processes."""

    def train(self, take: Take) -> Iterator[Progress | None]:
        """Yield one `Progress` for each generation until `epochs` are done, and None about once a
        second in between. Raises `config.errors.Diverged` before a non-finite update.
        """

    def playing(self) -> State:
        """The network that plays from now on, as `Published` has it; a copy."""

    def counters(self) -> Mapping[str, float]:
        """Totals since the training began: positions, learnt, refused; seconds waited by either side,
        played by workers, and, if it is known, `trainer_learnt_s` of updates.
        """

    def close(self) -> None:
        """Release what it holds."""


@runtime_checkable
class Imitates(Protocol):
    """Optional for trainers that can learn from recorded games before their own begin."""

    def imitate(self, rows: Rows) -> Iterator[None]:
        """Learn from these positions, as often as it has been told; yields between updates."""


class MakeSelfPlayTrainer(Protocol):
    """The callable named by a descriptor's `trainer`, for an algorithm with workers."""

    def __call__(
        self, resolved: Resolved, *, run: int, device: str, precision: str
    ) -> SelfPlayTrainer:
        """The training of one run, at its start; device and precision are decided."""


class Worker(Protocol):
    """Plays games with itself."""

    def play(self, newest: Newest) -> Generator[list[Played], None, None]:
        """Yields at every move of some games, with those that ended there, for ever; asks for the
        newest network before every move, and begins when there is one.
        """


class MakeWorker(Protocol):
    """The callable named by a descriptor's `worker`."""

    def __call__(self, resolved: Resolved, *, run: int, member: int, attempt: int) -> Worker:
        """Make one of a run's workers, by its number from 0. attempt: different at each start."""


class LoadPlayer(Protocol):
    """The callable named by a descriptor's `policy`, for an algorithm with workers."""

    def __call__(self, resolved: Resolved, state: State) -> SelfPlayPolicy:
        """The player of a checkpoint or of a published network, on the CPU."""
