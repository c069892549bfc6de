"""The search's own speed, and what it leaves of the network's: `python -m tests.benchmarks.search
[--rounds 5]`

Connect Four, 64 games, 100 simulations each with a network that costs nothing; then with the residual
network of 4 blocks and 64 channels, two halves of 64 games, without a cache, against that network's
best rate on batches alone. All by processor time on one thread of torch, the network's batches and the
searches by turns; a ratio is the median over the rounds of the ratios within one round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from agents.games.connect_four import ConnectFour
from agents.games.rules import States
from agents.networks.board_games import ResidualTower, evaluator
from agents.search.evaluator import Evaluate, EvaluatePositions, Evaluations, SearchSettings
from agents.search.tree_search import Search, search_all
from agents.selfplay.worker import Alternation

GAME = ConnectFour()
FREE_SIMULATIONS, SIMULATIONS = 100, 24
HALF = 64
BATCHES = (64, 128, 256)
LEAST_FREE, LEAST_SHARE, LEAST_FACTOR = 400_000, 0.8, 10
"""Simulations a second with a free network; of the network's own rate; as a multiple of it."""


def busy_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def free(states: States, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(legal.shape, np.float32), np.zeros(len(states), np.float32)


def openings(count: int) -> States:
    """Some plies into random games."""
    draws, states = np.random.default_rng(0), GAME.start(count)
    for _ in range(6):
        states = GAME.play(states, draws.integers(7, size=count))
    return states


def free_rate(games: int) -> float:
    """Simulations a second."""
    search, states = Search(GAME, games, SearchSettings()), openings(games)
    budget = np.full(games, FREE_SIMULATIONS)
    taken = busy_s(lambda: search_all(search, states, free, budget, [None] * games))
    return games * FREE_SIMULATIONS / taken


def inference_rate(evaluate: Evaluate, batch: int) -> float:
    """Positions a second."""
    states = openings(batch)
    encoded, legal, times = GAME.encode(states), GAME.legal(states), max(1, 512 // batch)
    return times * batch / busy_s(lambda: [evaluate(encoded, legal) for _ in range(times)])


def search_rate(evaluate: EvaluatePositions) -> float:
    """Simulations a second."""
    halves = [Search(GAME, HALF, SearchSettings()) for _ in range(2)]
    budget, generators = np.full(HALF, SIMULATIONS), [np.random.default_rng(i) for i in range(HALF)]
    states = openings(2 * HALF).reshape(2, HALF)

    def work() -> None:
        for half, given in zip(halves, states, strict=True):
            half.begin(np.arange(HALF), given, budget, list(generators))
        for half in Alternation(halves, evaluate).rounds():
            half.results(half.finished())

    return 2 * HALF * SIMULATIONS / busy_s(work)


def network() -> Evaluate:
    made = ResidualTower(
        GAME.planes, GAME.actions, blocks=4, channels=64, generator=torch.Generator().manual_seed(0)
    )
    return evaluator(made)


def main(words: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if one is below its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(words).rounds
    torch.set_num_threads(1)
    evaluate = network()
    asked = Evaluations(GAME, evaluate, version=0, cache_bytes=0)
    free_rate(HALF), search_rate(asked), inference_rate(evaluate, BATCHES[0])
    free_rates: dict[int, list[float]] = {64: [], 512: []}
    bests, singles, rates = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        for games, measured in free_rates.items():
            measured.append(free_rate(games))
        bests.append(max(inference_rate(evaluate, batch) for batch in BATCHES))
        singles.append(inference_rate(evaluate, 1))
        rates.append(search_rate(asked))
    for games, measured in free_rates.items():
        print(f"free network, {games} games: {statistics.median(measured):,.0f} simulations/s")
    share = statistics.median(rate / best for rate, best in zip(rates, bests, strict=True))
    factor = statistics.median(one / best for one, best in zip(free_rates[64], bests, strict=True))
    gain = statistics.median(best / one for best, one in zip(bests, singles, strict=True))
    print(f"network alone, best batch: {statistics.median(bests):,.0f} positions/s")
    print(
        f"network alone, one by one: {statistics.median(singles):,.0f}, batches {gain:.1f} x that"
    )
    print(
        f"search with the network: {statistics.median(rates):,.0f} simulations/s, {share:.2f} of its best"
    )
    print(f"search with a free network: {factor:.0f} x the network's best")
    fast_enough = statistics.median(free_rates[64]) >= LEAST_FREE
    return int(not (fast_enough and share >= LEAST_SHARE and factor >= LEAST_FACTOR))


if __name__ == "__main__":
    sys.exit(main())
