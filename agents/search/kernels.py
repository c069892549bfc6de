"""Selection, expansion and backup in the trees of many games, as machine code.

All trees are rows of the same arrays. Edges hold what is known of an action, in the order of the
legal actions, those of a node side by side; nodes are positions. A value is counted for or against an
edge by who is to move at its two ends, never by the depth: players need not alternate.

`tests/search_reference.py` is the same search as a tree of objects.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.games.compiled import compiled

IDLE = 0
SEARCHING = 1
WAITING = 2
FINISHED = 3
"""A slot's status; waiting: for the network."""
GROW = -1
"""Returned by `expand`, before it has changed anything, if there is no room for more edges."""

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Trees(NamedTuple):
    """G slots, one tree in each. left: simulations to go; nodes, edges: how many are in use."""

    # One number for each slot, [G].
    status: Bytes
    left: Ints
    nodes: Ints
    edges: Ints
    noisy: Flags
    # Noise of the root's actions, [G, A]: Dirichlet's, or Gumbel's.
    noise: Doubles
    # For the Gumbel root, [G, S]: by simulation, the visits of the actions that it considers.
    plan: Ints
    # Nodes, [G, N]. parent: -1 of the root; via: the edge that leads here; first, breadth: the
    # first of its edges, and their number; visits: sum over its edges; value: the network's, or
    # that of the end, for the node's mover.
    parent: Ints
    via: Ints
    first: Ints
    breadth: Ints
    visits: Ints
    mover: Bytes
    over: Flags
    value: Doubles
    # Edges, [G, E]. child: a node, -1 until the edge was visited; tries: N; total: W, the sum of
    # values for the mover of the node where the edge begins.
    action: npt.NDArray[np.int16]
    child: Ints
    tries: Ints
    total: Doubles
    prior: Doubles


class Rule(NamedTuple):
    """The numbers of `SearchSettings`, as the kernels take them."""

    c_init: float
    c_base: float
    noise_fraction: float
    gumbel: bool
    c_visit: float
    c_scale: float


@compiled
def score(prior: float, tries: int, total: float, factor: float) -> float:
    """PUCT's Q + c P √(Σ N) / (1 + N), with factor = c √(Σ N); Q is 0 where nothing was tried."""
    exploration = factor * prior / (1 + tries)
    return total / tries + exploration if tries else exploration


@compiled
def _puct_edge(trees: Trees, g: int, node: int, rule: Rule) -> int:
    """Before the first visit, where the formula is 0 for all, the prior alone decides."""
    visits = trees.visits[g, node]
    # AlphaZero's pseudocode (Silver et al. 2018): c grows slowly with the visits.
    c = math.log((1 + visits + rule.c_base) / rule.c_base) + rule.c_init
    factor = c * math.sqrt(max(visits, 1))
    best = -1
    best_score = -np.inf
    for edge in range(trees.first[g, node], trees.first[g, node] + trees.breadth[g, node]):
        one = score(trees.prior[g, edge], trees.tries[g, edge], trees.total[g, edge], factor)
        if one > best_score:
            best = edge
            best_score = one
    return best


@compiled
def _gumbel_edge(trees: Trees, g: int, rule: Rule) -> int:
    """The edge at the root with the largest g + logits + σ(q) among the actions with as many visits
    as the plan considers (Danihelka et al. 2022, algorithm 2).
    """
    first = trees.first[g, 0]
    count = trees.breadth[g, 0]
    most = 0
    for edge in range(first, first + count):
        most = max(most, trees.tries[g, edge])
    considered = trees.plan[g, trees.visits[g, 0]]
    best = -1
    best_score = -np.inf
    for edge in range(first, first + count):
        tries = trees.tries[g, edge]
        if tries == considered:
            # A prior may round to 0 in the softmax, and its logarithm would be −∞.
            logit = math.log(max(trees.prior[g, edge], 1e-300))
            one = trees.noise[g, trees.action[g, edge]] + logit
            if tries:
                one += (rule.c_visit + most) * rule.c_scale * trees.total[g, edge] / tries
            if one > best_score:
                best = edge
                best_score = one
    return best


@compiled
def _back_up(trees: Trees, g: int, node: int, value: float, mover: int) -> None:
    """value: for that mover."""
    while trees.parent[g, node] >= 0:
        edge = trees.via[g, node]
        node = trees.parent[g, node]
        trees.tries[g, edge] += 1
        trees.visits[g, node] += 1
        # The sign depends on the mover, not on the depth: a player may move twice in a row
        # (Othello's pass).
        trees.total[g, edge] += value if trees.mover[g, node] == mover else -value
    trees.left[g] -= 1
    trees.status[g] = SEARCHING if trees.left[g] > 0 else FINISHED


@compiled
def select(trees: Trees, rule: Rule, slots: Ints, nodes: Ints, edges: Ints) -> int:
    """Go down from every root that is searching, to an edge that was never tried; the number of rows
    of slots, nodes and edges [G] that say which. A simulation that comes to a known end needs no
    network and is counted at once.
    """
    rows = 0
    for g in range(len(trees.status)):
        while trees.status[g] == SEARCHING:
            node = 0
            edge = -1
            # The path goes down from the root, by the rule of each node.
            while not trees.over[g, node]:
                at_gumbel_root = rule.gumbel and node == 0
                if at_gumbel_root:
                    edge = _gumbel_edge(trees, g, rule)
                else:
                    edge = _puct_edge(trees, g, node, rule)
                if trees.child[g, edge] < 0:
                    break
                node = trees.child[g, edge]
            if trees.over[g, node]:
                _back_up(trees, g, node, trees.value[g, node], trees.mover[g, node])
            else:
                slots[rows] = g
                nodes[rows] = node
                edges[rows] = edge
                trees.status[g] = WAITING
                rows += 1
    return rows


@compiled
def plant(trees: Trees, slots: npt.NDArray[np.intp], movers: Bytes, simulations: Ints) -> None:
    """New roots that wait for the network."""
    for row in range(len(slots)):
        g = slots[row]
        trees.status[g] = WAITING
        trees.left[g] = simulations[row]
        # Older nodes and edges of the slot stay in memory, and are overwritten.
        trees.nodes[g] = 1
        trees.edges[g] = 0
        trees.parent[g, 0] = -1
        trees.mover[g, 0] = movers[row]
        trees.over[g, 0] = False


@compiled
def attach(
    trees: Trees,
    slots: Ints,
    nodes: Ints,
    edges: Ints,
    movers: Bytes,
    over: Flags,
    values: npt.NDArray[np.float32],
    attached: Ints,
) -> None:
    """New nodes, written to attached [rows], at the ends of these edges; what is over is backed up
    at once, the others wait.
    """
    for row in range(len(slots)):
        g = slots[row]
        node = trees.nodes[g]
        trees.nodes[g] += 1
        attached[row] = node
        trees.child[g, edges[row]] = node
        trees.parent[g, node] = nodes[row]
        trees.via[g, node] = edges[row]
        trees.mover[g, node] = movers[row]
        trees.over[g, node] = over[row]
        if over[row]:
            trees.value[g, node] = values[row]
            _back_up(trees, g, node, values[row], movers[row])


@compiled
def expand(
    trees: Trees,
    rule: Rule,
    slots: Ints,
    nodes: Ints,
    legal: Flags,
    logits: npt.NDArray[np.float32],
    values: npt.NDArray[np.float32],
) -> int:
    """The answers of the network: edges with their priors, the softmax over the legal actions, at a
    noisy root mixed with the noise; values are backed up.

    Returns `GROW`, or the number of rows before the first one that is not finite or has no legal
    action.
    """
    counts = legal.sum(axis=1)
    # Machine code cannot make the arrays larger. So room is checked before anything is changed: the
    # caller makes room and calls again.
    for row in range(len(slots)):
        if trees.edges[slots[row]] + counts[row] > trees.action.shape[1]:
            return GROW
    for row in range(len(slots)):
        g = slots[row]
        node = nodes[row]
        largest = -np.inf
        exponentials = 0.0
        edge = trees.edges[g]
        trees.first[g, node] = edge
        trees.breadth[g, node] = counts[row]
        trees.visits[g, node] = 0
        # Softmax over the legal actions; without the largest logit no exponential overflows.
        for action in range(legal.shape[1]):
            if legal[row, action]:
                largest = max(largest, logits[row, action])
        for action in range(legal.shape[1]):
            if legal[row, action]:
                trees.action[g, edge] = action
                trees.child[g, edge] = -1
                trees.tries[g, edge] = 0
                trees.total[g, edge] = 0
                trees.prior[g, edge] = math.exp(logits[row, action] - largest)
                exponentials += trees.prior[g, edge]
                edge += 1
        if counts[row] == 0 or not (math.isfinite(exponentials) and math.isfinite(values[row])):
            return row
        for one in range(trees.edges[g], edge):
            trees.prior[g, one] /= exponentials
            if node == 0 and trees.noisy[g]:
                # P ← (1 − ε) P + ε noise, at the root alone.
                noise = trees.noise[g, trees.action[g, one]]
                trees.prior[g, one] += rule.noise_fraction * (noise - trees.prior[g, one])
        trees.edges[g] = edge
        trees.value[g, node] = values[row]
        # The root's own evaluation is no simulation.
        if node == 0:
            trees.status[g] = SEARCHING
        else:
            _back_up(trees, g, node, values[row], trees.mover[g, node])
    return len(slots)


@compiled
def read_roots(
    trees: Trees, slots: npt.NDArray[np.intp], visits: Ints, totals: Doubles, priors: Doubles
) -> None:
    """Into visits, totals and priors [k, A], 0 for what is not legal."""
    for row in range(len(slots)):
        g = slots[row]
        for edge in range(trees.first[g, 0], trees.first[g, 0] + trees.breadth[g, 0]):
            action = trees.action[g, edge]
            visits[row, action] = trees.tries[g, edge]
            totals[row, action] = trees.total[g, edge]
            priors[row, action] = trees.prior[g, edge]
