"""One worker of self-play: many games at once, in two halves, of which one is searched while the other
one's leaves are with the network.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator

import numpy as np
import torch

from agents.games.load import load_game
from agents.search.alternation import Alternation
from agents.search.evaluations import Evaluations
from agents.search.interfaces import Evaluate
from agents.search.search import Search
from agents.selfplay.interfaces import Newest, Played, Published
from agents.selfplay.moves import Moves
from agents.selfplay.network import search_settings
from agents.selfplay.policy import load
from config.resolve import Resolved
from config.seeds import seed_sequence

CACHE_BYTES = 64 * 2**20
"""Of evaluations, of one network."""
GAMES_BITS = 22
"""4 million games of each worker have generators of their own."""


class Worker:
    """`agents.selfplay.interfaces.Worker`. One seed, one game: the same start of the same worker plays
    the same games by the same networks.
    """

    def __init__(self, resolved: Resolved, *, run: int, member: int, attempt: int) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved, self.run, self.member, self.attempt = resolved, run, member, attempt
        self.game, self.hyper = load_game(resolved.game.id), resolved.hyperparameters
        wanted = resolved.workers.worker_gpus and torch.cuda.is_available()
        self.device = "cuda" if wanted else "cpu"
        self._numbers, self._versions = itertools.count(), itertools.count(1)
        self._generation = -1

    def play(self, newest: Newest) -> Generator[list[Played], None, None]:
        """See `agents.selfplay.interfaces.Worker`; raises `ValueError` where there is no network."""
        first = newest()
        if first is None:
            raise ValueError("there is no network to play by")
        evaluations = self._evaluations(first)
        settings, count = search_settings(self.hyper), self.resolved.environment.count
        sizes = [size for size in (count - count // 2, count // 2) if size]
        searches = [Search(self.game, size, settings) for size in sizes]
        moves = [Moves(self.game, self.hyper, one, self._generator) for one in searches]
        for one in moves:
            one.begin(np.arange(one.search.slots), self._generation)
        for search in Alternation(searches, evaluations).rounds():
            slots = search.finished()
            if not len(slots):
                continue
            half = moves[searches.index(search)]
            ended = half.advance(slots)
            self._renew(evaluations, newest())
            half.begin(slots, self._generation)
            yield ended

    def _evaluations(self, network: Published) -> Evaluations:
        self._generation = network.generation
        evaluate = self._evaluate(network)
        return Evaluations(self.game, evaluate, version=0, cache_bytes=CACHE_BYTES)

    def _evaluate(self, network: Published) -> Evaluate:
        return load(self.resolved, network.state, self.device).evaluate

    def _renew(self, evaluations: Evaluations, network: Published | None) -> None:
        """Leaves that are with the older one now come back with its answers."""
        if network is None:
            return
        self._generation = network.generation
        evaluations.renew(self._evaluate(network), next(self._versions))

    def _generator(self) -> np.random.Generator:
        """Of the next game."""
        number = self.member << GAMES_BITS | next(self._numbers) % (1 << GAMES_BITS)
        purpose = f"self-play {self.attempt}"
        return np.random.default_rng(
            seed_sequence(self.resolved.experiment.seed, self.run, purpose, number)
        )
