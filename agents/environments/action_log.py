"""What environments that step together did since each of them was last seeded: with the seed, all
that is needed to replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

FIRST_ROWS = 64


class ActionLog:
    """Actions of n environments, a row a step; as long as the longest time since a seeding.

    lengths [n]: steps of each environment since its last seeding.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """shape: of a row, [n] or [n, A]; dtype: the smallest that fits."""
        self._rows = np.zeros((FIRST_ROWS, *shape), dtype)
        self._used = 0
        self._seeded_at = np.zeros(shape[0], np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """Steps since the last seeding, [n]."""
        lengths: np.ndarray = self._used - self._seeded_at
        return lengths

    def append(self, actions: np.ndarray) -> None:
        """One step of all environments."""
        if self._used == len(self._rows):
            self._make_room()
        self._rows[self._used] = actions
        self._used += 1

    def clear(self, seeded: np.ndarray) -> None:
        """These environments were seeded anew, bool [n] or indices."""
        self._seeded_at[seeded] = self._used

    def each(self) -> Iterator[np.ndarray]:
        """The actions of each environment since its last seeding, [length, ...]."""
        for place, seeded_at in enumerate(self._seeded_at):
            yield self._rows[seeded_at : self._used, place]

    def _make_room(self) -> None:
        """Leave out what came before every seeding, and double the space where that is not half of
        it.
        """
        oldest = int(self._seeded_at.min())
        kept = self._rows[oldest : self._used]
        rows = np.zeros((max(FIRST_ROWS, 2 * len(kept)), *kept.shape[1:]), kept.dtype)
        rows[: len(kept)] = kept
        self._rows, self._used = rows, len(kept)
        self._seeded_at -= oldest
