"""Searches of many games in lock step: one leaf of each goes to the network with those of the others,
so that no tree needs a virtual loss.

A slot holds one game's search. Each has its own number of simulations, and as soon as it has them the
slot may begin the next search, while the others go on: batches stay as large as there are slots.

    search.begin(slots, states, simulations, generators)
    while len((leaves := search.leaves()).states):
        search.receive(*evaluate(leaves.states, leaves.legal))
    searched = search.results(slots)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agents.games.rules import Booleans, Floats, Game, States
from agents.search import gumbel, kernels
from agents.search.evaluator import (
    Arrays,
    EvaluatePositions,
    Generators,
    Leaves,
    Searched,
    SearchSettings,
)
from agents.search.kernels import GROW, IDLE, Rule, Trees
from config.errors import Diverged

Slots = npt.NDArray[np.intp]


class Search:
    """slots: how many searches at once."""

    def __init__(self, game: Game, slots: int, settings: SearchSettings) -> None:
        self.game = game
        self.slots = slots
        self.settings = settings
        self.rule = Rule(
            settings.c_init,
            settings.c_base,
            settings.noise_fraction,
            settings.gumbel,
            settings.c_visit,
            settings.c_scale,
        )
        self.trees = empty_trees(slots, game.actions)
        self._states = np.empty((slots, 1), game.state_dtype)
        self._rows = tuple(np.empty(slots, np.int32) for _ in range(3))
        self._planted = list[tuple[npt.NDArray[np.int32], States, Booleans]]()
        self._waiting: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Booleans] | None = None

    def begin(
        self, slots: Slots, states: States, simulations: Arrays, generators: Generators
    ) -> None:
        """Search these positions [k] anew in these slots [k], with so many simulations [k] each;
        generators [k]: of the noise at the root, drawn once, now.

        Raises `ValueError` for games that are over.
        """
        legal = self.game.legal(states)
        if not legal.any(axis=1).all() or (np.asarray(simulations) < 1).any():
            raise ValueError("a game that is over, or no simulation, cannot be searched")
        budget = np.ascontiguousarray(simulations, np.int32)
        self._make_room(int(budget.max(initial=0)) + 1)
        for row, slot in enumerate(slots):
            self._prepare(int(slot), np.flatnonzero(legal[row]), int(budget[row]), generators[row])
        self._states[slots, 0] = states
        kernels.plant(self.trees, slots, self.game.mover(states), budget)
        self._planted.append((slots.astype(np.int32), states, legal))

    def leaves(self) -> Leaves:
        """Positions for the network, at most one for each slot; none when all have finished. Raises
        `ValueError` while the latest ones wait for their answer.
        """
        if self._waiting is not None:
            raise ValueError("the latest leaves wait for their answer")
        # Roots that were planted since the last call come first: all are node 0.
        parts = [(slots, np.zeros_like(slots), *rest) for slots, *rest in self._planted]
        self._planted = []
        while True:
            rows = kernels.select(self.trees, self.rule, *self._rows)
            if not rows:
                break
            slots, nodes, edges = (column[:rows] for column in self._rows)
            states = self.game.play(self._states[slots, nodes], self.trees.action[slots, edges])
            over, values = self.game.outcome(states)
            attached = np.empty(rows, np.int32)
            movers = self.game.mover(states)
            kernels.attach(self.trees, slots, nodes, edges, movers, over, values, attached)
            self._states[slots, attached] = states
            # Ends need no network: they were backed up at once, and their slots select again.
            kept = ~over
            states = states[kept]
            parts.append((slots[kept], attached[kept], states, self.game.legal(states)))
            # To go on until every slot has a leaf was measured: batches gain 4 % at most.
            if any(len(part[0]) for part in parts):
                break
        if not parts:
            empty = self.game.start(0)
            return Leaves(empty, self.game.legal(empty))
        if len(parts) == 1:
            slots, nodes, states, legal = parts[0]
        else:
            slots, nodes, states, legal = (np.concatenate(one) for one in zip(*parts, strict=True))
        if len(states):
            self._waiting = slots, nodes, legal
        return Leaves(states, legal)

    def receive(self, logits: Floats, values: Floats) -> None:
        """Take in the network's answers for the latest leaves. Raises `Diverged` for numbers that
        are not finite, and `ValueError` for answers of another shape and for a game without a legal
        action before its end.
        """
        if self._waiting is None:
            raise ValueError("no leaves wait for an answer")
        slots, nodes, legal = self._waiting
        if logits.shape != legal.shape or values.shape != (len(legal),):
            raise ValueError(
                f"logits {list(logits.shape)} and values {list(values.shape)} for leaves {list(legal.shape)}"
            )
        logits = np.ascontiguousarray(logits, np.float32)
        values = np.ascontiguousarray(values, np.float32)
        while True:
            rows = kernels.expand(self.trees, self.rule, slots, nodes, legal, logits, values)
            if rows != GROW:
                break
            self.trees = with_more_edges(self.trees)
        if rows < len(slots) and not legal[rows].any():
            raise ValueError("a position that is not over has no legal action")
        if rows < len(slots):
            raise Diverged("the network's logits or values of a position are not finite")
        self._waiting = None

    def finished(self) -> Slots:
        """The slots whose searches have all their simulations, and whose results were not taken."""
        return np.flatnonzero(self.trees.status == kernels.FINISHED)

    def results(self, slots: Slots) -> Searched:
        """The results of finished searches [k]. Their slots are free afterwards."""
        shape = (len(slots), self.game.actions)
        visits = np.zeros(shape, np.int32)
        totals = np.zeros(shape)
        priors = np.zeros(shape)
        kernels.read_roots(self.trees, slots, visits, totals, priors)
        self.trees.status[slots] = IDLE
        action_values = totals / np.maximum(visits, 1)
        simulations = visits.sum(axis=1)
        value = totals.sum(axis=1) / simulations
        # AlphaZero plays the most visited action, and learns the shares of the visits.
        if not self.settings.gumbel:
            policy = visits / simulations[:, np.newaxis]
            return Searched(visits, action_values, policy, visits.argmax(axis=1), value)
        advantages = gumbel.advantages(
            priors,
            visits,
            action_values,
            self.trees.value[slots, 0],
            self.settings.c_visit,
            self.settings.c_scale,
        )
        policy = gumbel.improved_policy(advantages)
        action = gumbel.best_actions(advantages, self.trees.noise[slots], visits)
        return Searched(visits, action_values, policy, action, value)

    def _prepare(
        self, slot: int, legal: Slots, simulations: int, generator: np.random.Generator | None
    ) -> None:
        """Noise over the legal actions, and the Gumbel root's plan."""
        settings = self.settings
        trees = self.trees
        trees.noise[slot] = 0
        trees.noisy[slot] = generator is not None and not settings.gumbel
        if settings.gumbel:
            considered = min(len(legal), settings.considered)
            trees.plan[slot, :simulations] = gumbel.considered_visits(considered, simulations)
        if generator is not None and settings.gumbel:
            # Noise covers the legal actions alone, and is drawn once for the whole search.
            trees.noise[slot, legal] = generator.gumbel(size=len(legal))
        elif generator is not None:
            trees.noise[slot, legal] = generator.dirichlet([settings.dirichlet_alpha] * len(legal))

    def _make_room(self, nodes: int) -> None:
        missing = nodes - self._states.shape[1]
        if missing > 0:
            self.trees = with_nodes(self.trees, nodes)
            self._states = wider(self._states, missing)


def search_all(
    search: Search,
    states: States,
    evaluate: EvaluatePositions,
    simulations: Arrays,
    generators: Generators,
) -> Searched:
    """Search at most as many positions as there are slots, to the end."""
    slots = np.arange(len(states))
    search.begin(slots, states, simulations, generators)
    while len((leaves := search.leaves()).states):
        search.receive(*evaluate(leaves.states, leaves.legal))
    return search.results(slots)


OF_NODES = ("plan", "parent", "via", "first", "breadth", "visits", "mover", "over", "value")
OF_EDGES = ("action", "child", "tries", "total", "prior")
USUAL_ACTIONS = 16
"""Number of edges per node for which there is room at first."""


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
    actions = trees.noise.shape[1]
    edges = trees.action.shape[1]
    missing = max(edges, actions, trees.parent.shape[1] * min(USUAL_ACTIONS, actions))
    return trees._replace(**{name: wider(getattr(trees, name), missing) for name in OF_EDGES})
