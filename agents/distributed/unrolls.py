"""Rows of many environments, as they come, made into unrolls of T + 1 rows of one environment each.

A truncated episode has one row more, its final observation, so that environments fill their unrolls
at different times: each has a place of its own where its next row goes. An unroll may repeat the
end of the one before it, so that what is learnt of the rest can look back that far.
"""

from __future__ import annotations

import math

import numpy as np

from agents.distributed.interfaces import Columns, Spec, Specs

Rows = dict[str, np.ndarray | int]
"""By name, of n environments: [n, ...], or the same for all."""


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
        self._rows, self._kept = unroll_length + 1, overlap + 1
        self._names = set(first)
        self._columns = {
            name: np.zeros((environments * self._rows, *spec.shape), spec.dtype)
            for name, spec in {**rows, **first}.items()
        }
        self._next = np.arange(environments) * self._rows
        self._ends = self._next + self._rows
        self._finished = list[Columns]()

    def add(self, environments: np.ndarray | slice, rows: Rows) -> None:
        """One row of each of these environments, which are distinct: what every row has, and what an
        unroll holds that begins with this one.
        """
        places = self._next[environments]
        for name, column in self._columns.items():
            column[places] = rows[name]
        following = places + 1
        self._next[environments] = following
        (ended,) = (following == self._ends[environments]).nonzero()
        if len(ended):
            self._finish(following[ended] // self._rows - 1)

    def _finish(self, environments: np.ndarray) -> None:
        """The last rows of their unrolls are the first ones of the next."""
        finished = Columns()
        for name, column in self._columns.items():
            of_each = column.reshape(-1, self._rows, *column.shape[1:])
            unrolls = of_each[environments]
            of_each[environments, : self._kept] = unrolls[:, -self._kept :]
            finished[name] = unrolls[:, 0].copy() if name in self._names else unrolls
        self._finished.append(finished)
        self._next[environments] += self._kept - self._rows

    def take(self, least: int = 1) -> Columns | None:
        """The finished unrolls [B, T + 1, ...] that were not taken yet, and their first rows' columns
        [B, ...]: at most as many as there are environments, None while there are fewer than `least`.
        """
        finished, most = self._finished, len(self._next)
        if not finished:  # as after nearly every step
            return None
        if sum(len(next(iter(one.values()))) for one in finished) < least:
            return None
        self._finished = []
        whole = finished[0]
        if len(finished) > 1:
            whole = {name: np.concatenate([one[name] for one in finished]) for name in whole}
        if len(next(iter(whole.values()))) > most:
            self._finished.append({name: column[most:] for name, column in whole.items()})
        return {name: column[:most] for name, column in whole.items()}
