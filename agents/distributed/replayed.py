"""A learner's experience from a replay: the exchange where unrolls arrive, the replay of sequences
that they fill, and the statistics of observations. The algorithm adds its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from agents.distributed.exchange import Exchange
from agents.distributed.protocol import Columns, Specs
from agents.distributed.queues import Arrived, ReplayQueue
from agents.distributed.unrolls import environment_steps
from agents.environments.normalisation import ObservationNormaliser
from agents.experience.replay import STEPS as STREAM
from agents.experience.replay import Transitions
from agents.interfaces import Growth, State
from config.algorithms.replay_ratio import ReplayRatio
from config.errors import NoUsableState


class ReplayedExperience:
    """overlap: rows that an unroll has in common with the one before it; weights: what actors act by
    now; added: called with the numbers [n] of unrolls that were added to the replay, and with their
    columns; wait_s: after so long without anything to do, `until` yields.
    """

    def __init__(
        self, specs: Specs, ratio: ReplayRatio, *, identity: str, slots: int,
        weights: Callable[[], Columns], normaliser: ObservationNormaliser | None, overlap: int = 0,
        added: Callable[[np.ndarray, Columns], None] = lambda numbers, columns: None,
    ) -> None:  # fmt: skip
        self.replay = SequenceReplay(specs, slots)
        self.queue = ReplayQueue(ratio, lambda columns: environment_steps(columns, ratio.unroll))
        self.exchange = Exchange[Arrived](specs, identity=identity, queue=self.queue)
        self.normaliser = normaliser
        self.wait_s = 1.0
        self._weights = weights
        self._overlap = overlap
        self._added = added

    def begin(self, generation: int) -> Exchange[Arrived]:
        """The receiver for actors of this start of the learner, with the present weights."""
        self.exchange.begin(generation)
        self.exchange.publish(self.updates, self._weights())
        return self.exchange

    @property
    def updates(self) -> int:
        """Number of updates in the whole training."""
        return self.queue.updates

    @property
    def steps(self) -> int:
        """Number of environment steps that came into the replay in the whole training."""
        return self.queue.taken

    @property
    def replayed(self) -> float | None:
        """How often each step has been learnt from; None before the first update could be."""
        ratio = self.queue.ratio
        counted = self.steps - ratio.starts
        return self.updates * ratio.batch / counted if counted > 0 else None

    def until(self, steps: int, updates: int, learn: Callable[[], None]) -> Iterator[None]:
        """Gather and learn until there were so many steps and updates in all; yields while neither
        can go on.
        """
        self.queue.most_updates = updates
        while self.steps < steps or self.updates < updates:
            arrived = self.exchange.take(self.wait_s)
            if arrived is None:
                yield
                continue
            for columns in arrived.unrolls:
                self._add(columns)
            if arrived.may_update:
                learn()
            # The queue counts the update when this is given back; the weights carry that number.
            self.exchange.give_back(arrived)
            if arrived.may_update:
                self.exchange.publish(self.updates, self._weights())

    def _add(self, columns: Columns) -> None:
        """Statistics of observations learn from what is new in an unroll."""
        if self.normaliser is not None:
            # The first rows are the last ones of the unroll before, and the last row is the first
            # of the next.
            new = slice(self._overlap, -1)
            self.normaliser.update(columns["observation"][:, new][columns["valid"][:, new]])
        self._added(self.replay.add(columns), columns)

    def normalised(self, observations: np.ndarray) -> np.ndarray:
        """[..., *shape] as the networks see them, before they are encoded."""
        return observations if self.normaliser is None else self.normaliser(observations)

    def state_dict(self) -> State:
        """Everything but the replay's unrolls, which are a stream."""
        return {
            "observation_normaliser": self.normaliser.state_dict() if self.normaliser else {},
            "exchange": self.exchange.state_dict(),
            "queue": self.queue.state_dict(),
            "replay": self.replay.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave. `load_streams` must follow."""
        if self.normaliser is not None:
            self.normaliser.load_state_dict(state["observation_normaliser"])
        self.exchange.load_state_dict(state["exchange"])
        self.queue.load_state_dict(state["queue"])
        self.replay.load_state_dict(state["replay"])

    def grown(self) -> dict[str, Growth]:
        """The replay's stream, as `agents.interfaces.HasStreams` has it."""
        return self.replay.grown()

    def load_streams(self, streams: Mapping[str, Iterator[Columns]]) -> None:
        """Take back the replay's unrolls; raises `NoUsableState` for fewer than there were."""
        self.replay.load_streams(streams)


class LearnsFromReplay:
    """Implements the parts of `agents.interfaces.Learner`, `HasStreams` and `HasCounters` that
    every learner with a replay shares.
    """

    experience: ReplayedExperience

    def receiver(self, generation: int) -> Exchange[Arrived]:
        """The receiver for actors of this start of the learner. To be called once, before `train`
        and after `load_state_dict`. generation: higher than at any start before.
        """
        return self.experience.begin(generation)

    def counters(self) -> Mapping[str, float]:
        """The counters of its exchange."""
        return self.experience.exchange.counters()

    def grown(self) -> dict[str, Growth]:
        """The replay's stream."""
        return self.experience.grown()

    def load_streams(self, streams: Mapping[str, Iterator[Columns]]) -> None:
        """Take back the replay's unrolls; raises `NoUsableState` for fewer than there were."""
        self.experience.load_streams(streams)

    def close(self) -> None:
        """Actors wait no longer for a place."""
        self.experience.exchange.close()


class SequenceReplay:
    """added: how many unrolls in the whole training; the last `slots` of them are here."""

    def __init__(self, specs: Specs, slots: int) -> None:
        self.slots = slots
        self.added = 0
        # The number of unrolls that `grown` has handed out so far.
        self._asked = 0
        # For zeros the operating system provides memory only as rows are written.
        self._columns = {
            name: np.zeros((slots, *spec.shape), spec.dtype) for name, spec in specs.items()
        }

    @property
    def unrolls(self) -> range:
        """The numbers of the unrolls in the replay."""
        return range(max(0, self.added - self.slots), self.added)

    def add(self, columns: Columns) -> np.ndarray:
        """Unrolls [n, *spec.shape], at most as many as there are slots; returns their numbers [n]."""
        numbers = np.arange(self.added, self.added + len(next(iter(columns.values()))))
        for name, column in self._columns.items():
            column[numbers % self.slots] = columns[name]
        self.added += len(numbers)
        return numbers

    def take(self, unrolls: np.ndarray) -> Columns:
        """The unrolls with these numbers [B], as [B, *spec.shape]. They must be in the replay."""
        return {name: column[unrolls % self.slots] for name, column in self._columns.items()}

    def rows(self, name: str, unrolls: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """One column of single rows [B] of these unrolls [B], as [B, ...]."""
        found: np.ndarray = self._columns[name][unrolls % self.slots, rows]
        return found

    @property
    def row_count(self) -> int:
        """T + 1."""
        return self._columns["reward"].shape[1]

    def state_dict(self) -> State:
        """Beside the stream: how many were added."""
        return {"added": self.added}

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave. `load_streams` must follow."""
        self.added = self._asked = int(state["added"])

    def grown(self) -> dict[str, Growth]:
        """The unrolls added since the last call, as far as they are still in the replay."""
        numbers = np.arange(max(self._asked, self.unrolls.start), self.added)
        self._asked = self.added
        return {STREAM: Growth(rows=self.take(numbers), keep=self.slots)}

    def load_streams(self, streams: Mapping[str, Iterator[Columns]]) -> None:
        """Take back what `grown` gave; raises `NoUsableState` where that is less than there was."""
        end = self.added
        here = self.unrolls
        self.added = here.start
        for columns in streams.get(STREAM, ()):
            self.add(columns)
        if self.added != end:
            raise NoUsableState(
                f"the replay of this training has {self.added - here.start} unrolls, "
                f"its checkpoint {len(here)}"
            )


def sample_transitions(
    replay: SequenceReplay,
    size: int,
    generator: np.random.Generator,
    *,
    discount: float,
    clip_rewards: bool,
) -> Transitions:
    """B transitions, each as likely as any other, with repetition, from one row to the next one: of a
    truncated episode that is its final observation. What begins with that one is not valid.
    """
    here = replay.unrolls
    length = replay.row_count - 1
    unrolls = generator.integers(here.start, here.stop, size)
    # The last row is never drawn: what followed it is in the next unroll.
    rows = generator.integers(0, length, size)
    reward = replay.rows("reward", unrolls, rows)
    if clip_rewards:
        reward = reward.clip(-1, 1)
    terminated = replay.rows("terminated", unrolls, rows)
    return Transitions(
        observation=replay.rows("observation", unrolls, rows),
        action=replay.rows("action", unrolls, rows),
        reward=reward,
        discount=np.where(terminated, 0, discount).astype(np.float32),
        next_observation=replay.rows("observation", unrolls, rows + 1),
        next_masks=None,
        valid=replay.rows("valid", unrolls, rows),
        rows=unrolls * length + rows,
    )
