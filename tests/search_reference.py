"""The search of `agents.search` as one reads it in the papers: a tree of objects, one game at a time,
plain Python; and a network by a hash, so that no two answers are equal."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field

import numpy as np

from agents.games.rules import Game, States
from agents.search.evaluator import SearchSettings


@dataclass
class Edge:
    prior: float
    visits: int = 0
    total: float = 0.0
    child: Node | None = None


@dataclass
class Node:
    """edges: by action, empty until it is expanded, and at an end."""

    state: States  # [1]
    mover: int
    over: bool
    value: float = 0.0
    edges: dict[int, Edge] = field(default_factory=dict)


class Reference:
    """noise: by action, of Dirichlet or Gumbel, at the root."""

    def __init__(self, game: Game, network, settings: SearchSettings) -> None:
        self.game, self.network, self.settings = game, network, settings

    def search(
        self, state: States, simulations: int, noise: dict[int, float] | None = None
    ) -> Node:
        root = self.node(state)
        self.expand(root)
        if noise and not self.settings.gumbel:
            share = self.settings.noise_fraction
            for action, edge in root.edges.items():
                edge.prior = (1 - share) * edge.prior + share * noise[action]
        plan = self.plan(min(len(root.edges), self.settings.considered), simulations)
        for number in range(simulations):
            first = None
            if self.settings.gumbel:
                first = self.considered(root, plan[number], noise or {})
            self.simulate(root, first)
        return root

    def simulate(self, node: Node, action: int | None = None) -> tuple[float, int]:
        """A value, and whose it is."""
        if node.over:
            return node.value, node.mover
        if action is None:
            action = self.select(node)
        edge = node.edges[action]
        if edge.child is None:
            edge.child = self.node(self.game.play(node.state, np.array([action])))
            if not edge.child.over:
                self.expand(edge.child)
            value, mover = edge.child.value, edge.child.mover
        else:
            value, mover = self.simulate(edge.child)
        edge.visits += 1
        edge.total += value if mover == node.mover else -value
        return value, mover

    def select(self, node: Node) -> int:
        tried = sum(edge.visits for edge in node.edges.values())
        c = math.log((1 + tried + self.settings.c_base) / self.settings.c_base)
        c += self.settings.c_init

        def score(edge: Edge) -> float:
            q = edge.total / edge.visits if edge.visits else 0.0
            return q + c * math.sqrt(max(tried, 1)) * edge.prior / (1 + edge.visits)

        return max(node.edges, key=lambda action: score(node.edges[action]))

    def considered(self, root: Node, visits: int, gumbels: dict[int, float]) -> int:
        """Sequential halving: the best of those with so many visits."""
        most = max(edge.visits for edge in root.edges.values())
        sigma = (self.settings.c_visit + most) * self.settings.c_scale

        def score(action: int) -> float:
            edge = root.edges[action]
            q = edge.total / edge.visits if edge.visits else 0.0
            return gumbels.get(action, 0.0) + math.log(edge.prior) + sigma * q

        among = [action for action, edge in root.edges.items() if edge.visits == visits]
        return max(among, key=score)

    @staticmethod
    def plan(considered: int, simulations: int) -> list[int]:
        """Visits of those that are considered, simulation by simulation, by playing it through."""
        if considered == 1:
            return list(range(simulations))
        visits, plan = [0] * considered, list[int]()
        rounds, alive = math.ceil(math.log2(considered)), considered
        while len(plan) < simulations:
            for _ in range(max(1, math.floor(simulations / (rounds * alive)))):
                for one in range(alive):
                    plan.append(visits[one])
                    visits[one] += 1
            alive = max(2, alive // 2)
        return plan[:simulations]

    def node(self, state: States) -> Node:
        over, value = self.game.outcome(state)
        return Node(state, int(self.game.mover(state)[0]), bool(over[0]), float(value[0]))

    def expand(self, node: Node) -> None:
        legal = self.game.legal(node.state)
        logits, values = self.network(node.state, legal)
        actions = np.flatnonzero(legal[0]).tolist()
        weights = {action: math.exp(float(logits[0, action])) for action in actions}
        total = sum(weights.values())
        node.edges = {action: Edge(weight / total) for action, weight in weights.items()}
        node.value = float(values[0])


class Hashed:
    """A network whose answers depend on the position alone, and on every bit of it; `EvaluatePositions`
    and, with `of_planes`, `Evaluate`. It remembers how many rows it was asked for at a time."""

    def __init__(self, game: Game) -> None:
        self.game, self.batches = game, list[int]()

    def __call__(self, states: States, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.of_planes(self.game.encode(states), legal)

    def of_planes(self, encoded: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.batches.append(len(encoded))
        logits = np.empty(legal.shape, np.float32)
        values = np.empty(len(legal), np.float32)
        for row, planes in enumerate(encoded):
            draws = np.random.default_rng(zlib.crc32(planes.tobytes()))
            logits[row] = draws.normal(size=legal.shape[1])
            values[row] = draws.uniform(-0.9, 0.9)
        logits[~legal] = 1e3  # of illegal actions may be anything
        return logits, values


class Mirrored:
    """The mean of the hashed network over all symmetries of the game: mirrored positions have
    mirrored answers."""

    def __init__(self, game: Game) -> None:
        self.game, self.hashed = game, Hashed(game)

    def __call__(self, states: States, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        planes = self.game.encode(states).reshape(len(states), self.game.planes[0], -1)
        logits, values = np.zeros(legal.shape), np.zeros(len(states))
        symmetries = self.game.symmetries()
        for board, actions in symmetries:
            seen = planes[:, :, board].reshape(-1, *self.game.planes)
            turned, value = self.hashed.of_planes(seen, legal[:, actions])
            back = np.argsort(actions)
            logits += turned[:, back] / len(symmetries)
            values += value / len(symmetries)
        return logits.astype(np.float32), values.astype(np.float32)
