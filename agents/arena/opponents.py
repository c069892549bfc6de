"""A player by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

import numpy as np

from agents.arena.minimax import Minimax
from agents.arena.players import Choices, Generators, Lookahead, Own, Player, Random
from agents.games.rules import Game, States
from agents.search.evaluator import (
    Evaluate,
    EvaluatePositions,
    Evaluations,
    Rollouts,
    SearchSettings,
)
from agents.search.tree_search import Search, search_all
from config.errors import BadInput, shown, unknown
from config.imports import is_import_path

NAMES = ("random", "lookahead", "mcts-100", "minimax", "minimax-4", "package.module:Name")
"""The names that messages and help list. Other numbers are allowed."""
NUMBERED = re.compile(r"(mcts|minimax)-([0-9]{1,9})")
MOST_ROLLOUTS = 100_000
"""Largest number of rollouts for each move; it takes seconds."""
DEEPEST = 12
"""Plies: a level of Connect Four then has millions of positions."""


def load_player(name: str, game: Game) -> Player:
    """`random`, `lookahead`, `mcts-N` with N rollouts for each move, `minimax-N` that looks N plies
    ahead, `minimax` as far as it can, or a person's own as `package.module:Name`.

    Raises `BadInput` with one line for everything else.
    """
    if is_import_path(name):
        return Own(game, name)
    simple: dict[str, Callable[[Game], Player]] = {
        "random": Random,
        "lookahead": Lookahead,
        "minimax": Minimax,
    }
    if name in simple:
        return simple[name](game)
    numbered = NUMBERED.fullmatch(name)
    if numbered is None:
        raise unknown("player", name, NAMES)
    kind = numbered[1]
    number = int(numbered[2])
    largest = MOST_ROLLOUTS if kind == "mcts" else DEEPEST
    if not 1 <= number <= largest:
        raise BadInput(f"player {shown(name)} cannot be; allowed: {kind}-1 … {kind}-{largest}")
    return monte_carlo(game, number) if kind == "mcts" else Minimax(game, number)


CACHE_BYTES = 2**25


class Searching:
    """Plays the best action of a search without noise, of so many simulations for each move.

    evaluator: gives what the search asks, once for each call; its generator is drawn from that of the
    first game, so that a match is the same for the same seed, though not one of its games alone.
    """

    def __init__(
        self,
        name: str,
        game: Game,
        evaluator: Callable[[np.random.Generator], EvaluatePositions],
        simulations: int,
        settings: SearchSettings,
    ) -> None:
        self.name = name
        self.game = game
        self.evaluator = evaluator
        self.simulations = simulations
        self.settings = settings
        self._search = Search(game, 1, settings)

    def choose(self, states: States, generators: Generators) -> Choices:
        """See `Player`; policy: shares of the visits, or the Gumbel root's."""
        count = len(states)
        # A search has room for the largest number of positions so far.
        if count > self._search.slots:
            self._search = Search(self.game, count, self.settings)
        evaluate = self.evaluator(np.random.default_rng(generators[0].integers(2**63)))
        budget = np.full(count, self.simulations)
        searched = search_all(self._search, states, evaluate, budget, [None] * count)
        return Choices(searched.action, searched.policy, searched.value)


class SearchPolicy(Protocol):
    """A trained network and its search: the interface of `agents.selfplay.policy.SelfPlayPolicy`."""

    @property
    def game(self) -> Game:
        """The game that it plays."""
        ...

    @property
    def evaluate(self) -> Evaluate:
        """Evaluate positions with the network."""
        ...

    @property
    def settings(self) -> SearchSettings:
        """The settings of its search. Noise is for self-play only."""
        ...

    @property
    def simulations(self) -> int:
        """Number of simulations for each move."""
        ...


def trained(name: str, policy: SearchPolicy) -> Searching:
    """A trained player. What its network said of a position it remembers, so that a new one for each
    match plays the same match again.
    """
    known = Evaluations(policy.game, policy.evaluate, version=0, cache_bytes=CACHE_BYTES)
    return Searching(name, policy.game, lambda _: known, policy.simulations, policy.settings)


def monte_carlo(game: Game, simulations: int) -> Searching:
    """`mcts-100`: Monte-Carlo tree search with so many rollouts for each move."""

    def rollouts(generator: np.random.Generator) -> EvaluatePositions:
        return Rollouts(game, generator)

    return Searching(f"mcts-{simulations}", game, rollouts, simulations, SearchSettings())
