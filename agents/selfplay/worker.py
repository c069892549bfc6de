"""One worker of self-play. It plays many games at once in two halves: while one half is searched,
the network evaluates the other half's leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from agents.games.named import load_game
from agents.games.rules import Floats, Game
from agents.search.evaluator import Evaluate, EvaluatePositions, Evaluations
from agents.search.gumbel import choose
from agents.search.tree_search import Search
from agents.selfplay.policy import load, search_settings
from agents.selfplay.positions import packed_states
from agents.selfplay.roles import Newest, Played, Published, Rows
from config.resolved import Resolved
from config.seeds import seed_sequence

CACHE_BYTES = 64 * 2**20
"""Memory for evaluations of one network."""
GAMES_BITS = 22
"""4 million games of each worker have generators of their own."""


class Worker:
    """`agents.selfplay.roles.Worker`. One seed, one game: the same start of the same worker plays
    the same games by the same networks.
    """

    def __init__(self, resolved: Resolved, *, run: int, member: int, attempt: int) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.run = run
        self.member = member
        self.attempt = attempt
        self.game = load_game(resolved.game.id)
        self.hyper = resolved.hyperparameters
        wanted = resolved.workers.worker_gpus and torch.cuda.is_available()
        self.device = "cuda" if wanted else "cpu"
        self._numbers = itertools.count()
        # Version 0 is the network that the worker begins with.
        self._versions = itertools.count(1)
        self._generation = -1

    def play(self, newest: Newest) -> Generator[list[Played], None, None]:
        """See `agents.selfplay.roles.Worker`; raises `ValueError` where there is no network."""
        first = newest()
        if first is None:
            raise ValueError("there is no network to play by")
        evaluations = self._evaluations(first)
        settings = search_settings(self.hyper)
        count = self.resolved.environment.count
        # A single game has no second half.
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
            # The finished moves are played by the results of their searches; the next searches
            # begin with the newest network.
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
        """The generator of the next game."""
        # Worker and game in one number: no two games of a run share a generator.
        number = self.member << GAMES_BITS | next(self._numbers) % (1 << GAMES_BITS)
        purpose = f"self-play {self.attempt}"
        return np.random.default_rng(
            seed_sequence(self.resolved.experiment.seed, self.run, purpose, number)
        )


Generators = Callable[[], np.random.Generator]
"""A new one for each game: the only source of its chance."""


class Moves:
    """The games in the slots of one search; hyper: of `config.algorithms.alphazero`."""

    def __init__(self, game: Game, hyper: Any, search: Search, generators: Generators) -> None:
        self.game = game
        self.hyper = hyper
        self.search = search
        self._generators = generators
        count = search.slots
        self._states = game.start(count)
        self._plies = np.zeros(count, np.int32)
        self._full = np.zeros(count, np.bool_)
        self._begun = np.zeros(count, np.int64)
        self._chance = [generators() for _ in range(count)]
        self._kept: list[list[Rows]] = [[] for _ in range(count)]

    def begin(self, slots: np.ndarray, generation: int) -> None:
        """Search the positions [k] of these slots [k] by the network of this generation, newest now."""
        chance = [self._chance[slot] for slot in slots]
        # Playout-cap randomisation (KataGo, Wu 2019): few moves are searched in full, with noise at
        # the root, and only these teach the policy; the others are cheap.
        full = np.array([one.random() < self.hyper.full_search_share for one in chance])
        budget = np.where(full, self.hyper.simulations, self.hyper.cheap_simulations)
        noise = [one if is_full else None for one, is_full in zip(chance, full, strict=True)]
        self._full[slots] = full
        self._begun[slots] = generation
        self.search.begin(slots, self._states[slots], budget, noise)

    def advance(self, slots: np.ndarray) -> list[Played]:
        """Play what the finished searches of these slots found, and begin anew where a game ends."""
        searched = self.search.results(slots)
        chance = [self._chance[slot] for slot in slots]
        actions = choose(searched, self._plies[slots], self.hyper.sampled_plies, chance)
        # Rows are kept before the move is played, because they hold the position that was searched.
        self._keep(slots, np.where(self._full[slots, None], searched.policy, 0))
        self._states[slots] = self.game.play(self._states[slots], actions)
        self._plies[slots] += 1
        over, values = self.game.outcome(self._states[slots])
        movers = self.game.mover(self._states[slots])
        ended = np.flatnonzero(over)
        return [self._ended(slots[row], float(values[row]), int(movers[row])) for row in ended]

    def _keep(self, slots: np.ndarray, policies: np.ndarray) -> None:
        states = self._states[slots]
        rows: Rows = {
            "state": packed_states(states),
            "policy": policies.astype(np.float32),
            "legal": self.game.legal(states),
            "value": np.where(self.game.mover(states) == 0, 1, -1).astype(np.float32),
            "full": self._full[slots],
            "generation": self._begun[slots],
        }
        for row, slot in enumerate(slots):
            self._kept[slot].append({name: column[row] for name, column in rows.items()})

    def _ended(self, slot: int, value: float, mover: int) -> Played:
        """value: for this mover; until now, a row's is 1 where player 0 was to move, else -1."""
        # 0.0 − value instead of −value: a draw is 0, never −0.
        of_first = value if mover == 0 else 0.0 - value
        rows = stacked(self._kept[slot])
        rows["value"] = rows["value"] * np.float32(of_first)
        self._kept[slot] = []
        self._chance[slot] = self._generators()
        self._states[slot] = self.game.start(1)[0]
        self._plies[slot] = 0
        return Played(rows, 50.0 * (1 + of_first))


def stacked(rows: Sequence[Rows]) -> Rows:
    """Stack single arrays to [n, ...]."""
    found: Rows = {}
    for name in rows[0]:
        found[name] = np.stack([row[name] for row in rows])
    return found


class Alternation:
    """evaluate is called by one thread of its own, for one half after the other: what it remembers
    needs no lock, and the same searches give it the same batches.
    """

    def __init__(self, halves: Sequence[Search], evaluate: EvaluatePositions) -> None:
        self.halves = halves
        self.evaluate = evaluate

    def rounds(self) -> Iterator[Search]:
        """Each half in turn, as soon as its leaves are evaluated: for whoever iterates to take the
        results of its finished searches, and to begin new ones. Ends when nothing is searched.
        """
        pending: list[Future[tuple[Floats, Floats]] | None] = [None] * len(self.halves)
        with ThreadPoolExecutor(1, thread_name_prefix="evaluation") as thread:
            while True:
                for number, half in enumerate(self.halves):
                    waiting = pending[number]
                    if waiting is not None:
                        # An exception of the evaluation is raised here, in the thread that
                        # searches.
                        half.receive(*waiting.result())
                    yield half
                    leaves = half.leaves()
                    # While the thread evaluates these, the other half is searched here.
                    pending[number] = None
                    if len(leaves.states):
                        task = thread.submit(self.evaluate, leaves.states, leaves.legal)
                        pending[number] = task
                finished = any(len(half.finished()) for half in self.halves)
                if not finished and not any(pending):
                    return
