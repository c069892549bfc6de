"""Assembles rows of many environments into unrolls of T + 1 rows of one environment each.

A truncated episode has an extra row for its final observation, so environments fill their unrolls at
different times, and each has its own write position. Unrolls may overlap: the end of one is repeated
at the start of the next, so that a recurrent network can be warmed up on it (R2D2's burn-in).
"""

from __future__ import annotations

import math

import numpy as np
import torch

from agents.devices import on_device
from agents.distributed.protocol import Columns, Spec, Specs
from agents.networks.torsos import TorsoState

Rows = dict[str, np.ndarray | int]
"""Column name -> values of n environments [n, ...], or one value for all."""


def unroll_specs(rows: Specs, first: Specs, unroll_length: int) -> dict[str, Spec]:
    """The columns of unrolls of T + 1 rows. rows: the columns of one row of one environment. first:
    columns that only an unroll's first row has.
    """
    of_rows = {
        name: Spec(spec.dtype, (unroll_length + 1, *spec.shape)) for name, spec in rows.items()
    }
    return of_rows | dict(first)


def bytes_of(specs: Specs) -> int:
    """Size of one unroll."""
    return sum(np.dtype(one.dtype).itemsize * math.prod(one.shape) for one in specs.values())


def final_rows(columns: Columns) -> np.ndarray:
    """Which rows only hold the final observation with which an episode was truncated, bool [B, T], of
    unrolls [B, T + 1]. The last row of an unroll is judged in the next one.
    """
    # The next episode begins after such a row although nothing terminated in it.
    rows: np.ndarray = columns["begins"][:, 1:] & ~columns["terminated"][:, :-1]
    return rows


def environment_steps(columns: Columns, rows: int) -> int:
    """Number of environment steps in the last `rows` rows before the final one of each unroll
    [B, T + 1]: every row is a step but those that only hold a final observation.
    """
    final = final_rows(columns)[:, -rows:]
    return int(final.size - final.sum())


class Assembler:
    """The unrolls of E environments that are not finished yet, and those that are."""

    def __init__(
        self, rows: Specs, first: Specs, unroll_length: int, environments: int, overlap: int = 0
    ) -> None:
        """The columns are those of `unroll_specs`. overlap: number of rows before the last that the
        next unroll repeats, less than T.
        """
        self._rows = unroll_length + 1
        self._kept = overlap + 1
        self._names = set(first)
        # All environments' rows lie in one array per column, T + 1 rows of one after those of the
        # other. `_next` is where each writes.
        self._columns = {
            name: np.zeros((environments * self._rows, *spec.shape), spec.dtype)
            for name, spec in {**rows, **first}.items()
        }
        self._next = np.arange(environments) * self._rows
        self._ends = self._next + self._rows
        self._finished = list[Columns]()

    def add(self, environments: np.ndarray | slice, rows: Rows) -> None:
        """Add one row for each of these distinct environments: the columns of every row, and those
        of an unroll that begins with it.
        """
        places = self._next[environments]
        for name, column in self._columns.items():
            column[places] = rows[name]
        following = places + 1
        self._next[environments] = following
        # Environments end their unrolls at different times, because a truncated episode has one more
        # row.
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
            # Columns that only first rows have were written in every row; the first one is needed.
            finished[name] = unrolls[:, 0].copy() if name in self._names else unrolls
        self._finished.append(finished)
        self._next[environments] += self._kept - self._rows

    def take(self, least: int = 1) -> Columns | None:
        """The finished unrolls [B, T + 1, ...] that were not taken yet, and their first rows' columns
        [B, ...]: at most as many as there are environments, None while there are fewer than `least`.
        """
        finished = self._finished
        most = len(self._next)
        # Nothing is finished after most steps.
        if not finished:
            return None
        if sum(len(next(iter(one.values()))) for one in finished) < least:
            return None
        self._finished = []
        whole = finished[0]
        if len(finished) > 1:
            whole = Columns()
            for name in finished[0]:
                whole[name] = np.concatenate([one[name] for one in finished])
        # A message holds at most one unroll of each environment: the rest waits for the next.
        if len(next(iter(whole.values()))) > most:
            self._finished.append({name: column[most:] for name, column in whole.items()})
        return {name: column[:most] for name, column in whole.items()}


CPU = torch.device("cpu")
STATE = "state"
"""With this the names of columns begin: the parts of what is remembered before an unroll's first
row."""


class ActingMemory:
    """E environments'; specs: of the columns, none without a memory."""

    def __init__(self, first_state: TorsoState) -> None:
        """Zeros [E, ...] each."""
        self._parts = [part.numpy(force=True) for part in first_state]
        self.specs: Specs = {
            f"{STATE}{number}": Spec("float32", part.shape[1:])
            for number, part in enumerate(self._parts)
        }

    def columns(self, environments: slice | np.ndarray) -> Columns:
        """A copy of what is remembered of their episodes, whether or not these have ended."""
        parts = zip(self.specs, self._parts, strict=True)
        return {name: part[environments].copy() for name, part in parts}

    def parts(self, environments: slice) -> tuple[np.ndarray, ...]:
        """The memory's own arrays, [n, ...] each."""
        return tuple(part[environments] for part in self._parts)

    def keep(self, environments: slice, after: TorsoState) -> None:
        """Replace the memory."""
        for kept, part in zip(self._parts, after, strict=True):
            kept[environments] = part.numpy(force=True)


def as_state(columns: Columns, names: Specs, device: torch.device = CPU) -> TorsoState:
    """The columns of these names as a network takes them."""
    return tuple(on_device(torch.from_numpy(columns[name]), device) for name in names)
