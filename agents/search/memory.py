"""The memory of the trees: it grows with the number of simulations and of legal actions, and is never
given back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agents.search.interfaces import Arrays
from agents.search.kernels import Trees

OF_NODES = ("plan", "parent", "via", "first", "breadth", "visits", "mover", "over", "value")
OF_EDGES = ("action", "child", "tries", "total", "prior")
USUAL_ACTIONS = 16
"""So many edges a node are made room for at first."""


def empty_trees(slots: int, actions: int) -> Trees:
    """Without a node, and with the least room."""

    def of_slots(dtype: npt.DTypeLike, width: int | None = None) -> Arrays:
        return np.zeros(slots if width is None else (slots, width), dtype)

    return Trees(
        status=of_slots(np.int8),
        left=of_slots(np.int32),
        nodes=of_slots(np.int32),
        edges=of_slots(np.int32),
        noisy=of_slots(np.bool_),
        noise=of_slots(np.float64, actions),
        plan=of_slots(np.int32, 1),
        parent=of_slots(np.int32, 1),
        via=of_slots(np.int32, 1),
        first=of_slots(np.int32, 1),
        breadth=of_slots(np.int32, 1),
        visits=of_slots(np.int32, 1),
        mover=of_slots(np.int8, 1),
        over=of_slots(np.bool_, 1),
        value=of_slots(np.float64, 1),
        action=of_slots(np.int16, actions),
        child=of_slots(np.int32, actions),
        tries=of_slots(np.int32, actions),
        total=of_slots(np.float64, actions),
        prior=of_slots(np.float64, actions),
    )


def wider(array: Arrays, columns: int) -> Arrays:
    """[G, n] -> [G, n + columns]."""
    return np.concatenate([array, np.zeros((len(array), columns), array.dtype)], axis=1)


def with_nodes(trees: Trees, nodes: int) -> Trees:
    """With room for so many nodes in each tree."""
    missing = nodes - trees.parent.shape[1]
    return trees._replace(**{name: wider(getattr(trees, name), missing) for name in OF_NODES})


def with_more_edges(trees: Trees) -> Trees:
    """With room for twice as many edges, or for the usual number of them."""
    actions, edges = trees.noise.shape[1], trees.action.shape[1]
    missing = max(edges, actions, trees.parent.shape[1] * min(USUAL_ACTIONS, actions))
    return trees._replace(**{name: wider(getattr(trees, name), missing) for name in OF_EDGES})
