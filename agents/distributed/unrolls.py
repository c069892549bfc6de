"""Rows of many environments, as they come, made into unrolls of T + 1 rows of one environment each.

A truncated episode has one row more, its final observation, so that environments fill their unrolls
at different times: each has a place of its own where its next row goes. An unroll may repeat the
end of the one before it, so that what is learnt of the rest can look back that far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from agents.distributed.interfaces import Columns, Spec, Specs


def unroll_specs(rows: Specs, first: Specs, unroll_length: int) -> dict[str, Spec]:
    """Of unrolls of T + 1 rows; rows: of one row of one environment; first: of what only the first
    row of an unroll has.
    """
    of_rows = {
        name: Spec(spec.dtype, (unroll_length + 1, *spec.shape)) for name, spec in rows.items()
    }
    return of_rows | dict(first)


def bytes_of(specs: Specs) -> int:
    """What one unroll takes."""
    return sum(np.dtype(one.dtype).itemsize * math.prod(one.shape) for one in specs.values())


class Assembler:
    """The unrolls of E environments that are not finished yet, and those that are."""

    def __init__(
        self, rows: Specs, first: Specs, unroll_length: int, environments: int, overlap: int = 0
    ) -> None:
        """As `unroll_specs`, of whose columns the unrolls are. overlap: rows before its last one that
        the next unroll has again, fewer than T.
        """
        self._length, self._overlap = unroll_length, overlap
        self._names = set(first)
        self._columns = {
            name: np.zeros((environments, unroll_length + 1, *spec.shape), spec.dtype)
            for name, spec in {**rows, **first}.items()
        }
        self._places = np.zeros(environments, np.int64)
        self._finished = list[Columns]()

    def add(
        self,
        environments: np.ndarray,
        rows: Mapping[str, np.ndarray],
        first: Mapping[str, np.ndarray],
    ) -> None:
        """One row of each of these environments, whose numbers [n] are distinct.

        rows [n, ...]: by name; first [n, ...]: what an unroll holds that begins with this row.
        """
        places = self._places[environments]
        for name, column in self._columns.items():
            column[environments, places] = (first if name in self._names else rows)[name]
        self._places[environments] = places + 1
        ended = places == self._length
        if ended.any():
            self._finish(environments[ended])

    def _finish(self, environments: np.ndarray) -> None:
        """The last rows of their unrolls are the first ones of the next."""
        self._finished.append(
            {
                name: column[environments, 0] if name in self._names else column[environments]
                for name, column in self._columns.items()
            }
        )
        kept = self._overlap + 1
        for column in self._columns.values():
            column[environments, :kept] = column[environments, -kept:]
        self._places[environments] = kept

    def take(self) -> Columns | None:
        """All unrolls [B, T + 1, ...] that were finished since this was last called, and their
        first rows' columns [B, ...]; None: there is none.
        """
        finished, self._finished = self._finished, []
        if len(finished) < 2:
            return finished[0] if finished else None
        return {name: np.concatenate([one[name] for one in finished]) for name in finished[0]}
