"""Proportional prioritised replay, Schaul et al. 2016 (arXiv:1511.05952), section 3.3 and appendix
B.2.1: a sum tree in numpy, read and written for whole batches at once.

    P(i) = p_i^α / Σ_k p_k^α,  p_i = |δ_i| + ε          w_i = (n · P(i))^−β / max_j w_j
"""

from __future__ import annotations

import numpy as np

from agents.interfaces import State

SMALLEST = 1e-6
"""ε: what is learnt without an error is sampled again all the same."""


class Priorities:
    """p^α of the rows that can be sampled; all others have none.

    capacity: rows of the replay; row r has the leaf r modulo the capacity, where its successor in
    the same place of the ring follows it. exponent: α. Every sum is computed from the two below it
    and never adjusted by a difference, so that the sums are a function of the priorities alone.
    """

    def __init__(self, capacity: int, *, exponent: float) -> None:
        self.capacity = capacity
        self.exponent = exponent
        self.largest = 1.0
        self._rows = range(0)
        self._leaves = 1 << (capacity - 1).bit_length()
        # A binary tree in one array: node k holds the sum of nodes 2 k and 2 k + 1, node 1 is the
        # root, and the leaves fill the second half.
        self._sums = np.zeros(2 * self._leaves)

    def follow(self, rows: range) -> None:
        """From now on these rows can be sampled, which begin and end nowhere earlier than before;
        new ones have the largest priority that there ever was.
        """
        before = self._rows
        self._rows = rows
        # Rows that left are cleared first: a new row may have the leaf of one of them.
        self._set(np.arange(before.start, min(before.stop, rows.start)), 0.0)
        self._set(np.arange(max(before.stop, rows.start), rows.stop), self.largest**self.exponent)

    def sample(self, size: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows [B] with their probabilities P [B]: one from each of B equal parts of the sum."""
        total = self._sums[1]
        # Stratified sampling (appendix B.2.1): one draw in each of B equal parts of the sum.
        sought = (np.arange(size) + generator.random(size)) * (total / size)
        nodes = np.ones(size, np.int64)
        # All searches go down one level at a time, so the first one tells how deep they are.
        while nodes[0] < self._leaves:
            left = 2 * nodes
            of_left = self._sums[left]
            # By rounding `sought` may exceed the sum of all leaves below. The second condition
            # keeps the search away from a branch without weight.
            right = (sought >= of_left) & (self._sums[left + 1] > 0)
            sought -= np.where(right, of_left, 0.0)
            nodes = left + right
        leaves = nodes - self._leaves
        first = self._rows.start
        rows: np.ndarray = first + (leaves - first) % self.capacity
        return rows, self._sums[nodes] / total

    def update(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """The temporal-difference errors [B] of these rows [B]."""
        priorities = np.abs(errors.astype(np.float64)) + SMALLEST
        self.largest = max(self.largest, float(priorities.max()))
        self._set(rows, priorities**self.exponent)

    def _set(self, rows: np.ndarray, values: np.ndarray | float) -> None:
        if not len(rows):
            return
        nodes = rows % self.capacity + self._leaves
        # Rounded to float32, as a checkpoint stores them: a resumed training must have equal sums.
        self._sums[nodes] = np.asarray(values, np.float32)
        # Each sum is computed from its two parts. Adding a difference instead would leave rounding
        # errors that depend on the order of updates.
        while nodes[0] > 1:
            nodes = nodes >> 1
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def state_dict(self) -> State:
        """rows: the first and the one after the last; priorities: their p^α, float32."""
        rows = np.arange(self._rows.start, self._rows.stop)
        priorities = self._sums[rows % self.capacity + self._leaves].astype(np.float32)
        bounds = [self._rows.start, self._rows.stop]
        return {"rows": bounds, "priorities": priorities, "largest": self.largest}

    def load_state_dict(self, state: State) -> None:
        """What `state_dict` gave; the sums are computed again."""
        self._rows = range(*state["rows"])
        self.largest = float(state["largest"])
        self._sums[:] = 0
        self._set(np.arange(self._rows.start, self._rows.stop), state["priorities"])


def importance_weights(probabilities: np.ndarray, count: int, exponent: float) -> np.ndarray:
    """W [B], float32, of rows that were sampled from `count` with these probabilities [B];
    exponent: β. The largest is 1.
    """
    weights = (count * probabilities) ** -exponent
    # Divided by the largest, weights only scale updates down (section 3.4).
    found: np.ndarray = (weights / weights.max()).astype(np.float32)
    return found
