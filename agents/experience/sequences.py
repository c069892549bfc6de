"""A replay of sequences: the last unrolls of many actors, each T + 1 rows of one environment with the
state that was remembered before the first one.

Unroll r, counted over the whole training, lies in slot r modulo the number of slots. What a row is
stands in `agents.distributed.interfaces`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from agents.distributed.interfaces import Columns, Specs
from agents.experience.replay import STEPS as STREAM
from agents.experience.replay import Transitions
from agents.interfaces import Growth, State
from config.errors import NoUsableState


class SequenceReplay:
    """added: how many unrolls in the whole training; the last `slots` of them are here."""

    def __init__(self, specs: Specs, slots: int) -> None:
        self.slots, self.added = slots, 0
        self._asked = 0  # those before this one were given to the stream
        self._columns = {  # the operating system gives memory only as it is written
            name: np.zeros((slots, *spec.shape), spec.dtype) for name, spec in specs.items()
        }

    @property
    def unrolls(self) -> range:
        """Those that are here."""
        return range(max(0, self.added - self.slots), self.added)

    def add(self, columns: Columns) -> np.ndarray:
        """Unrolls [n, *spec.shape], at most as many as there are slots; returns their numbers [n]."""
        numbers = np.arange(self.added, self.added + len(next(iter(columns.values()))))
        for name, column in self._columns.items():
            column[numbers % self.slots] = columns[name]
        self.added += len(numbers)
        return numbers

    def take(self, unrolls: np.ndarray) -> Columns:
        """Those with these numbers [B], which must be here, [B, *spec.shape]."""
        return {name: column[unrolls % self.slots] for name, column in self._columns.items()}

    def rows(self, name: str, unrolls: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """One column of single rows [B] of these unrolls [B], [B, ...]."""
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
        """What `state_dict` gave; `load_streams` follows."""
        self.added = self._asked = int(state["added"])

    def grown(self) -> dict[str, Growth]:
        """What was added since this was last called, as far as it is still there."""
        numbers = np.arange(max(self._asked, self.unrolls.start), self.added)
        self._asked = self.added
        return {STREAM: Growth(rows=self.take(numbers), keep=self.slots)}

    def load_streams(self, streams: Mapping[str, Iterator[Columns]]) -> None:
        """Take back what `grown` gave; raises `NoUsableState` where that is less than there was."""
        end, here = self.added, self.unrolls
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
    here, length = replay.unrolls, replay.row_count - 1
    unrolls = generator.integers(here.start, here.stop, size)
    rows = generator.integers(0, length, size)
    reward = replay.rows("reward", unrolls, rows)
    terminated = replay.rows("terminated", unrolls, rows)
    return Transitions(
        observation=replay.rows("observation", unrolls, rows),
        action=replay.rows("action", unrolls, rows),
        reward=reward.clip(-1, 1) if clip_rewards else reward,
        discount=np.where(terminated, 0, discount).astype(np.float32),
        next_observation=replay.rows("observation", unrolls, rows + 1),
        next_masks=None,
        valid=replay.rows("valid", unrolls, rows),
        rows=unrolls * length + rows,
    )
