"""What a learner with a replay has of its actors: the exchange where their unrolls arrive, the replay
that these fill, and the statistics of what was observed. An algorithm adds what it learns by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from agents.distributed.exchange import Exchange
from agents.distributed.interfaces import Columns, Specs
from agents.distributed.replay_queue import Arrived, ReplayQueue
from agents.experience.sequences import SequenceReplay
from agents.interfaces import Growth, State
from agents.normalisation import ObservationNormaliser
from config.algorithms.replay_ratio import ReplayRatio


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
        self.replay, self.queue = SequenceReplay(specs, slots), ReplayQueue(ratio)
        self.exchange = Exchange[Arrived](specs, identity=identity, queue=self.queue)
        self.normaliser, self.wait_s = normaliser, 1.0
        self._weights, self._overlap, self._added = weights, overlap, added

    def begin(self, generation: int) -> Exchange[Arrived]:
        """Where actors find this start of the learner, with the weights of now."""
        self.exchange.begin(generation)
        self.exchange.publish(self.updates, self._weights())
        return self.exchange

    @property
    def updates(self) -> int:
        """That were done in the whole training."""
        return self.queue.updates

    @property
    def steps(self) -> int:
        """Rows that came into the replay in the whole training."""
        return self.queue.taken

    @property
    def replayed(self) -> float | None:
        """How often each row has been learnt from; None before the first update could be."""
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
            self.exchange.give_back(arrived)
            if arrived.may_update:
                self.exchange.publish(self.updates, self._weights())

    def _add(self, columns: Columns) -> None:
        """Statistics of observations learn from what is new in an unroll."""
        if self.normaliser is not None:
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
        """What `state_dict` gave; `load_streams` follows."""
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
    """What a trainer with such an experience has of `agents.interfaces.Learner`, `HasStreams` and
    `HasCounters`, whatever it learns by.
    """

    experience: ReplayedExperience

    def receiver(self, generation: int) -> Exchange[Arrived]:
        """Where actors find this start of the learner; to be called once, before `train` and after
        `load_state_dict`; generation: higher than at any start before.
        """
        return self.experience.begin(generation)

    def counters(self) -> Mapping[str, float]:
        """Of its exchange."""
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
