"""From visits to a move: the temperature of self-play."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agents.search.interfaces import Searched


def visit_policy(visits: npt.NDArray[np.int32], temperature: float) -> npt.NDArray[np.float64]:
    """N^(1/τ) / Σ N^(1/τ) [k, A], by logarithms, for N^(1/τ) overflows; τ = 0: the most visited, the
    first of equals.
    """
    policy = np.zeros(visits.shape)
    if temperature == 0:
        policy[np.arange(len(visits)), visits.argmax(axis=1)] = 1
        return policy
    shares = visits / visits.max(axis=1, keepdims=True)
    np.log(shares, out=policy, where=visits > 0)
    policy = np.where(visits > 0, np.exp(policy / temperature), 0)
    policy /= policy.sum(axis=1, keepdims=True)
    return policy


def choose(
    searched: Searched,
    plies: npt.NDArray[np.int32],
    sampled_plies: int,
    generators: list[np.random.Generator],
) -> npt.NDArray[np.intp]:
    """The moves [k] of self-play games after `plies` [k] moves each: drawn by the visits (τ = 1) in
    the first `sampled_plies`, then the search's best.
    """
    policy = visit_policy(searched.visits, 1.0)
    actions = searched.action.copy()
    for row in np.flatnonzero(np.asarray(plies) < sampled_plies):
        actions[row] = generators[row].choice(policy.shape[1], p=policy[row])
    return actions
