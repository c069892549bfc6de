"""The Gumbel root: policy improvement by planning with few simulations (Danihelka et al. 2022, ICLR).

Actions are drawn without replacement by the largest g + logits, and sequential halving spends the
simulations on the better half of them, again and again.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from agents.search.evaluator import Searched

Doubles = npt.NDArray[np.float64]
Visits = npt.NDArray[np.int32]


@functools.lru_cache(maxsize=4096)
def considered_visits(actions: int, simulations: int) -> npt.NDArray[np.int32]:
    """For each simulation, the number of visits of the actions among which it chooses, if `actions`
    are considered: every round visits the remaining actions equally often, then drops half of them.
    """
    if actions <= 1:
        return np.arange(simulations, dtype=np.int32)
    rounds = math.ceil(math.log2(actions))
    left = actions
    visits = [0] * actions
    plan = list[int]()
    while len(plan) < simulations:
        for _ in range(max(1, simulations // (rounds * left))):
            plan.extend(visits[:left])
            visits[:left] = [count + 1 for count in visits[:left]]
        left = max(2, left // 2)
    return np.array(plan[:simulations], np.int32)


def mixed_values(
    priors: Doubles, visits: Visits, action_values: Doubles, network_values: Doubles
) -> Doubles:
    """The root's value [k] for the actions without visits (appendix D, eq. 33): the network's and the
    mean of the visited actions, weighted by the priors [k, A].
    """
    weights = np.where(visits > 0, priors, 0)
    total = visits.sum(axis=1)
    visited = weights.sum(axis=1)
    # The least denominator has no influence where anything was visited; elsewhere it avoids 0 / 0.
    mean = (weights * action_values).sum(axis=1) / np.maximum(visited, 1e-300)
    mixed: Doubles = (network_values + total * mean) / (1 + total)
    return mixed


def advantages(
    priors: Doubles,
    visits: Visits,
    action_values: Doubles,
    network_values: Doubles,
    c_visit: float,
    c_scale: float,
) -> Doubles:
    """Logits + σ(completed q) [k, A], -inf for actions without a prior (eq. 8 and 10)."""
    mixed = mixed_values(priors, visits, action_values, network_values)
    completed = np.where(visits > 0, action_values, mixed[:, np.newaxis])
    # σ(q) = (c_visit + max_b N(b)) c_scale q (eq. 8).
    scale = (c_visit + visits.max(axis=1, keepdims=True)) * c_scale
    logits = np.log(np.maximum(priors, 1e-300))
    legal: Doubles = np.where(priors > 0, logits + scale * completed, -np.inf)
    return legal


def improved_policy(advantages: Doubles) -> Doubles:
    """The softmax of the improved logits [k, A] (eq. 11)."""
    # The largest advantage is taken off (log-sum-exp), so that no exponential overflows. For
    # illegal actions exp(−∞) is 0.
    exponentials = np.exp(advantages - advantages.max(axis=1, keepdims=True))
    policy: Doubles = exponentials / exponentials.sum(axis=1, keepdims=True)
    return policy


def best_actions(advantages: Doubles, gumbels: Doubles, visits: Visits) -> npt.NDArray[np.intp]:
    """Among the most visited ones the largest g + logits + σ(q), [k]."""
    most = visits == visits.max(axis=1, keepdims=True)
    best: npt.NDArray[np.intp] = np.where(most, advantages + gumbels, -np.inf).argmax(axis=1)
    return best


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
