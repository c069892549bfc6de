"""Moves of self-play a second, with one network and equally many simulations for each move, by processor
time on one thread: `python -m tests.benchmarks.self_play [--rounds 5]`

    ours          128 games in two halves, leaves in batches, evaluations kept in a cache
    plain         one game: alpha-zero-general's search, by its description (github.com/suragnair)
    OpenSpiel's   one game: its Python MCTS as its AlphaZero calls it, evaluations kept in a cache

The plain search is given bitboards as whole numbers, which are faster than that project's boards, and
keeps its tree over a game. All three draw their moves from the visits. They take turns in every
round; a ratio is the median over the rounds of the ratios within one round.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyspiel
import torch
from open_spiel.python.algorithms import mcts

from agents.games.connect_four import BITS, COLUMNS, FULL, ROWS
from agents.search.evaluator import Evaluate, Evaluations, SearchSettings
from agents.search.tree_search import Search
from agents.selfplay.worker import Alternation
from tests.benchmarks.search import GAME, HALF, inference_rate, network

SIMULATIONS = 50
SEGMENT_S = 6.0
"""Of processor time, for each of the three in a round."""
BATCHES = (64, 128)
LEAST_OF_GAIN, LEAST_OF_OPENSPIEL = 0.8, 2.0
"""Moves as a multiple of the plain search's, over what batches gain for the network; and of
OpenSpiel's."""
CACHE_BYTES = 2**26
CACHED = 2**16
"""Positions that OpenSpiel's evaluator keeps, as its AlphaZero has it."""
C_PUCT = 1.25
CELLS = [BITS * column + row for row in reversed(range(ROWS)) for column in range(COLUMNS)]
"""Bits of a board, the uppermost row first."""
LINES = (1, BITS - 1, BITS, BITS + 1)

Board = tuple[int, int]
"""The mover's stones, and all stones."""


def ours(evaluate: Evaluate) -> Iterator[int]:
    """Moves since the last time, for ever."""
    cached = Evaluations(GAME, evaluate, version=0, cache_bytes=CACHE_BYTES)
    halves = [Search(GAME, HALF, SearchSettings()) for _ in range(2)]
    noise = [np.random.default_rng(slot) for slot in range(HALF)]
    boards = {id(half): GAME.start(HALF) for half in halves}

    def begin(half: Search, slots: np.ndarray) -> None:
        states, budget = boards[id(half)][slots], np.full(len(slots), SIMULATIONS)
        half.begin(slots, states, budget, [noise[slot] for slot in slots])

    for half in halves:
        begin(half, np.arange(HALF))
    for half in Alternation(halves, cached).rounds():
        slots = half.finished()
        if len(slots):
            policy = half.results(slots).policy
            drawn = [
                noise[slot].choice(GAME.actions, p=row)
                for slot, row in zip(slots, policy, strict=True)
            ]
            states = GAME.play(boards[id(half)][slots], np.array(drawn))
            over, _ = GAME.outcome(states)
            states[over] = GAME.start(int(over.sum()))
            boards[id(half)][slots] = states
            begin(half, slots)
        yield len(slots)


def encoded(board: Board) -> np.ndarray:
    """[1, 2, H, W], as our game's."""
    own, taken = board
    cells = [[own >> bit & 1 for bit in CELLS], [(taken ^ own) >> bit & 1 for bit in CELLS]]
    return np.array(cells, np.float32).reshape(1, *GAME.planes)


def played(board: Board, action: int) -> Board:
    """The other one is the mover then."""
    own, taken = board
    return taken ^ own, taken | taken + (1 << BITS * action)


def value_at_end(board: Board) -> float | None:
    """For the mover, who has lost or drawn; None while the game goes on."""
    own, taken = board
    stones = taken ^ own
    for step in LINES:
        pairs = stones & stones >> step
        if pairs & pairs >> 2 * step:
            return -1.0
    return 0.0 if taken == FULL else None


class PlainSearch:
    """One position at a time; by position, what its actions were tried for and came to."""

    def __init__(self, evaluate: Evaluate) -> None:
        self.evaluate = evaluate
        self.priors = dict[Board, np.ndarray]()
        self.visits = dict[Board, int]()
        self.tried = dict[tuple[Board, int], int]()
        self.values = dict[tuple[Board, int], float]()

    def search(self, board: Board) -> float:
        """One simulation; its value for the mover."""
        end = value_at_end(board)
        if end is not None:
            return end
        if board not in self.priors:
            return self.expand(board)
        action = self.best(board)
        value = -self.search(played(board, action))
        edge = board, action
        tried = self.tried.get(edge, 0)
        self.values[edge] = (tried * self.values.get(edge, 0.0) + value) / (tried + 1)
        self.tried[edge] = tried + 1
        self.visits[board] += 1
        return value

    def expand(self, board: Board) -> float:
        """By the network, whose answer is for this one position."""
        taken = board[1]
        room = [not taken >> BITS * column + ROWS - 1 & 1 for column in range(COLUMNS)]
        legal = np.array([room])
        logits, values = self.evaluate(encoded(board), legal)
        weights = np.exp(logits[0] - logits[0].max()) * legal[0]
        self.priors[board], self.visits[board] = weights / weights.sum(), 0
        return float(values[0])

    def best(self, board: Board) -> int:
        """PUCT over the actions that the network gives a chance."""
        root, scores = C_PUCT * math.sqrt(self.visits[board] + 1e-8), dict[int, float]()
        for action, prior in enumerate(self.priors[board].tolist()):
            if prior > 0:
                edge = board, action
                explored = root * prior / (1 + self.tried.get(edge, 0))
                scores[action] = self.values.get(edge, 0.0) + explored
        return max(scores, key=scores.__getitem__)

    def policy(self, board: Board) -> np.ndarray:
        """Shares of the visits [A], after all simulations of a move."""
        for _ in range(SIMULATIONS):
            self.search(board)
        tried = np.array([self.tried.get((board, action), 0) for action in range(COLUMNS)])
        shares: np.ndarray = tried / tried.sum()
        return shares


def plain(evaluate: Evaluate) -> Iterator[int]:
    """Moves since the last time, for ever."""
    draws = np.random.default_rng(0)
    while True:
        board, search = (0, 0), PlainSearch(evaluate)
        while value_at_end(board) is None:
            board = played(board, int(draws.choice(COLUMNS, p=search.policy(board))))
            yield 1


class CachedEvaluator(mcts.Evaluator):  # type: ignore[misc]  # OpenSpiel has no types
    """What `AlphaZeroEvaluator` does, with our network."""

    def __init__(self, evaluate: Evaluate) -> None:
        @functools.lru_cache(maxsize=CACHED)
        def ask(planes: bytes, legal: bytes) -> tuple[float, np.ndarray]:
            own = np.frombuffer(planes, np.float32).reshape(3, ROWS, COLUMNS)[:2]
            allowed = np.frombuffer(legal, np.bool_)
            logits, values = evaluate(own[np.newaxis], allowed[np.newaxis])
            weights = np.exp(logits[0] - logits[0].max()) * allowed
            return float(values[0]), weights / weights.sum()

        self.ask = ask

    def _answer(self, state: Any) -> tuple[float, np.ndarray]:
        planes = np.array(state.observation_tensor(), np.float32)
        return self.ask(planes.tobytes(), np.array(state.legal_actions_mask(), np.bool_).tobytes())

    def evaluate(self, state: Any) -> np.ndarray:
        """Values of both players."""
        value = self._answer(state)[0]
        return np.array([value, -value])

    def prior(self, state: Any) -> list[tuple[int, float]]:
        """Of each legal action."""
        policy = self._answer(state)[1]
        return [(action, policy[action]) for action in state.legal_actions()]


def openspiel(evaluate: Evaluate) -> Iterator[int]:
    """Moves since the last time, for ever."""
    game, draws = pyspiel.load_game("connect_four"), np.random.RandomState(0)
    bot = mcts.MCTSBot(
        game, C_PUCT, SIMULATIONS, CachedEvaluator(evaluate), solve=False, random_state=draws,
        child_selection_fn=mcts.SearchNode.puct_value, dirichlet_noise=(0.25, 1.0),
        dont_return_chance_node=True,
    )  # fmt: skip
    while True:
        state = game.new_initial_state()
        while not state.is_terminal():
            children = bot.mcts_search(state).children
            visits = np.array([child.explore_count for child in children])
            chosen = draws.choice(len(children), p=visits / visits.sum())
            state.apply_action(children[chosen].action)
            yield 1


def rate(moves: Iterator[int]) -> float:
    """Moves a second of processor time."""
    made, began = 0, time.process_time()
    while (taken := time.process_time() - began) < SEGMENT_S:
        made += next(moves)
    return made / taken


def main(words: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if one is below its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(words).rounds
    torch.set_num_threads(1)
    evaluate = network()
    players: dict[str, Callable[[Evaluate], Iterator[int]]] = {
        "ours": ours, "plain": plain, "OpenSpiel's": openspiel,
    }  # fmt: skip
    playing = {name: play(evaluate) for name, play in players.items()}
    for moves in playing.values():
        rate(moves)
    rates: dict[str, list[float]] = {name: [] for name in players}
    gains = list[float]()
    for _ in range(rounds):
        for name, moves in playing.items():
            rates[name].append(rate(moves))
        best = max(inference_rate(evaluate, batch) for batch in BATCHES)
        gains.append(best / inference_rate(evaluate, 1))
    for name, measured in rates.items():
        print(f"{name}: {statistics.median(measured):.1f} moves/s of {SIMULATIONS} simulations")
    return verdict(rates, gains)


def verdict(rates: dict[str, list[float]], gains: list[float]) -> int:
    """Print the ratios; 1 if one is below its bound."""
    factors = [one / other for one, other in zip(rates["ours"], rates["plain"], strict=True)]
    of_gain = statistics.median(one / gain for one, gain in zip(factors, gains, strict=True))
    theirs = zip(rates["ours"], rates["OpenSpiel's"], strict=True)
    of_openspiel = statistics.median(one / other for one, other in theirs)
    print(
        f"{statistics.median(factors):.1f} x the plain search, {of_gain:.2f} of what batches gain "
        f"({statistics.median(gains):.1f} x); {of_openspiel:.1f} x OpenSpiel's"
    )
    return int(of_gain < LEAST_OF_GAIN or of_openspiel < LEAST_OF_OPENSPIEL)


if __name__ == "__main__":
    sys.exit(main())
