"""The cache of a network's evaluations: the same answers, fewer questions."""

from __future__ import annotations

import numpy as np
import pytest

from agents.games.connect_four import ConnectFour
from agents.games.rules import States
from agents.search.evaluator import Evaluations, SearchSettings
from agents.search.tree_search import Search, search_all
from tests.search_reference import Hashed

GAME = ConnectFour()


def some_positions(count: int, seed: int = 0) -> States:
    draws, states = np.random.default_rng(seed), GAME.start(count)
    for _ in range(6):
        states = GAME.play(states, draws.integers(7, size=count))
    return states


def make(cache_bytes: int = 1 << 20, version: int = 0) -> tuple[Evaluations, Hashed]:
    network = Hashed(GAME)
    return Evaluations(GAME, network.of_planes, version=version, cache_bytes=cache_bytes), network


@pytest.mark.parametrize("cache_bytes", [0, 2000, 1 << 20])
def test_the_answers_are_the_networks_however_small_the_table(cache_bytes: int) -> None:
    evaluations, _ = make(cache_bytes)
    for seed in (0, 1, 0, 2, 1, 0):
        states = some_positions(200, seed)
        legal = GAME.legal(states)
        logits, values = evaluations(states, legal)
        expected = Hashed(GAME)(states, legal)
        assert np.array_equal(logits, expected[0]) and np.array_equal(values, expected[1])


def test_a_position_is_evaluated_once_within_a_batch_and_after_it() -> None:
    evaluations, network = make()
    states = some_positions(50)
    different = len(np.unique(states))
    twice = np.concatenate([states, states[::-1]])
    evaluations(twice, GAME.legal(twice))
    assert network.batches == [different]
    evaluations(states[:20], GAME.legal(states[:20]))
    assert network.batches == [different], "nothing is left to ask"
    assert (evaluations.asked, evaluations.evaluated) == (120, different)


def test_other_weights_answer_anew() -> None:
    evaluations, network = make()
    states = some_positions(10)
    legal = GAME.legal(states)
    before = evaluations(states, legal)[1]
    evaluations.renew(lambda encoded, legal: (np.zeros(legal.shape, np.float32), before + 1), 1)
    assert np.array_equal(evaluations(states, legal)[1], before + 1)
    evaluations.renew(network.of_planes, 2)
    assert np.array_equal(evaluations(states, legal)[1], before)


def test_an_evaluation_that_failed_leaves_nothing_behind() -> None:
    def fail(encoded: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise RuntimeError("out of memory")

    evaluations, network = make()
    states = some_positions(10)
    legal = GAME.legal(states)
    evaluations.renew(fail, 0)
    with pytest.raises(RuntimeError, match="out of memory"):
        evaluations(states, legal)
    evaluations.renew(network.of_planes, 0)
    assert np.array_equal(evaluations(states, legal)[1], Hashed(GAME)(states, legal)[1])


def test_a_search_is_the_same_with_and_without_and_asks_less() -> None:
    evaluations, network = make()
    budget, states = np.full(16, 60), some_positions(16)
    plain, cached = (
        search_all(Search(GAME, 16, SearchSettings()), states, evaluate, budget, [None] * 16)
        for evaluate in (Hashed(GAME), evaluations)
    )
    assert np.array_equal(plain.visits, cached.visits)
    again = search_all(Search(GAME, 16, SearchSettings()), states, evaluations, budget, [None] * 16)
    assert np.array_equal(plain.visits, again.visits)
    assert evaluations.evaluated < 0.55 * evaluations.asked
    assert sum(network.batches) == evaluations.evaluated
